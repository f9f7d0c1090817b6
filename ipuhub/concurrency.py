"""domain: helpers for asyncio and threads: timeouts, cancelling tasks, locks by key."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

K = TypeVar("K", bound="Hashable")


async def wait_set(event: asyncio.Event, seconds: float | None) -> bool:
    """Return whether the event is set within so many seconds; None: wait without limit."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def end_tasks(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks and wait until they have ended, whatever their result."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class LoopEnded(Exception):  # noqa: N818  # what happened, in a sentence
    """A background loop returned without being stopped."""


async def run_endlessly(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a background loop that ends only when it is cancelled.

    Raises LoopEnded with `name` if the loop returns: a process that lost a loop must not look as
    if it had ended well, and must not go on without it.
    """
    await run()
    raise LoopEnded(f"the loop {name!r} ended without being stopped")


class StoppedError(Exception):
    """A request to stop came during a pause of the work."""


class Pauses:
    """Pauses of a thread that end early, with StoppedError, once the process ends."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def __call__(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise StoppedError

    def end(self) -> None:
        """Let the current pause and all later ones raise StoppedError."""
        self._over.set()


class KeyedLocks(Generic[K]):
    """Locks by key: work on one key is sequential, work on different keys is concurrent.

    An unused key takes no memory.
    """

    def __init__(self) -> None:
        self._locks: dict[K, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: K) -> AsyncIterator[None]:
        """Hold the key's lock; waiters get it in their order of arrival."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)
