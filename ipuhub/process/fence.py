"""io: acts that are begun only by a replica that surely leads, and end while it does.

For orders to those who know no preconditions. A process that stood still between a decision and
its order would give it under its successor, who may have decided otherwise since.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_Answer = TypeVar("_Answer")


class LeaseOverdue(Exception):  # noqa: N818  # what is so, not a fault
    """Another replica may lead by now; the same act may be this replica's again in a moment."""

    retryable = True


async def while_leading(
    left_seconds: Callable[[], float], act: Callable[[], Awaitable[_Answer]]
) -> _Answer:
    """Do `act` if no other replica can lead for `left_seconds` (0: one may now) and return its
    answer. Raises LeaseOverdue, nothing done, and TimeoutError after that time."""
    left = left_seconds()
    if left <= 0:
        raise LeaseOverdue("this replica has not renewed its Lease in time; ask again in a moment")
    async with asyncio.timeout(None if left == math.inf else left):
        return await act()
