"""Allowed addresses of webhooks: only external ones, whatever their names resolve to."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from dashboard.notify import webhook
from dashboard.notify.webhook import Address, Unsent, parse_url, resolve
from devcluster.security.certificates import Authority
from ipuhub.certificates import trust_system
from ipuhub.oidc.trust import Trust

if TYPE_CHECKING:
    import ssl
    from pathlib import Path


pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "ip",
    [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "::1",
        "fd00::1",
        "fec0::1",
        "::10.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:0:10.0.0.1",
        "64:ff9b::a00:1",
        "64:ff9b:1::a00:1",
        "2002:a00:1::",
        "2001:0:a00:1::",
    ],
)
def test_a_name_that_leads_inside_is_refused_when_it_is_sent(
    monkeypatch: pytest.MonkeyPatch, ip: str
) -> None:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    public = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("93.184.216.34", 443))
    inside = (family, socket.SOCK_STREAM, 6, "", (ip, 443))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [public, inside])
    address = Address("https", "rebound.example", 443, "/")
    with pytest.raises(Unsent, match="is an address inside"):
        resolve(address, [])
    assert resolve(address, [ip_network("0.0.0.0/0"), ip_network("::/0")]) == "93.184.216.34"


def test_a_name_server_that_is_silent_is_waited_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(webhook, "STEP_SECONDS", 0.05)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.wait(20) and [])
    with pytest.raises(Unsent, match=r"silent\.example was not found within 0\.05 s"):
        resolve(Address("https", "silent.example", 443, "/"), [])
    answers.set()


@pytest.mark.parametrize("error", [OSError("no such name"), UnicodeError("label too long")])
def test_a_name_that_is_not_found_is_said(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(Unsent, match="cannot be found"):
        resolve(Address("https", "nowhere.example", 443, "/"), [])


def test_the_authorities_of_the_system_are_read_when_their_file_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    file = tmp_path / "ca.pem"
    file.write_bytes(first.ca_file.read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    before = trust_system()
    assert trust_system() is before
    assert Trust("").context() is before
    file.write_bytes(first.ca_file.read_bytes() + second.ca_file.read_bytes())
    after = trust_system()
    assert after is not before
    assert len(after.get_ca_certs()) == len(before.get_ca_certs()) + 1


@pytest.mark.parametrize("ip", ["2606:4700::1", "64:ff9b::8.8.8.8", "2002:808:808::1", "8.8.8.8"])
def test_a_public_address_is_taken_also_behind_a_translator(ip: str) -> None:
    address = Address("https", ip, 443, "/")
    webhook.check_literal(address, [])


def test_a_translator_inside_is_allowed_by_either_network() -> None:
    address = Address("https", "64:ff9b::a00:1", 443, "/")
    for network in ("10.0.0.0/8", "64:ff9b::/96"):
        webhook.check_literal(address, [ip_network(network)])


def dribble(server: socket.socket, context: ssl.SSLContext | None, stop: threading.Event) -> None:
    """Answer one connection byte by byte, without an end."""
    plain, _ = server.accept()
    with context.wrap_socket(plain, server_side=True) if context else plain as taken:
        while not stop.wait(0.05):
            try:
                taken.sendall(b"H")
            except OSError:
                return


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_receiver_that_dribbles_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str
) -> None:
    monkeypatch.setattr(webhook, "WHOLE_SECONDS", 0.3)
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    context = authority.server_context(("127.0.0.1",)) if scheme == "https" else None
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=dribble, args=(server, context, stop))
        thread.start()
        late = threading.Timer(10, stop.set)  # the receiver ends, so that the test does
        late.start()
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/"
        with pytest.raises(Unsent, match="does not answer"):
            webhook.post(url, b"{}", {}, [ip_network("127.0.0.0/8")])
        assert not stop.is_set()
        late.cancel()
        stop.set()
        thread.join(10)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_certificate_is_verified(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_trusted: bool
) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    monkeypatch.setenv("SSL_CERT_FILE", str((ours if is_trusted else other).ca_file))

    def answer() -> None:
        plain, _ = server.accept()
        with suppress(OSError), context.wrap_socket(plain, server_side=True) as taken:
            # What is unread would reset the connection.
            while (got := taken.recv(4096)) and not got.endswith(b"{}"):
                continue
            taken.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    context = ours.server_context(("127.0.0.1",))
    trust_system()  # read once, and not for each delivery
    monkeypatch.setattr("ssl.create_default_context", pytest.fail)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}/"
        if is_trusted:
            assert webhook.post(url, b"{}", {}, [ip_network("127.0.0.0/8")]) == 204
        else:
            with pytest.raises(Unsent, match="certificate verify failed"):
                webhook.post(url, b"{}", {}, [ip_network("127.0.0.0/8")])
        thread.join(10)


def test_parts_of_a_url() -> None:
    assert parse_url("https://x.example") == Address("https", "x.example", 443, "/")
    assert parse_url("http://x.example:8080/a?b=c#d") == Address(
        "http", "x.example", 8080, "/a?b=c"
    )
