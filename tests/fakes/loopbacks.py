"""The loopback addresses of this machine, and a system without IPv6."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.addresses import has_ipv6

if TYPE_CHECKING:
    from collections.abc import Iterator


def loopbacks() -> list[str]:
    """`127.0.0.1`, and `::1` where the machine has it: some have IPv6 without any address."""
    found = ["127.0.0.1"]
    with suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        found.append("::1")
    return found


class _Ipv4Socket(socket.socket):
    def __init__(self, family: int = -1, *arguments: Any, **options: Any) -> None:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        super().__init__(family, *arguments, **options)


@contextmanager
def reached_hosts(family: str) -> Iterator[list[str]]:
    """The loopback addresses of "both" families, or only of IPv4 on a system without IPv6."""
    if family == "both":
        yield loopbacks()
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "socket", _Ipv4Socket)
        has_ipv6.cache_clear()
        try:
            yield ["127.0.0.1"]
        finally:
            has_ipv6.cache_clear()
