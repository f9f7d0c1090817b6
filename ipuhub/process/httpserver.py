"""io: how our processes serve HTTP.

Whoever can connect may send half a request, and as many as he likes. A head has a deadline, a body
has one, and all large bodies together have a bound, so that neither connections nor memory pile up.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.log import server_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp.typedefs import Handler, Middleware

_SMALL_BYTES: Final = 64 * 1024
IDLE_SECONDS: Final = 120.0  # Go's clients, the API server among them, close idle ones after 90


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how much a client may send.

    `silence_seconds`: until a head is whole, and between two requests of a connection.
    `body_seconds`: until a body is whole, and for how long a large one waits until there is room
    for it among the `bodies_bytes` of all; those of at most 64 KiB wait for nobody. Without
    `bodies_bytes` (0) the application limits bodies itself.
    `lingering_seconds`: how long the rest of a body is thrown away after its answer.
    """

    silence_seconds: float = IDLE_SECONDS
    body_seconds: float = 20.0
    bodies_bytes: int = 32 * 1024 * 1024
    lingering_seconds: float = 2.0


LIMITS: Final = Limits()


class _OneLine(logging.Filter):
    """Makes one line of what is no HTTP, or not the whole of it: it is the sender's fault, and who
    sends decides how much of the log is his."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        peer = record.args[0] if isinstance(record.args, tuple) and record.args else "a client"
        if isinstance(error, BadHttpMessage):
            record.msg, record.args = "A request that is no HTTP was refused, from %s", (peer,)
        elif isinstance(error, ConnectionError):
            record.msg, record.args = "A client left in the middle of its request: %s", (peer,)
        else:
            return True
        record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
        return True


_FILTER = _OneLine()


def is_departure(request: web.Request, error: Exception) -> bool:
    """Whether a request came to nothing only since its client has gone away, in the middle of what
    it sent or was sent: that is no failure of ours, and nobody hears an answer."""
    has_left = request.transport is None or request.transport.is_closing()
    return has_left and isinstance(error, ConnectionError)


def log_bad_requests_in_one_line() -> None:
    """Have every server of this process log what is no HTTP in one line, without a traceback."""
    server_logger.addFilter(_FILTER)  # once, however often it is added


def build_runner(
    app: web.Application,
    *,
    shutdown_seconds: float = 60.0,
    limits: Limits = LIMITS,
    **options: Any,
) -> web.AppRunner:
    """Return what serves `app` within `limits`: without a log line for each request, and bodies as
    they come. `options` are those of aiohttp's runner.

    Nobody sends compressed bodies to us. aiohttp would unpack them before their size is judged,
    and log a traceback for those that are broken.
    """
    log_bad_requests_in_one_line()
    app.middlewares.append(_bodies_within(limits))  # the innermost: all others hear of a refusal
    return web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=shutdown_seconds,
        keepalive_timeout=limits.silence_seconds,  # aiohttp begins it with the connection
        lingering_time=limits.lingering_seconds,
        **{"auto_decompress": False} | options,
    )


def _bodies_within(limits: Limits) -> Middleware:
    budget = _Budget(limits.bodies_bytes)

    @web.middleware
    async def bodies_within(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.body_exists or not limits.bodies_bytes:
            return await handler(request)
        is_whole = is_over = has_room = False
        try:
            async with asyncio.timeout(limits.body_seconds) as deadline:

                def note_end() -> None:
                    nonlocal is_whole
                    is_whole = True
                    if not is_over and not deadline.expired():
                        deadline.reschedule(None)

                request.content.on_eof(note_end)
                async with budget.share(_size_of(request, limits)):
                    has_room = True
                    return await handler(request)
        except TimeoutError:
            if is_whole or not deadline.expired():
                raise
            if not has_room:
                sentence = "There is no room for a body of this size now. Try again."
                raise web.HTTPServiceUnavailable(reason=sentence) from None
            sentence = f"The body did not come within {limits.body_seconds:g} s."
            raise web.HTTPRequestTimeout(reason=sentence) from None
        finally:
            is_over = True

    return bodies_within


def _size_of(request: web.Request, limits: Limits) -> int:
    """How much memory the body may take: what is longer than allowed is refused anyway."""
    most = request.client_max_size or limits.bodies_bytes // 8
    return min(most if request.content_length is None else request.content_length, most)


class _Budget:
    """Bytes that the bodies of all requests in progress share."""

    def __init__(self, size: int) -> None:
        self._most = self._left = size
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def share(self, size: int) -> AsyncIterator[None]:
        """Wait until so many are free, and hold them."""
        if size <= _SMALL_BYTES:
            yield
            return
        size = min(size, self._most)
        async with self._changed:
            await self._changed.wait_for(lambda: self._left >= size)
            self._left -= size
        try:
            yield
        finally:
            self._left += size
            async with self._changed:
                self._changed.notify_all()
