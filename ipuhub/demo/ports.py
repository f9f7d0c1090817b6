"""io: picks the demo's ports: the wanted one, or the next free one."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

_TRIES = 200


@dataclass(frozen=True)
class ChosenPort:
    """A free port, and the one that was wanted."""

    purpose: str
    wanted: int
    number: int

    @property
    def notice(self) -> str:
        """A sentence when the wanted port was taken, else empty."""
        if self.number == self.wanted:
            return ""
        return f"port {self.wanted} is taken: {self.purpose} uses {self.number}"


def choose_port(purpose: str, wanted: int, taken: set[int]) -> ChosenPort:
    """Return the first free port from `wanted` on, and add it to `taken`."""
    for number in range(wanted, min(wanted + _TRIES, 65536)):
        if number not in taken and _is_free(number):
            taken.add(number)
            return ChosenPort(purpose, wanted, number)
    raise OSError(errno.EADDRINUSE, f"no free port for {purpose} from {wanted} on")


def _is_free(number: int) -> bool:
    """Say whether nobody listens on `number`, on any address."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, number))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            if family == socket.AF_INET:
                raise
    return True
