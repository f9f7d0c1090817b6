"""A wire to PostgreSQL that breaks at a chosen COMMIT: before it arrives, or before its answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Moment = Literal["before", "after"]


class LossyWire:
    """Passes everything on to `host`:`port`, but breaks off at the `broken`-th COMMIT (1: first).

    `before`: PostgreSQL never receives it and rolls back. `after`: it commits, and the client gets
    no reply.
    """

    def __init__(self, host: str, port: int, broken: int, moment: Moment) -> None:
        self._target = (host, port)
        self._broken, self._moment = broken, moment
        self.commits = 0
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> LossyWire:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(*self._target)
        is_told = True

        async def ask(content: bytes) -> bool:
            nonlocal is_told
            if b"COMMIT" in content:
                self.commits += 1
                if self.commits == self._broken:
                    if self._moment == "before":
                        return False
                    is_told = False
            forth.write(content)
            return True

        async def answer(content: bytes) -> bool:
            if is_told:
                writer.write(content)
            return is_told

        works = {
            asyncio.create_task(_carry(reader, ask)),
            asyncio.create_task(_carry(back, answer)),
        }
        try:
            await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            for end in (writer, forth):
                end.transport.abort()


async def _carry(source: asyncio.StreamReader, sink: Callable[[bytes], Awaitable[bool]]) -> None:
    with suppress(ConnectionError):
        while content := await source.read(1 << 16):
            if not await sink(content):
                return
