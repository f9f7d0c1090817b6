"""io: the event loop of processes that serve thousands of requests: uvloop, and few collections."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any, Final, TypeVar

import uvloop

from ipuhub.process.heap import give_back_what_is_free

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")

# Objects made and not gone, a step of the collector, and steps of the one before: each request
# makes hundreds that end by themselves, and looking for cycles among them was a tenth of the CPU.
_THRESHOLDS: Final = (10_000, 20, 20)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, as `asyncio.run` does, and return its result or raise its error."""
    gc.freeze()  # what is loaded by now stays: no collection needs to look at it again
    gc.set_threshold(*_THRESHOLDS)
    give_back_what_is_free()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
