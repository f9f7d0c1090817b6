"""io: ends connections whose readers take nothing, for which the web server has no option."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_DESCRIPTORS: Final = Path("/proc/self/fd")
_TIMEOUT: Final = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux


def end_unread_after(seconds: int) -> int:
    """Let the kernel end each connection to a port that this process listens on once its reader
    took nothing for so long; those to come, too. Return to how many sockets that was said.

    The server makes its sockets out of Python's reach: they are found among the open files.
    """
    found = list(_sockets())
    try:
        ports = {one.getsockname()[1] for one in found if _listens(one)}
        served = [one for one in found if one.getsockname()[1] in ports]
        for one in served:
            with suppress(OSError):  # closed meanwhile
                one.setsockopt(socket.IPPROTO_TCP, _TIMEOUT or 0, seconds * 1000)
        return len(served)
    finally:
        for one in found:
            one.close()


def _sockets() -> Iterator[socket.socket]:
    """Yield a copy of each TCP socket that is open."""
    if _TIMEOUT is None or not _DESCRIPTORS.is_dir():
        return
    for each in _DESCRIPTORS.iterdir():
        try:
            copy = os.dup(int(each.name))
        except OSError:  # closed meanwhile
            continue
        try:
            one = socket.socket(fileno=copy)
        except OSError:  # no socket
            os.close(copy)
            continue
        if one.family in {socket.AF_INET, socket.AF_INET6} and one.type == socket.SOCK_STREAM:
            yield one
        else:
            one.close()


def _listens(one: socket.socket) -> bool:
    return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
