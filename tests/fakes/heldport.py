"""A reserved loopback port for a server that is sometimes down."""

from __future__ import annotations

import socket


class HeldPort:
    """Keeps a free port from all others until `close`: it is bound, without listening.

    A server that sets SO_REUSEADDR, as servers do, may listen on it. Without that, any program
    could take the port while its server restarts: another run of the tests, or any connection that
    begins.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number = int(self._socket.getsockname()[1])

    def close(self) -> None:
        """Let others have it."""
        self._socket.close()
