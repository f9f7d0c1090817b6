"""io: a WSGI server that incomplete requests and slow readers cannot block.

One event loop reads heads and bodies, each within a deadline, and sends the responses. A thread of
the pool handles a complete request and is free as soon as the response is generated. Probes have
separate threads and a deadline, so they answer while everything else is busy.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, Final

import structlog
from aiohttp import web

from ipuhub.process.connections import CountedServer, CountedSite
from ipuhub.process.health import log_bad_requests_in_one_line
from ipuhub.webserver.exchange import Head, answer, environ_of
from ipuhub.webserver.refusals import Refusal, refuse
from ipuhub.webserver.responsebuffer import Budget, ResponseBuffer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from wsgiref.types import WSGIApplication

_LOG = structlog.get_logger(__name__)
_BODY_IN_MEMORY_BYTES: Final = 64 * 1024
_TIMEOUT_OPTION: Final = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux
_FULL: Final = "The server has reached its connection limit. Try again in a few seconds."
_BUSY: Final = "server-busy"
_LEAVING: Final = "end: this replica is shutting down\n"
_PLAIN: Final = {"Server": "ipuhub", "Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a single request and of the server."""

    threads: int = 8
    connections: int = 400
    head_seconds: float = 20.0
    body_seconds: float = 20.0
    body_bytes: int = 4 * 1024 * 1024
    queue_seconds: float = 30.0
    unread_seconds: float = 60.0
    answer_seconds: float = 3600.0
    ahead_bytes: int = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReservedThreads:
    """Separate threads for one path: at most `threads` requests at a time, each answered within
    `seconds` of its arrival, or 503 with `sentence` (408 if its body has not arrived by then)."""

    threads: int
    seconds: float
    sentence: str


@dataclass(slots=True)
class _Pool:
    """Threads, the time to wait for a free thread, and whether the head of the response has to come
    within the same time."""

    threads: ThreadPoolExecutor
    free: asyncio.Semaphore
    wait_seconds: float
    sentence: str
    is_aside: bool = False


