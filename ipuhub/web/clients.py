"""glue: from which address a request comes; of proxies in front only our own are believed."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ipaddress import IPv4Address, IPv4Network, IPv6Network

    from django.http import HttpRequest

    Address = IPv4Address | IPv6Address
    Networks = Iterable[IPv4Network | IPv6Network]


def client_address(request: HttpRequest, proxies: Networks) -> Address | None:
    """Return the client's address; None where it cannot be told.

    `X-Forwarded-For` is heeded only as far as each hop before it lies in `proxies`: its rightmost
    address that does not is the client. Anybody can write the rest.
    """
    hops = request.headers.get("X-Forwarded-For", "").split(",")
    address = _parse(request.META.get("REMOTE_ADDR", ""))
    while address is not None and lies_in(address, proxies) and any(hops):
        address = _parse(hops.pop())
    return address


def lies_in(address: Address, networks: Networks) -> bool:
    """Whether one of the networks has the address."""
    return any(address in network for network in networks)


def _parse(text: str) -> Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
