"""io: HTTP servers that count their connections, so that silent clients block no others.

Anybody who can connect can open many connections and send nothing. Each takes an open file, and the
calls of the process need open files, too. So a new connection replaces the connection that has been
silent longest. Connections count from the moment they are accepted, before any TLS handshake.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

from aiohttp import web
from aiohttp.log import server_logger

from ipuhub.addresses import address_of, has_ipv6, listening_hosts
from ipuhub.process.runtime import allow_open_files

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

FOR_PROBES: Final = 16
"""Connections beyond the limit: they are read, and if all others are busy only probes are answered.
"""
PROBES: Final = frozenset({"/healthz", "/readyz", "/livez"})
HANDSHAKE_SECONDS: Final = 20.0
_PART_OF_FILES: Final = 3  # a process has up to two servers, and calls of its own
_AT_ONCE: Final = 16  # accepted before those that make room for them are closed
_PAUSE_SECONDS: Final = 0.2  # without a free file, and with no connection to end for it
_CLOSING_SECONDS: Final = 0.001
_FULL: Final = "The server has reached its connection limit. Try again in a few seconds.\n"
_SAYS_FULL_EVERY_SECONDS: Final = 60.0
_LACKS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_Handler = web.RequestHandler
_Ending = asyncio.Task[None] | asyncio.Transport | None


def _is_open(ending: _Ending) -> TypeGuard[asyncio.Transport]:
    """Return whether a connection has its transport; uvloop's are no `asyncio.Transport`."""
    return ending is not None and not isinstance(ending, asyncio.Task)


