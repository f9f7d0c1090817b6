"""The client address of a request, whatever its headers contain."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from django.test import RequestFactory

from ipuhub.web.requests import client_address

CONSOLE, PROXY, OTHER = "10.1.2.3", "192.0.2.9", "203.0.113.5"


@pytest.mark.parametrize(
    ("address", "forwarded", "proxies", "want"),
    [
        (CONSOLE, "", [], CONSOLE),
        (f"::ffff:{CONSOLE}", "", [], CONSOLE),
        ("fd00::7", "", [], "fd00::7"),
        ("", "", [], "None"),
        ("not an address", "", [], "None"),
        # Anybody can send the header: it is believed from our own proxies only.
        (OTHER, CONSOLE, [], OTHER),
        (OTHER, CONSOLE, ["192.0.2.0/24"], OTHER),
        (PROXY, CONSOLE, ["192.0.2.0/24"], CONSOLE),
        (PROXY, f"{CONSOLE}, {OTHER}", ["192.0.2.0/24"], OTHER),
        (PROXY, f"{OTHER}, {CONSOLE}", ["192.0.2.0/24"], CONSOLE),
        (PROXY, f"{CONSOLE},192.0.2.7", ["192.0.2.0/24"], CONSOLE),
        (PROXY, "unknown", ["192.0.2.0/24"], "None"),
        (PROXY, f"{CONSOLE},", ["192.0.2.0/24"], "None"),
        (PROXY, "", ["192.0.2.0/24"], PROXY),
        # Through a proxy of the console's own network a stranger stays a stranger.
        (CONSOLE, OTHER, ["10.1.0.0/16"], OTHER),
    ],
)
def test_the_last_hop_that_is_no_proxy_of_ours_is_the_client(
    address: str, forwarded: str, proxies: list[str], want: str
) -> None:
    headers = {"X-Forwarded-For": forwarded} if forwarded else {}
    request = RequestFactory(REMOTE_ADDR=address, headers=headers).get("/")
    assert str(client_address(request, [ip_network(text) for text in proxies])) == want
