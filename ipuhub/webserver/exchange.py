"""io: conversion of a request to WSGI, and the application's response."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from ipuhub.webserver.responsebuffer import ReaderGone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from wsgiref.types import WSGIApplication

    from aiohttp.web import BaseRequest

    from ipuhub.webserver.responsebuffer import ResponseBuffer

# Of one connection, not of the request; the body is whole, so its coding is gone.
_NOT_PASSED_ON: Final = {"CONTENT_LENGTH", "CONTENT_TYPE", "TRANSFER_ENCODING", "CONNECTION"}


@dataclass(frozen=True, slots=True)
class Head:
    """Status line and headers of an answer."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]


def environ_of(request: BaseRequest, body: IO[bytes], size: int) -> dict[str, Any]:
    """Return the WSGI environment of a complete request."""
    path, _, query = request.raw_path.partition("?")
    if not path.startswith("/"):  # a proxy's form of the request line, with host
        path = request.rel_url.raw_path
    transport = request.transport
    local = transport.get_extra_info("sockname") if transport else None
    environ = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path.partition("#")[0]).decode("latin-1"),
        "QUERY_STRING": query.partition("#")[0],
        "REMOTE_ADDR": request.remote or "",
        "SERVER_NAME": str(local[0]) if local else "localhost",
        "SERVER_PORT": str(local[1]) if local else "80",
        "SERVER_PROTOCOL": f"HTTP/{request.version.major}.{request.version.minor}",
        "CONTENT_LENGTH": str(size),
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": body,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        # With an underscore it would be taken for a header that only a proxy in front may set.
        key = "" if "_" in name else name.upper().replace("-", "_")
        if key and key not in _NOT_PASSED_ON:
            known = environ.get(f"HTTP_{key}")
            separator = "; " if key == "COOKIE" else ","
            text = value.encode("utf-8", "surrogateescape").decode("latin-1")
            environ[f"HTTP_{key}"] = text if known is None else f"{known}{separator}{text}"
    return environ


def answer(
    application: WSGIApplication,
    environ: dict[str, Any],
    send_head: Callable[[Head], None],
    buffer: ResponseBuffer,
) -> None:
    """Run the application in this thread; send the head first, then the blocks.

    An error in the middle aborts the response. The application's `close` is always called.
    """
    heads: list[Head] = []

    def start_response(status: str, headers: Iterable[tuple[str, str]], _exc: object = None) -> Any:
        code, _, reason = status.partition(" ")
        heads[:] = [Head(int(code), reason, tuple(headers))]

    try:
        blocks = application(environ, start_response)
        try:
            is_said = False
            for block in () if environ["REQUEST_METHOD"] == "HEAD" else blocks:
                if not is_said:
                    send_head(heads[0])
                    is_said = True
                if block:
                    buffer.put(block)
            if not is_said:
                send_head(heads[0])
        finally:
            if (close := getattr(blocks, "close", None)) is not None:
                close()
    except ReaderGone:
        buffer.end()
    except BaseException as error:
        buffer.end(error)
        raise
    else:
        buffer.end()
