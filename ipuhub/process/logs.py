"""io: log lines of every process on standard error, as text or JSON."""

from __future__ import annotations

import io
import logging
import sys
import textwrap
from typing import TYPE_CHECKING, Any, TextIO

import structlog

if TYPE_CHECKING:
    from collections.abc import MutableMapping


def configure(level: str, log_format: str) -> None:
    """Send structlog and the standard library's loggers to standard error.

    `level` is debug, info, warning or error; `log_format` is text or json. An entry is one line; as
    text, tracebacks follow indented. No name can forge an entry or control a terminal.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: structlog.typing.Processor
    escaping: list[structlog.typing.Processor] = []  # JSON does so itself
    if log_format == "json":
        shared.append(structlog.processors.format_exc_info)
        renderer = structlog.processors.JSONRenderer()
    else:
        escaping = [_escaped]
        # Plain tracebacks: the pretty tracebacks print local variables, tokens among them.
        renderer = structlog.dev.ConsoleRenderer(
            colors=False, pad_event_to=0, exception_formatter=_indented_traceback
        )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *escaping,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # aiohttp logs every request on info; a line per poll would drown the rest.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    for name in _OF_CLIENTS:
        logging.getLogger(name).addFilter(_FAULT_OF_THE_CLIENT)


class _FaultOfTheClient(logging.Filter):
    """Logs a client's error in one line: it cannot be fixed here, and must not fill the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "status_code", 400) < 500 and record.exc_info:
            error = record.exc_info[1]
            record.msg = f"{record.getMessage()} ({type(error).__name__})"
            record.args, record.exc_info = (), None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


# gRPC: bytes that are no message; Django: answers below 500.
_OF_CLIENTS = ("grpc._common", "django.request")
_FAULT_OF_THE_CLIENT = _FaultOfTheClient()


def _escaped(
    _logger: object, _method: str, entry: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    for name, value in entry.items():
        if isinstance(value, str):
            entry[name] = _printable(value)
    return entry


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _indented_traceback(out: TextIO, error: structlog.typing.ExcInfo) -> None:
    buffer = io.StringIO()
    structlog.dev.plain_traceback(buffer, error)
    lines = (_printable(line) for line in buffer.getvalue().strip("\n").split("\n"))
    out.write("\n" + textwrap.indent("\n".join(lines), "    ", lambda _: True))
