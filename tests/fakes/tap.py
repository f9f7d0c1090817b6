"""An operator's watch on a server, with delays and losses."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import orjson

from ipuhub.kube.watch import split_batches
from tests.fakes.logcache import RELIST_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from tests.fakes.serverworld import ServerReplica

GONE = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'


class Tap:
    """One watch of one operator: its events, as late and as incomplete as the feed wants."""

    def __init__(self, plural: str, replica: ServerReplica) -> None:
        self._plural = plural
        self._replica = replica
        self._waiting: list[tuple[float, bytes]] = []
        self._relist_at: float | None = None
        self._is_relisting = False
        self.read = 0
        self.passed = 0

    @property
    def is_behind(self) -> bool:
        """Something is still to arrive."""
        return bool(self._waiting) or self._relist_at is not None or self._is_relisting

    def is_current(self, latest: int, position: int) -> bool:
        """Return whether the operator's copy shows all that this watch has passed on of
        `latest`."""
        if self._is_relisting or position < self.passed:
            return False
        return self.is_behind or max(self.read, position) >= latest

    async def pass_on(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """The watch's lines, each when its time has come."""
        self._waiting, self._relist_at, self._is_relisting = [], None, False
        reader = asyncio.create_task(self._read(chunks))
        try:
            while True:
                for line in self._due():
                    yield line + b"\n"
                if self._relist_at is not None and self._replica.clock() >= self._relist_at:
                    self._is_relisting = True
                    yield GONE
                    return
                if reader.done() and not self._waiting:
                    await reader
                    return
                await self._replica.news.wait()
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
            self._waiting, self._relist_at = [], None

    async def _read(self, chunks: AsyncIterator[bytes]) -> None:
        async for line in (line async for lines in split_batches(chunks) for line in lines):
            event = orjson.loads(line)
            self.read = int(event["object"]["metadata"]["resourceVersion"])
            feed, clock = self._replica.feed, self._replica.clock
            if event["type"] != "BOOKMARK" and self._replica.counts_event() == feed.drop:
                self._relist_at = clock() + RELIST_SECONDS
            else:
                self._waiting.append((clock(), line))
            self._replica.news.set()
        self._replica.news.set()

    def _due(self) -> list[bytes]:
        replica, due = self._replica, []
        lag = replica.feed.lag(self._plural, replica.now())
        while self._waiting and self._waiting[0][0] + lag <= replica.clock():
            line = self._waiting.pop(0)[1]
            self.passed = int(orjson.loads(line)["object"]["metadata"]["resourceVersion"])
            due.append(line)
        return due


class News:
    """Wakes all who wait, at each piece of news; each wait is for the next piece."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def set(self) -> None:
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None

    async def wait(self) -> None:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._next)
