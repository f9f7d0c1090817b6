"""The order of the tests in which no worker is left with a demo at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


def begin_with_demos(tests: Sequence[T], demo_of: Callable[[T], str], workers: int) -> list[T]:
    """Put tests with a "shared" demo first, those with their "own" where a second worker begins.

    They wait the longest, some for a bound of the product to pass. `--dist worksteal` gives each
    worker a part of the list, in order, of as many tests as the others', and who has done his takes
    from the end of another's: who begins with demos keeps all of them, so that only one starts the
    shared demo.
    """
    kinds: dict[str, list[T]] = {"shared": [], "own": [], "": []}
    for test in tests:
        kinds[demo_of(test)].append(test)
    first, rest = kinds["shared"], kinds[""]
    second = max(len(tests) // workers - len(first), 0) if workers > 1 else 0
    return [*first, *rest[:second], *kinds["own"], *rest[second:]]
