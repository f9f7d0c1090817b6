"""io: the event loop of processes that serve thousands of requests: uvloop, and few collections."""

from __future__ import annotations

import asyncio
import ctypes
import gc
from typing import TYPE_CHECKING, Any, Final, TypeVar

import uvloop

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

# Objects made and not gone, a step of the collector, and steps of the one before: each request
# makes hundreds that end by themselves, and looking for cycles among them was a tenth of the CPU.
_THRESHOLDS: Final = (10_000, 20, 20)
# glibc's mallopt: one arena for all threads, since one of them does nearly all work, and what is
# free goes back to the system. An operator with 20,000 pods keeps 10 MiB less after a list.
_MALLOC: Final = {"M_ARENA_MAX": (-8, 1), "M_TRIM_THRESHOLD": (-1, 128 * 1024)}


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, as `asyncio.run` does, and return its result or raise its error."""
    gc.freeze()  # what is loaded by now stays: no collection needs to look at it again
    gc.set_threshold(*_THRESHOLDS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        for option, amount in _MALLOC.values():
            mallopt(option, amount)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
