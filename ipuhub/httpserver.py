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


def build_runner(app: web.Application, *, shutdown_seconds: float = 60.0) -> web.AppRunner:
    """Return what serves `app`: without a log line for each request, and bodies as they come.

    Nobody sends compressed bodies to us. aiohttp would unpack them before their size is judged,
    and log a traceback for those that are broken.
    """
    server_logger.addFilter(_FILTER)  # once, however often it is added
    return web.AppRunner(
        app, access_log=None, auto_decompress=False, shutdown_timeout=shutdown_seconds
    )
