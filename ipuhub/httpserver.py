"""io: how our processes serve HTTP."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.log import server_logger


class _WithoutTraceback(logging.Filter):
    """Makes one line of what is no HTTP: it is the sender's fault, and who sends decides how much
    of the log is his."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, BadHttpMessage):
            record.levelno, record.levelname = logging.WARNING, "WARNING"
            record.exc_info = None
            record.msg = "A request that is no HTTP was refused, from %s"
        return True


_FILTER = _WithoutTraceback()


def is_departure(request: web.Request, error: Exception) -> bool:
    """Whether a request came to nothing only since its client has gone away, in the middle of what
    it sent or was sent: that is no failure of ours, and nobody hears an answer."""
    has_left = request.transport is None or request.transport.is_closing()
    return has_left and isinstance(error, ConnectionError)


def log_bad_requests_in_one_line() -> None:
    """Have every server of this process log what is no HTTP in one line, without a traceback."""
    server_logger.addFilter(_FILTER)  # once, however often it is added


IDLE_SECONDS = 120.0  # Go's clients, the API server among them, close idle connections after 90


def build_runner(
    app: web.Application, *, shutdown_seconds: float = 60.0, idle_seconds: float = IDLE_SECONDS
) -> web.AppRunner:
    """Return what serves `app`: without a log line for each request, and bodies as they come.

    A connection on which no whole head of a request arrives within `idle_seconds` is closed.

    Nobody sends compressed bodies to us. aiohttp would unpack them before their size is judged,
    and log a traceback for those that are broken.
    """
    log_bad_requests_in_one_line()
    return web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        shutdown_timeout=shutdown_seconds,
        keepalive_timeout=idle_seconds,
    )
