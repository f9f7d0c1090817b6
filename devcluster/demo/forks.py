"""io: the demo's end of the fork server (devcluster.demo.forkserver)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Final

from devcluster.demo.forkserver import BEGIN, GIVE_UP, MOST_BYTES
from devcluster.demo.kinship import adopting
from devcluster.demo.supervisor import Process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ROOM: Final = "." * 4096
"""Arguments and environment of a fork are written over those of the server."""
_ANSWER_SECONDS: Final = 60.0  # its imports take a second, or many on a busy machine


class ForkedChild:
    """A forked child process, with the interface of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._descriptor = os.pidfd_open(pid)
        self._loop.add_reader(self._descriptor, self._collect)

    async def wait(self) -> int:
        """Wait for its end; return its exit code, or the negative number of the signal."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal. Raise ProcessLookupError if it has ended."""
        if self.returncode is not None:
            raise ProcessLookupError(self.pid)
        signal.pidfd_send_signal(self._descriptor, number)

    def _collect(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._ended.set_result(self.returncode)


class ForkServer:
    """The demo's connection to its fork server."""

    def __init__(self) -> None:
        self._connection: socket.socket | None = None
        self._turn = asyncio.Lock()

    def process(self) -> Process:
        """Return the server's own process; it can be started again and again."""
        return Process(
            "fork-server",
            [sys.executable, "-m", "devcluster.demo.forkserver", _ROOM],
            {"FORK_SERVER_ROOM": _ROOM, "PYTHONUNBUFFERED": "1"},
            stdin=self._connect,
        )

    async def fork(
        self, command: Sequence[str], environment: Mapping[str, str], output: int
    ) -> ForkedChild:
        """Start `command`, the interpreter with what it runs. Raise OSError without a server."""
        request = json.dumps([list(command), dict(environment)]).encode()
        async with self._turn:
            connection = self._connection
            if connection is None or len(request) > MOST_BYTES:
                raise ConnectionError("it does not run")
            with adopting():
                try:
                    socket.send_fds(connection, [request], [output])
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        answer = await asyncio.get_running_loop().sock_recv(connection, 32)
                    if not answer:
                        raise ConnectionError("it has ended")
                except BaseException:
                    # Without a next word the server gives up the fork.
                    self._drop(connection)
                    raise
            return _watched(int(answer), connection)

    def close(self) -> None:
        """End the server, unless it has ended."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> int:
        """Return the server's end of a new connection."""
        self.close()
        self._connection, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.setblocking(False)
        return its.detach()

    def _drop(self, connection: socket.socket) -> None:
        """Close a dead connection, and keep a newer one."""
        connection.close()
        if self._connection is connection:
            self._connection = None


def _watched(pid: int, connection: socket.socket) -> ForkedChild:
    """Return the child, which begins now. If it cannot be watched, end it and raise OSError."""
    try:
        child = ForkedChild(pid)
    except OSError:
        with contextlib.suppress(OSError):
            connection.send(GIVE_UP)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    with contextlib.suppress(OSError):  # the server has ended, and the child with it
        connection.send(BEGIN)
    return child