class CountedServer(web.Server):
    """aiohttp server with at most `most` connections with a request, plus a few for probes.

    A new connection replaces the connection that has been idle longest. So idle connections never
    block others, file descriptors never run out, and probes can always connect. A connection whose
    request is in progress (a watch, for example) is never replaced.
    """

    def __init__(
        self,
        most: int,
        handler: Callable[[Any], Awaitable[web.StreamResponse]],
        *arguments: Any,
        **options: Any,
    ) -> None:
        super().__init__(self._count, *arguments, **options)
        self._most = max(1, min(most, allow_open_files() // _PART_OF_FILES - FOR_PROBES))
        self._answer = handler
        # Longest silent first. The value ends the connection: the handshake, then the transport;
        # None for the moment in which a connection without TLS is opened.
        self._silent: dict[_Handler, _Ending] = {}
        self._asking: dict[_Handler, asyncio.Transport] = {}

    @property
    def is_full(self) -> bool:
        """Return whether the limit of connections with a request is exceeded."""
        return len(self._asking) > self._most

    def admit(self, handler: _Handler, handshake: asyncio.Task[None] | None) -> None:
        """Count an accepted connection; if there are too many, end the connection that has been
        silent longest."""
        self._silent[handler] = handshake
        if len(self._silent) + len(self._asking) > self._most + FOR_PROBES:
            self.end_longest_silent()

    def forget(self, handler: _Handler) -> None:
        """Count a connection no longer that could not be opened."""
        self._silent.pop(handler, None)

    def end_longest_silent(self) -> bool:
        """End the connection that has been silent longest, and return whether there was any. One
        whose answer is still being sent ends only if all others are in use, too."""
        if not self._silent:
            return False
        sent = (
            handler
            for handler, each in self._silent.items()
            if not _is_open(each) or not each.get_write_buffer_size()
        )
        self._end(next(sent, next(iter(self._silent))))
        return True

    def end_arriving(self) -> None:
        """End the connections whose HTTP has not begun."""
        for handler, each in tuple(self._silent.items()):
            if not _is_open(each):
                self._end(handler)

    def _end(self, handler: _Handler) -> None:
        ending = self._silent.pop(handler)
        if isinstance(ending, asyncio.Task):
            ending.cancel()
        elif ending is not None:
            ending.abort()
        # Else `connection_made` ends it: uvloop closes no transport that is being opened.

    def connection_made(self, handler: _Handler, transport: asyncio.Transport) -> None:
        """Note the transport of an admitted connection, or end a connection that had to make room
        meanwhile."""
        super().connection_made(handler, transport)
        if handler in self._silent:
            self._silent[handler] = transport
        else:  # once aiohttp's task for it has begun: it expects to be connected
            asyncio.get_running_loop().call_soon(transport.abort)

    def connection_lost(self, handler: _Handler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._silent.pop(handler, None)
        self._asking.pop(handler, None)

    async def _count(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; its connection is not silent meanwhile."""
        handler = request.protocol
        transport = self._silent.pop(handler, None)
        if _is_open(transport):
            self._asking[handler] = transport
        try:
            return await self._answer(request)
        finally:
            if (transport := self._asking.pop(handler, None)) is not None:
                self._silent[handler] = transport


class CountedRunner(web.AppRunner):
    """aiohttp's runner of an application, on a CountedServer."""

    def __init__(self, app: web.Application, most: int, **options: Any) -> None:
        super().__init__(app, **options)
        self._most = most

    async def _make_server(self) -> CountedServer:
        plain = await super()._make_server()

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            if server.is_full and request.path not in PROBES:
                full = web.Response(status=503, text=_FULL, headers={"Retry-After": "5"})
                full.force_close()
                return full
            return await plain.request_handler(request)

        server = CountedServer(
            self._most,
            answer,
            request_factory=plain.request_factory,
            handler_cancellation=plain.handler_cancellation,
            **plain._kwargs,  # noqa: SLF001  # aiohttp makes servers only as plain ones
        )
        return server


@dataclass(eq=False, slots=True)
class _Opening:
    """A connection that was accepted; `has_transport`: the event loop has its socket."""

    handler: _Handler
    accepted: socket.socket
    has_transport: bool = False


class _Listener:
    """Accepts connections for a CountedServer on sockets that listen.

    asyncio's own server knows a TLS connection only after its handshake, and writes a traceback for
    each connection that finds no free file.
    """

    def __init__(
        self, server: CountedServer, context: ssl.SSLContext | None, sockets: list[socket.socket]
    ) -> None:
        self.sockets = sockets
        self._server, self._context = server, context
        self._loop = asyncio.get_running_loop()
        self._said_full_at = -_SAYS_FULL_EVERY_SECONDS
        for each in sockets:
            self._loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        for each in self.sockets:
            self._loop.remove_reader(each)
            each.close()
        self.sockets = []
        self._server.end_arriving()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, _peer = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _LACKS:
                    self._make_room(listening, error)
                    return
                continue  # accept(2) also gives the errors of a connection that has ended already
            accepted.setblocking(False)
            opening = _Opening(self._server(), accepted)
            task = self._loop.create_task(self._open(opening))
            task.add_done_callback(partial(self._settle, opening))
            self._server.admit(opening.handler, task if self._context else None)

    async def _open(self, opening: _Opening) -> None:
        """Let the server speak HTTP on a connection, after the handshake of TLS if there is one."""
        opening.accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seconds = HANDSHAKE_SECONDS if self._context else None
        opening.has_transport = True
        await self._loop.connect_accepted_socket(
            lambda: opening.handler,
            opening.accepted,
            ssl=self._context,
            ssl_handshake_timeout=seconds,
        )

    def _settle(self, opening: _Opening, task: asyncio.Task[None]) -> None:
        """Forget a connection that did not come to HTTP; only faults of ours are logged."""
        error = None if task.cancelled() else task.exception()
        if not task.cancelled() and error is None:
            return
        self._server.forget(opening.handler)
        if not opening.has_transport:  # which closes the socket otherwise
            opening.accepted.close()
        if error is not None and not isinstance(error, OSError):  # left, or spoke no TLS
            server_logger.error("A connection could not be opened", exc_info=error)

    def _make_room(self, listening: socket.socket, error: OSError) -> None:
        """End a silent connection and accept again once it is closed; without any, in a moment:
        other parts of the process hold what is missing."""
        now = self._loop.time()
        if now - self._said_full_at >= _SAYS_FULL_EVERY_SECONDS:
            self._said_full_at = now
            remedy = "; raise the limit of open files (ulimit -n)"
            server_logger.warning(
                "New connections have to wait: %s%s",
                error.strerror,
                remedy if error.errno == errno.EMFILE else "",
            )
        pause = _CLOSING_SECONDS if self._server.end_longest_silent() else _PAUSE_SECONDS
        self._loop.remove_reader(listening)
        self._loop.call_later(pause, self._listen_again, listening)

    def _listen_again(self, listening: socket.socket) -> None:
        if listening in self.sockets:
            self._loop.add_reader(listening, self._accept, listening)


class CountedSite(web.BaseSite):
    """An address on which a runner of a CountedServer listens."""

    def __init__(
        self,
        runner: web.BaseRunner,
        host: str,
        port: int,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(runner, ssl_context=ssl_context, backlog=1024)
        self._address = (host, port)

    @property
    def name(self) -> str:
        """The address."""
        return address_of(*self._address)

    async def start(self) -> None:
        """Listen. Raise OSError if the address is in use or not ours."""
        await super().start()
        server = self._runner.server
        if not isinstance(server, CountedServer):
            raise TypeError(f"{type(server).__name__} does not count its connections")
        sockets = await _listening_sockets(*self._address, self._backlog)
        listener = _Listener(server, self._ssl_context, sockets)
        self._server = cast("asyncio.AbstractServer", listener)  # what runners need of it


async def _listening_sockets(host: str, port: int, backlog: int) -> list[socket.socket]:
    loop = asyncio.get_running_loop()
    made: list[socket.socket] = []
    try:
        for each in listening_hosts(host):
            found = await loop.getaddrinfo(
                each, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            usable = [each for each in found if each[0] != socket.AF_INET6 or has_ipv6()]
            # Without any, the error of the first says what this system lacks.
            for family, kind, protocol, _, address in dict.fromkeys(usable or found):
                listener = socket.socket(family, kind, protocol)
                made.append(listener)
                listener.setblocking(False)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind(address)
                listener.listen(backlog)
            port = port or made[0].getsockname()[1]  # one for all addresses
    except OSError:
        for listener in made:
            listener.close()
        raise
    return made
