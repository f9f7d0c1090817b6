"""io: the written form of hosts and ports, and the addresses that a server listens on."""

from __future__ import annotations

import socket
from functools import cache
from typing import Final

EVERYWHERE: Final = "::"
"""The host that stands for every address of this machine, of IPv6 and of IPv4."""
_EVERY_IPV4: Final = "0.0.0.0"


def address_of(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(address: str) -> str:
    """Return the host of "host:port", without the brackets of an IPv6 address."""
    return address.rpartition(":")[0].strip("[]")


@cache
def has_ipv6() -> bool:
    """Return whether this system has IPv6: some kernels are started without it."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind((EVERYWHERE, 0))
    except OSError:
        return False
    return True


def one_host(host: str) -> str:
    """Return the host on which a socket for both families listens for `host`."""
    return _EVERY_IPV4 if host == EVERYWHERE and not has_ipv6() else host


def listening_hosts(host: str) -> tuple[str, ...]:
    """Return the hosts on which to listen for `host`, one socket for each.

    A socket of IPv6 alone would see IPv4 clients as ::ffff:10.0.0.1, which is in no network that an
    administrator wrote down (TRUSTED_PROXIES, for example).
    """
    if host != EVERYWHERE:
        return (host,)
    return (EVERYWHERE, _EVERY_IPV4) if has_ipv6() else (_EVERY_IPV4,)
