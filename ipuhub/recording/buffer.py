"""io: the buffer of changes between a watch and PostgreSQL, limited in number and time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from ipuhub.concurrency import wait_set

if TYPE_CHECKING:
    from datetime import datetime

    from ipuhub.recording.recorder import Fault

Row = TypeVar("Row")


@dataclass(slots=True)
class Batch(Generic[Row]):
    """The changes that one transaction writes. `events` counts all changes, also those that left no
    row.

    All that happened before `position_at` is in it or before it; `answered_at` is when a full list
    was there.
    """

    resource_version: str
    position_at: datetime
    rows: list[Row] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    events: int = 0
    began_at: float = 0.0
    lag_seconds: float | None = None
    answered_at: datetime | None = None

    def append(self, more: Batch[Row]) -> None:
        """Add what came next."""
        self.rows += more.rows
        self.faults += more.faults
        self.events += more.events
        self.resource_version, self.position_at = more.resource_version, more.position_at


class Buffer(Generic[Row]):
    """One reader adds, one writer takes. `add` waits while `limit` events are not yet taken."""

    def __init__(self, limit: int, batch_events: int, batch_seconds: float) -> None:
        self._limit, self._batch_events, self._batch_seconds = limit, batch_events, batch_seconds
        self._batch: Batch[Row] | None = None
        self._added, self._taken, self._full = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._is_closed = False
        self._taken_at = 0.0

    async def add(self, more: Batch[Row]) -> None:
        """Add what arrived together; waits for room first."""
        while self._batch is not None and self._batch.events >= self._limit:
            self._taken.clear()
            await self._taken.wait()
        batch = self._batch
        if batch is None:
            self._batch = more
            more.began_at = asyncio.get_running_loop().time()
        else:
            batch.append(more)
        self._added.set()
        if self._batch is not None and self._batch.events >= self._batch_events:
            self._full.set()

    def close(self) -> None:
        """End the input: the writer gets the rest at once."""
        self._is_closed = True
        self._added.set()
        self._full.set()

    async def take(self) -> Batch[Row] | None:
        """Wait for a batch; None when closed and empty."""
        await self._added.wait()
        if self._batch is None:
            return None
        await self._until_ripe()
        batch, self._batch = self._batch, None
        if not self._is_closed:
            self._added.clear()
            self._full.clear()
        self._taken.set()
        return batch

    async def _until_ripe(self) -> None:
        """After a quiet time at once; in a stream, so many changes or seconds together."""
        loop = asyncio.get_running_loop()
        pause = self._taken_at + self._batch_seconds - loop.time()
        if pause > 0 and not self._full.is_set():
            await wait_set(self._full, pause)
        self._taken_at = loop.time()
