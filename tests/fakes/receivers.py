"""Receivers of notifications on real sockets: an HTTP server and an SMTP server."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class HttpReceiver:
    """Posted requests: path, headers (lower case) and body; it answers `status`, or just `raw`."""

    url: str = ""
    status: int = 204
    location: str = ""
    raw: bytes = b""
    got: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)


@contextlib.contextmanager
def http_receiver() -> Iterator[HttpReceiver]:
    """Serve on a port of 127.0.0.1."""
    found = HttpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.got.append((self.path, headers, body))
            if found.raw:
                self.wfile.write(found.raw)
                self.close_connection = True
                return
            self.send_response(found.status)
            if found.location:
                self.send_header("Location", found.location)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}/hook?x=1"
    with _served(server):
        yield found


@dataclass
class SmtpReceiver:
    """The mails that came: sender, recipients and text; `refusal` is the answer to RCPT."""

    port: int = 0
    refusal: str = ""
    got: list[tuple[str, list[str], str]] = field(default_factory=list)


@contextlib.contextmanager
def smtp_receiver() -> Iterator[SmtpReceiver]:
    """Serve on a port of 127.0.0.1, without encryption."""
    found = SmtpReceiver()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self._say("220 here")
            sender, to = "", list[str]()
            while line := self.rfile.readline().decode(errors="replace").strip():
                verb = line[:4].upper()
                if verb == "MAIL":
                    sender, to = line.partition("<")[2].partition(">")[0], []
                elif verb == "RCPT" and found.refusal:
                    self._say(found.refusal)
                    continue
                elif verb == "RCPT":
                    to.append(line.partition("<")[2].partition(">")[0])
                elif verb == "DATA":
                    self._say("354 go on")
                    lines = iter(lambda: self.rfile.readline().decode().rstrip("\r\n"), ".")
                    found.got.append((sender, to, "\n".join(lines)))
                elif verb == "QUIT":
                    self._say("221 bye")
                    return
                self._say("250 ok")

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    found.port = server.server_address[1]
    with _served(server):
        yield found


@contextlib.contextmanager
def _served(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
