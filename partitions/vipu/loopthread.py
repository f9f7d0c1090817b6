"""io: an event loop in its own thread, for calls from other threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ipuhub.concurrency import end_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_Answer = TypeVar("_Answer")


class LoopThread:
    """Runs coroutines from `start` to `stop`; its methods may be called from any thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._is_stopping = False
        self._entering = threading.Lock()

    def start(self) -> None:
        """Begin, once."""
        self._thread.start()

    def run(self, work: Coroutine[None, None, _Answer]) -> _Answer:
        """Return the result of the work; raises the threads' CancelledError where `stop` comes
        first."""
        with self._entering:
            if self._is_stopping:
                work.close()
                raise CancelledError
            answer = asyncio.run_coroutine_threadsafe(work, self._loop)
        return answer.result()

    def soon(self, call: Callable[[], None]) -> None:
        """Make a call on the loop and do not wait for it; nothing once it has stopped."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call)

    def stop(self, last: Callable[[], Coroutine[None, None, None]]) -> None:
        """Cancel all tasks, even awaited ones, then do the `last` work and end."""
        with self._entering:  # whatever was let in before is a task by the time that _end looks
            self._is_stopping = True
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(_end(last), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()


async def _end(last: Callable[[], Coroutine[None, None, None]]) -> None:
    await end_tasks(*(asyncio.all_tasks() - {asyncio.current_task()}))
    await last()