@dataclass
class WebServer:
    """Server of `application` within `limits`. Paths in `asides` have separate threads; paths in
    `constants` have a fixed response that needs no thread."""

    application: WSGIApplication
    limits: Limits = field(default_factory=Limits)
    asides: Mapping[str, ReservedThreads] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._budget = Budget(self.limits.ahead_bytes)
        self._runner: web.ServerRunner | None = None
        self._unready = ""

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raise OSError if the port is in use."""
        limits = self.limits
        busy = "The server is busy. Try again in a few seconds."
        self._pool = _pool("web", limits.threads, limits.queue_seconds, busy)
        self._asides = {
            path: _pool(f"web{path}", aside.threads, aside.seconds, aside.sentence, is_aside=True)
            for path, aside in self.asides.items()
        }
        log_bad_requests_in_one_line()
        self._server = CountedServer(
            limits.connections,
            self._handle,
            keepalive_timeout=limits.head_seconds,
            lingering_time=2.0,
            access_log=None,
            auto_decompress=False,
        )
        self._runner = web.ServerRunner(self._server, shutdown_timeout=20.0)
        await self._runner.setup()
        await CountedSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def leave(self, path: str, seconds: float) -> None:
        """Answer for another `seconds`, but 503 on the readiness `path`, from which load balancers
        learn of the shutdown.

        Each response ends its connection, so that the next request goes to another replica.
        """
        self._unready = path
        await asyncio.sleep(seconds)

    async def stop(self) -> None:
        """Accept no more requests, and finish current requests for up to 20 s."""
        if self._runner is not None:
            await self._runner.cleanup()
        for pool in (self._pool, *self._asides.values()):
            pool.threads.shutdown(wait=False, cancel_futures=True)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self._answer(request)
        if self._unready:
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        text = self.constants.get(request.path)
        if text is not None:
            return web.Response(text=text, headers=_PLAIN)
        if request.path == self._unready:
            return web.Response(status=503, text=_LEAVING, headers=_PLAIN)
        self._limit_silence(request)
        pool = self._asides.get(request.path, self._pool)
        if self._server.is_full and pool is self._pool:
            return _refused(request, Refusal(_BUSY, _FULL), ends=True)
        body = SpooledTemporaryFile(max_size=_BODY_IN_MEMORY_BYTES)  # noqa: SIM115  # see `_run`
        try:
            try:
                now = asyncio.get_running_loop().time
                arrived = now()
                size = await self._read_body(request, body, self._body_seconds(pool))
                until = (arrived if pool.is_aside else now()) + pool.wait_seconds
                await _take_place(pool, until)
            except BaseException:
                body.close()
                raise
            head_until = until if pool.is_aside else None
            return await self._run(request, environ_of(request, body, size), pool, head_until)
        except ConnectionError as error:
            return _break_off(request, web.StreamResponse(), error)
        except Refusal as no:
            # The rest of a body is not worth waiting for.
            return _refused(request, no, ends=no.kind != _BUSY)

    def _limit_silence(self, request: web.BaseRequest) -> None:
        """Let the kernel close a connection whose reader is gone, including unsent data."""
        connection = request.transport.get_extra_info("socket") if request.transport else None
        if connection is not None and _TIMEOUT_OPTION is not None:
            milliseconds = int(self.limits.unread_seconds * 1000)
            connection.setsockopt(socket.IPPROTO_TCP, _TIMEOUT_OPTION, milliseconds)

    def _body_seconds(self, pool: _Pool) -> float:
        limit = self.limits.body_seconds
        return min(limit, pool.wait_seconds) if pool.is_aside else limit

    async def _read_body(self, request: web.BaseRequest, body: IO[bytes], seconds: float) -> int:
        if not request.body_exists:
            return 0
        most = self.limits.body_bytes
        too_large = Refusal("body-too-large", f"The request body is larger than {most} bytes.")
        if (request.content_length or 0) > most:
            raise too_large
        if request.headers.get("Expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        size = 0
        try:
            async with asyncio.timeout(seconds):
                async for block in request.content.iter_any():
                    size += len(block)
                    if size > most:
                        raise too_large
                    body.write(block)
        except TimeoutError:
            raise Refusal(
                "body-too-slow", f"The body did not arrive within {seconds:g} s."
            ) from None
        body.seek(0)
        return size

    async def _run(
        self,
        request: web.BaseRequest,
        environ: dict[str, Any],
        pool: _Pool,
        head_until: float | None,
    ) -> web.StreamResponse:
        """Run the request in a thread, which owns the slot in the pool, `environ` and the body
        until it ends."""
        loop = asyncio.get_running_loop()
        head: asyncio.Future[Head] = loop.create_future()
        ready = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(ready.set)

        def send_head(received: Head) -> None:
            loop.call_soon_threadsafe(_settle, head, received)

        buffer = ResponseBuffer(self._budget, wake)
        work = loop.run_in_executor(
            pool.threads, answer, self.application, environ, send_head, buffer
        )
        work.add_done_callback(lambda done: _finish(done, head, pool, environ["wsgi.input"]))
        try:
            received = await _in_time(head, pool, head_until)
            response = web.StreamResponse(status=received.status, reason=received.reason)
            response.headers["Server"] = "ipuhub"
            if self._unready:  # in the head, which is sent before the response is back
                response.force_close()
            for name, value in received.headers:
                response.headers.add(name, value)
            try:
                async with asyncio.timeout(self.limits.answer_seconds):
                    await response.prepare(request)
                    await self._drain(response, buffer, ready)
            except (TimeoutError, ConnectionError) as error:
                return _break_off(request, response, error)
            return response
        finally:
            buffer.leave()

    async def _drain(
        self, response: web.StreamResponse, buffer: ResponseBuffer, ready: asyncio.Event
    ) -> None:
        """Send the blocks of the thread until the end; an error on either side aborts the
        response."""
        while (block := buffer.take()) is not None:
            if block:
                async with asyncio.timeout(self.limits.unread_seconds):
                    await response.write(block)
            else:
                await ready.wait()
                ready.clear()
        if buffer.error is not None:
            raise ConnectionAbortedError(str(buffer.error))
        await response.write_eof()


def _refused(request: web.BaseRequest, no: Refusal, *, ends: bool) -> web.Response:
    refusal = refuse(request.path, no.kind, f"{no}")
    headers = {"Server": "ipuhub", **refusal.headers}
    response = web.Response(status=refusal.status, body=refusal.text.encode(), headers=headers)
    if ends:
        response.force_close()
    return response


async def _take_place(pool: _Pool, until: float) -> None:
    """Wait for a free thread. Raise Refusal if none becomes free in time."""
    try:
        async with asyncio.timeout_at(until):
            await pool.free.acquire()
    except TimeoutError:
        raise Refusal(_BUSY, pool.sentence) from None


async def _in_time(head: asyncio.Future[Head], pool: _Pool, until: float | None) -> Head:
    """Wait for the head of the response. Raise Refusal if the deadline passes."""
    try:
        async with asyncio.timeout_at(until):
            return await asyncio.shield(head)
    except TimeoutError:
        raise Refusal(_BUSY, pool.sentence) from None


def _pool(
    name: str, threads: int, seconds: float, sentence: str, *, is_aside: bool = False
) -> _Pool:
    executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
    return _Pool(executor, asyncio.Semaphore(threads), seconds, sentence, is_aside)


def _settle(future: asyncio.Future[Head], head: Head) -> None:
    if not future.done():
        future.set_result(head)


def _finish(
    work: asyncio.Future[None], head: asyncio.Future[Head], pool: _Pool, body: IO[bytes]
) -> None:
    """Release the thread; if it failed before it sent a head, answer 500."""
    body.close()
    pool.free.release()
    error = None if work.cancelled() else work.exception()
    if error is not None:
        _LOG.warning("a response was aborted", why=f"{type(error).__name__}: {error}")
    _settle(head, Head(500, "Internal Server Error", (("Content-Length", "0"),)))


def _break_off(
    request: web.BaseRequest, response: web.StreamResponse, error: Exception
) -> web.StreamResponse:
    """Close the connection in the middle of a response, so that its reader does not take it for
    complete."""
    if request.transport is not None:
        request.transport.abort()
    _LOG.debug("a connection was ended", why=str(error) or type(error).__name__)
    return response
