"""A connection to a server that can go silent or refuse, while all its sockets stay open."""

from __future__ import annotations

import contextlib
import socket
import threading


class SilentLine:
    """A way to PostgreSQL that passes everything on until it falls silent (`passes` is cleared), or
    ends new connections at once (`refuses` is set).

    `at`: the first connection on which a client sends this text falls silent with it, alone.
    """

    def __init__(self, host: str, port: int, at: bytes = b"") -> None:
        self._to, self._at = (host, port), at
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._unheard: list[socket.socket] = []
        self.passes = threading.Event()
        self.passes.set()
        self.refuses = threading.Event()
        self._left: list[threading.Event] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            if self.refuses.is_set():
                near.close()
                continue
            if not self.passes.is_set():
                self._unheard.append(near)
                continue
            far = socket.create_connection(self._to)
            alone = threading.Event()
            alone.set()
            waits = (alone, self.passes)
            for one, other in ((near, far), (far, near)):
                threading.Thread(
                    target=self._pass_on, args=(one, other, waits), daemon=True
                ).start()

    def _pass_on(
        self, one: socket.socket, other: socket.socket, waits: tuple[threading.Event, ...]
    ) -> None:
        try:
            while block := one.recv(65536):
                if self._at and self._at in block:
                    self._at = b""
                    waits[0].clear()
                    self._left.append(waits[0])
                for each in waits:
                    each.wait()
                other.sendall(block)
        except OSError:
            pass
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)  # `close` alone leaves it to who still reads from it
        other.close()

    def leave(self) -> None:
        """Fall silent on the connections so far; new connections pass."""
        self._left.append(self.passes)
        self.passes = threading.Event()
        self.passes.set()
        self._left[-1].clear()

    def close(self) -> None:
        for each in (*self._left, self.passes):
            each.set()
        self._server.close()
        for each in self._unheard:
            each.close()
