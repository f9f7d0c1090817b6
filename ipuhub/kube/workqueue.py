"""io: a queue of keys to reconcile: no key is queued twice, or worked on twice at a time."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from ipuhub.backoff import exponential
from ipuhub.concurrency import wait_set

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

K = TypeVar("K", bound="Hashable")


class WorkQueue(Generic[K]):
    """Keys by priority (lower first), then by arrival.

    A key added while it is worked on is queued again when that is done, so that no change is
    missed and no two workers have the same key. `retries` counts delays after failures. `clock`
    gives seconds and is for tests. For one event loop; not thread-safe.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        first_seconds: float = 0.005,
        max_seconds: float = 960.0,
    ) -> None:
        self._clock = clock
        self._first_seconds = first_seconds
        self._max_seconds = max_seconds
        self._order = itertools.count()
        # Heap entries count only while the dict beside it names the same pair of numbers.
        self._ready: dict[K, tuple[float, int]] = {}
        self._ready_heap: list[tuple[float, int, K]] = []
        self._delayed: dict[K, tuple[float, int]] = {}
        self._delayed_heap: list[tuple[float, int, K]] = []
        self._delayed_priority: dict[K, float] = {}
        self._active: set[K] = set()
        self._again: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._since: dict[K, float] = {}
        self.retries = 0
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Number of keys that are due and not yet taken."""
        self._promote()
        return len(self._ready)

    @property
    def active(self) -> int:
        """Number of keys being worked on."""
        return len(self._active)

    @property
    def delayed(self) -> int:
        """Number of keys that wait for their time."""
        self._promote()
        return len(self._delayed)

    @property
    def failing(self) -> int:
        """Number of keys whose last try failed."""
        return len(self._failures)

    def oldest_seconds(self) -> float:
        """Return the seconds for which the oldest waiting key has been due."""
        self._promote()
        now = self._clock()
        return now - min(self._since.values(), default=now)

    def add(self, key: K, *, priority: float = 0.0) -> None:
        """Queue `key` now. Queued already: the lower (more urgent) priority counts."""
        if key in self._active:
            self._again[key] = min(priority, self._again.get(key, priority))
            return
        queued = self._ready.get(key)
        if queued is not None and queued[0] <= priority:
            return
        place = (priority, next(self._order))
        self._ready[key] = place
        heapq.heappush(self._ready_heap, (*place, key))
        self._since.setdefault(key, self._clock())
        self._wake.set()

    def add_after(self, key: K, delay_seconds: float, *, priority: float = 0.0) -> None:
        """Queue `key` when `delay_seconds` have passed; of several such wishes the first counts."""
        if delay_seconds <= 0:
            self.add(key, priority=priority)
            return
        due = self._clock() + delay_seconds
        planned = self._delayed.get(key)
        if planned is not None and planned[0] <= due:
            return
        place = (due, next(self._order))
        self._delayed[key] = place
        self._delayed_priority[key] = priority
        heapq.heappush(self._delayed_heap, (*place, key))
        self._wake.set()

    def add_rate_limited(self, key: K) -> float:
        """Queue `key` after its backoff, count a failure, and return the seconds to wait."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.retries += 1
        delay = exponential(failures, base=self._first_seconds, maximum=self._max_seconds)
        self.add_after(key, delay)
        return delay

    def forget(self, key: K) -> None:
        """Reset the retry delay of `key` after a success."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Failures of `key` in a row."""
        return self._failures.get(key, 0)

    async def get(self) -> K:
        """Wait for the next key and take it. The caller must call `done` with it, always."""
        while True:
            self._promote()
            while self._ready_heap:
                *place, key = heapq.heappop(self._ready_heap)
                if self._ready.get(key) == tuple(place):
                    del self._ready[key]
                    self._since.pop(key, None)
                    self._active.add(key)
                    return key
            self._wake.clear()
            await self._wait()

    def done(self, key: K) -> None:
        """The work on `key` ended; when it was added meanwhile, it is queued again."""
        self._active.discard(key)
        if key in self._again:
            self.add(key, priority=self._again.pop(key))

    async def _wait(self) -> None:
        seconds = None
        if self._delayed_heap:
            seconds = max(self._delayed_heap[0][0] - self._clock(), 0.0)
        await wait_set(self._wake, seconds)

    def _promote(self) -> None:
        """Make the keys ready whose time has come."""
        now = self._clock()
        while self._delayed_heap and self._delayed_heap[0][0] <= now:
            *place, key = heapq.heappop(self._delayed_heap)
            if self._delayed.get(key) == tuple(place):
                del self._delayed[key]
                self.add(key, priority=self._delayed_priority.pop(key))
