"""The short and long form of the tests: `make test-long` runs full products, `make test` samples.

A table of many dimensions (pages by themes by callers, each write of each life) costs the product
of its sides. The short form tries each value of each side, and each pair of values that has ever
mattered, and says so in a test. The combinations are fixed, not random.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")
IS_LONG: Final = bool(os.environ.get("IPUHUB_TEST_LONG"))


def one_in_turn(values: Sequence[T], turn: int, *, is_long: bool = IS_LONG) -> Sequence[T]:
    """Return all values in the long form, else one of them, the next value each turn."""
    return values if is_long else values[turn % len(values) :][:1]
