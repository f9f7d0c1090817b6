"""Waits in tests for other tasks, threads and processes: the only place with a timeout.

The limit is no rule of the product: it is long enough for a slow machine under load.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_SECONDS = 90.0
_PAUSE_SECONDS = 0.03
_SHARE = 2.0  # a read that takes its time, `kubectl` above all, is not asked for all the time
_LONGEST_PAUSE_SECONDS = 1.0


async def eventually(
    read: Callable[[], Any],
    holds: Callable[[Any], Any] = bool,
    *,
    seconds: float = PATIENCE_SECONDS,
) -> Any:
    """The first answer of `read`, which may be asynchronous, of which `holds` is true."""
    answer = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                began = time.monotonic()
                answer = read()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if holds(answer):
                    return answer
                await asyncio.sleep(_pause(began))
    except TimeoutError:
        raise AssertionError(f"not in {seconds:g} s; the last answer: {answer!r}") from None


def wait_until(read: Callable[[], Any], what: str = "it", seconds: float = PATIENCE_SECONDS) -> Any:
    """The first true answer of `read`; AssertionError with `what` when it stays away."""
    deadline = time.monotonic() + seconds
    began = time.monotonic()
    while not (answer := read()):
        assert time.monotonic() < deadline, f"{what}: not in {seconds:g} s"
        time.sleep(_pause(began))
        began = time.monotonic()
    return answer


def _pause(began: float) -> float:
    """Seconds until the next read, of a wait that began then."""
    took = time.monotonic() - began
    return min(max(_PAUSE_SECONDS, _SHARE * took), _LONGEST_PAUSE_SECONDS)
