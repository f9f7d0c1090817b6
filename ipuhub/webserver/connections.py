"""io: limit on open connections, so that file descriptors never run out.

A new connection replaces the connection that has been idle longest. So idle connections never block
others, and probes can always connect.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiohttp import web

FOR_PROBES: Final = 16
"""Connections beyond the limit: they are read, and if all others are busy only probes are answered.
"""


class CountedServer(web.Server):
    """aiohttp server with at most `most` connections with a request, plus a few for probes."""

    def __init__(self, most: int, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._most = most
        self._silent: dict[asyncio.BaseProtocol, asyncio.BaseTransport] = {}  # longest silent first
        self._asking: dict[asyncio.BaseProtocol, asyncio.BaseTransport] = {}

    @property
    def is_full(self) -> bool:
        """Return whether the limit of connections with a request is exceeded."""
        return len(self._asking) > self._most

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Count a connection; if there are too many, close the one that has been idle longest."""
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
        """Mark a connection as having a request."""
        if (transport := self._silent.pop(handler, None)) is not None:
            self._asking[handler] = transport

    def asked(self, handler: asyncio.BaseProtocol) -> None:
        """Mark the request of a connection as answered."""
        if (transport := self._asking.pop(handler, None)) is not None:
            self._silent[handler] = transport
