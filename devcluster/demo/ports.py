"""io: the demo's ports: the preferred port, or the next free port."""

from __future__ import annotations

import errno
import json
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_TRIES: Final = 4000
"""Beside a demo of 1,024 IPU-Machines there is still room for another demo."""


@dataclass(frozen=True)
class ChosenPort:
    """A free port, and the port that was wanted."""

    purpose: str
    wanted: int
    number: int

    @property
    def notice(self) -> str:
        """A sentence when the wanted port was taken, else empty."""
        if self.number == self.wanted:
            return ""
        return f"port {self.wanted} is taken: {self.purpose} uses {self.number}"


class PortClaims:
    """The ports that a demo means to use: no other demo's claims take these ports until they are
    closed or their process has ended.

    Seconds pass between the choice of a port and the moment its server listens, and again while the
    server restarts; a second demo would choose it in this time.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self, number: int) -> bool:
        """Claim `number` unless another demo has; return whether it is claimed now."""
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # No file: a name of the kernel's, as wide as the port numbers are (Linux).
            claim.bind(f"\0ipuhub-demo-port-{number}")
        except OSError as error:
            claim.close()
            return error.errno != errno.EADDRINUSE
        self._held.append(claim)
        return True

    def close(self) -> None:
        """Give all up."""
        for claim in self._held:
            claim.close()
        self._held.clear()


def choose_port(
    purpose: str,
    wanted: int,
    taken: set[int],
    claim: Callable[[int], bool] = bool,
    count: int = 1,
) -> ChosenPort:
    """Return the first free port from `wanted` on of which `claim` is true; add it to `taken`.

    With `count`, the first of so many in a row.
    """
    found = 0
    for number in range(wanted, min(wanted + _TRIES + count - 1, 65536)):
        is_ours = number not in taken and _is_free(number) and claim(number)
        found = found + 1 if is_ours else 0
        if found == count:
            first = number - count + 1
            taken.update(range(first, number + 1))
            return ChosenPort(purpose, wanted, first)
    raise OSError(errno.EADDRINUSE, f"no free port for {purpose} from {wanted} on")


def read_ports(path: Path) -> dict[str, int]:
    """Return the ports of a demo's last start by purpose; none where the file does not say."""
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {purpose: number for purpose, number in pairs if type(number) is int}


def _is_free(number: int) -> bool:
    """Return whether no process listens on `number`, on any address."""
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
