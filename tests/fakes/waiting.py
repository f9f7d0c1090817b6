"""Waiting in tests for what other tasks, threads and processes do: the only place with a limit.

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
                answer = read()
                if asyncio.iscoroutine(answer):
                    answer = await answer
                if holds(answer):
                    return answer
                await asyncio.sleep(_PAUSE_SECONDS)
    except TimeoutError:
        raise AssertionError(f"not in {seconds:g} s; the last answer: {answer!r}") from None


def wait_until(read: Callable[[], Any], what: str = "it", seconds: float = PATIENCE_SECONDS) -> Any:
    """The first true answer of `read`; AssertionError with `what` when it stays away."""
    deadline = time.monotonic() + seconds
    while not (answer := read()):
        assert time.monotonic() < deadline, f"{what}: not in {seconds:g} s"
        time.sleep(_PAUSE_SECONDS)
    return answer
