"""io: the IPUoF ports of a simulated machine: one for each IPU, open while programs may use it."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import structlog

from ipuhub.addresses import address_of, one_host
from partitions.vipu.serving import ListenError, remedy

if TYPE_CHECKING:
    from collections.abc import Collection

_BACKLOG: Final = 16
_PAUSE_SECONDS: Final = 1.0
# On, 0 s: close() ends a connection with a reset, and no TIME_WAIT keeps the port from us.
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)

log = structlog.get_logger(__name__)


class IpuofPorts:
    """Listens for some of a machine's devices; the ports of all of them stay the machine's.

    A connection is accepted and reset: no IPU is behind it.
    """

    def __init__(self, host: str, ports: list[int]) -> None:
        self._host = host
        self._bound: dict[int, socket.socket] = {}
        self._open: set[int] = set()
        self._pauses: dict[int, asyncio.TimerHandle] = {}
        self.ports: dict[int, int] = {}
        for index, port in enumerate(ports):
            self._bound[index] = _bind(host, port)
            self.ports[index] = self._bound[index].getsockname()[1]

    @classmethod
    def reserve(cls, host: str, first: int, count: int) -> Self:
        """Take ports for `count` devices, counted from `first`; 0: any. Raise ListenError."""
        try:
            return cls(host, [first + index if first else 0 for index in range(count)])
        except OSError as error:
            raise ListenError(
                f"cannot take {count} ports for IPUoF from {address_of(host, first)} on: "
                f"{error.strerror}; "
                + remedy(
                    os.strerror(error.errno or 0),
                    "choose another --ipuof-port or --host, or stop what uses them",
                )
            ) from error

    def follow(self, devices: Collection[int]) -> None:
        """Listen for these devices and no others."""
        for index in self._open - set(devices):
            self._close(index)
        for index in set(devices) - self._open:
            self._listen(index)

    def close(self) -> None:
        """Give all ports back."""
        self.follow(())
        for held in self._bound.values():
            held.close()
        self._bound.clear()

    def _listen(self, index: int) -> None:
        try:
            if index not in self._bound:
                self._bound[index] = _bind(self._host, self.ports[index])
            self._bound[index].listen(_BACKLOG)
        except OSError as error:  # clients of this port see that it does not answer
            port = self.ports[index]
            log.warning("IPUoF port not open", port=port, ipu=index, problem=error.strerror)
            return
        self._open.add(index)
        self._take_connections(index)

    def _take_connections(self, index: int) -> None:
        self._pauses.pop(index, None)
        asyncio.get_running_loop().add_reader(self._bound[index], self._accept, index)

    def _accept(self, index: int) -> None:
        held = self._bound[index]
        try:
            connection, _ = held.accept()
        except (BlockingIOError, ConnectionError):
            return  # it has gone meanwhile
        except OSError as error:
            # Out of files or memory: the connection stays in the queue, and the port readable.
            # Asked again at once, it would take all of a core.
            port = self.ports[index]
            log.warning("IPUoF port takes no connection", port=port, problem=error.strerror)
            loop = asyncio.get_running_loop()
            loop.remove_reader(held)
            self._pauses[index] = loop.call_later(_PAUSE_SECONDS, self._take_connections, index)
            return
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        connection.close()

    def _close(self, index: int) -> None:
        self._open.discard(index)
        if (pause := self._pauses.pop(index, None)) is not None:
            pause.cancel()
        held = self._bound.pop(index)
        asyncio.get_running_loop().remove_reader(held)
        held.close()
        with suppress(OSError):  # taken again when it is opened
            self._bound[index] = _bind(self._host, self.ports[index])


def _bind(host: str, port: int) -> socket.socket:
    """A socket that has the port for itself and refuses connections; raises OSError.

    Without SO_REUSEADDR: two sockets with it may have one port while neither listens.
    """
    host = one_host(host)
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        held.setblocking(False)
        if held.family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind((host, port))
    except OSError:
        held.close()
        raise
    return held
