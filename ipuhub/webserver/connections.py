"""io: how many connections are open at a time, so that descriptors never run out.

A connection without a request gives way to a new one, that which has been silent longest. So a
crowd of silent ones keeps nobody out, and a probe always finds a place.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

FOR_PROBES: Final = 16
"""Connections beyond the limit: they are read, and if all others are busy only probes are answered.
"""


class CountedServer(web.Server):
    """aiohttp's server with requests on at most `most` connections, and a few for probes."""

    def __init__(self, most: int, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._most = most
        self._silent: dict[asyncio.BaseProtocol, asyncio.BaseTransport] = {}  # longest silent first
        self._asking: dict[asyncio.BaseProtocol, asyncio.BaseTransport] = {}

    @property
    def is_full(self) -> bool:
        """Whether more connections have a request under way than there may be."""
        return len(self._asking) > self._most

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection, and end the one that is silent longest where there are too many."""
        super().connection_made(handler, transport)
        self._silent[handler] = transport
        if len(self._silent) + len(self._asking) > self._most + FOR_PROBES:
            ended = self._silent.pop(next(iter(self._silent)))
            if isinstance(ended, asyncio.Transport):
                ended.abort()

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self._silent.pop(handler, None)
        self._asking.pop(handler, None)

    def asks(self, handler: asyncio.BaseProtocol) -> None:
        """Note that a connection has a request under way."""
        if (transport := self._silent.pop(handler, None)) is not None:
            self._asking[handler] = transport

    def asked(self, handler: asyncio.BaseProtocol) -> None:
        """Note that its request is answered."""
        if (transport := self._asking.pop(handler, None)) is not None:
            self._silent[handler] = transport
