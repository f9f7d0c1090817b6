"""io: sends a signed webhook, only to addresses that users may reach.

The address is resolved once, and the connection uses the address that was checked, so a name that
later resolves differently has no effect. Redirects are not followed.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ipuhub.certificates import trust_system

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv4Network

STEP_SECONDS: Final = 5.0
WHOLE_SECONDS: Final = 10.0
"""A receiver that answers byte by byte is cut off after this long."""
_LONGEST: Final = 2000
_OK: Final = range(200, 300)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
"""Outside it Python calls some addresses global that lead inside, such as fec0::/10."""


class Unsent(Exception):  # noqa: N818  # an answer, not an error
    """The reason that a message was not delivered; `is_final`: a retry would fail too."""

    def __init__(self, sentence: str, *, is_final: bool = False) -> None:
        super().__init__(sentence)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class Address:
    """A webhook's URL in parts."""

    scheme: str
    host: str
    port: int
    path: str


def parse_url(url: str) -> Address:
    """Return the parts of a URL. Raise Unsent with a sentence if it cannot be a webhook's."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    except ValueError as error:
        raise Unsent(f"This is not a URL: {error}.", is_final=True) from error
    if parts.scheme not in {"https", "http"} or not parts.hostname:
        raise Unsent("The URL must begin with https:// and name a host.", is_final=True)
    if parts.username is not None or len(url) > _LONGEST or not _is_plain(url):
        sentence = "The URL must be ASCII without blanks, user or password, and at most 2,000 long."
        raise Unsent(sentence, is_final=True)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(parts.scheme, parts.hostname, port, path)


def _is_plain(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url


def sign(secret: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a body that is sent at `timestamp` (Unix seconds)."""
    text = f"{timestamp}.".encode() + body
    return "sha256=" + hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def resolve(address: Address, networks: Sequence[IPv4Network | IPv6Network]) -> str:
    """Return the IP address to connect to. Raise Unsent unless all of the name's are allowed."""
    try:
        found = _look_up(address).result(STEP_SECONDS)
    except TimeoutError as error:
        sentence = f"The host {address.host} was not found within {STEP_SECONDS:g} s."
        raise Unsent(sentence) from error
    except (OSError, UnicodeError) as error:
        raise Unsent(f"The host {address.host} cannot be found.") from error
    addresses = [str(each[4][0]) for each in found]
    for text in addresses:
        _check(address, text, networks)
    return addresses[0]


def _look_up(address: Address) -> Future[list[Any]]:
    """Ask for the addresses of a name in a thread of its own: the C library's resolver takes no
    timeout, and a name server that is silent would hold the worker for as long as it likes."""
    answer: Future[list[Any]] = Future()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except Exception as error:  # noqa: BLE001  # raised where the answer is awaited
            answer.set_exception(error)
        else:
            answer.set_result(found)

    threading.Thread(target=ask, name="resolver", daemon=True).start()
    return answer


def check_literal(address: Address, networks: Sequence[IPv4Network | IPv6Network]) -> None:
    """Raise Unsent if the host is an IP address that is not allowed; names are resolved later."""
    try:
        ip_address(address.host)
    except ValueError:
        return
    _check(address, address.host, networks)


def _check(address: Address, text: str, networks: Sequence[IPv4Network | IPv6Network]) -> None:
    ip = ip_address(text.partition("%")[0])
    if any(ip in network for network in networks):
        return
    ip = _end_of(ip) if isinstance(ip, IPv6Address) else ip
    if any(ip in network for network in networks):
        return
    is_outside = ip.version == 4 or ip in _GLOBAL_UNICAST
    if not is_outside or not ip.is_global or ip.is_multicast:
        sentence = (
            f"{address.host} is an address inside ({ip}). An administrator can allow its network "
            "with IPUHUB_NOTIFY_NETWORKS."
        )
        raise Unsent(sentence, is_final=True)
    if address.scheme != "https":
        raise Unsent("The URL of a public address must begin with https://.", is_final=True)


def _end_of(ip: IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address to which a translator or tunnel takes the packets, or else `ip`."""
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or ip


def post(
    url: str,
    body: bytes,
    headers: dict[str, str],
    networks: Sequence[IPv4Network | IPv6Network],
) -> int:
    """Send the body and return the status, 200 to 299. Raise Unsent for everything else."""
    address = parse_url(url)
    ip = resolve(address, networks)
    try:
        with _connect(address, ip) as channel:
            cut = threading.Timer(WHOLE_SECONDS, cut_off, [channel])
            cut.start()
            try:
                if isinstance(channel, ssl.SSLSocket):
                    channel.do_handshake()
                return _exchange(address, channel, body, headers)
            finally:
                cut.cancel()
    except (OSError, HTTPException) as error:
        problem = str(error) or type(error).__name__
        raise Unsent(f"{address.host} does not answer: {problem}.") from error


def _connect(address: Address, ip: str) -> socket.socket:
    """Return a connection whose TLS handshake is still to do.

    TLS takes the descriptor away from the plain socket, so only the TLS socket can be cut off.
    """
    plain = socket.create_connection((ip, address.port), STEP_SECONDS)
    if address.scheme != "https":
        return plain
    try:
        return trust_system().wrap_socket(
            plain, server_hostname=address.host, do_handshake_on_connect=False
        )
    except Exception:
        plain.close()
        raise


def _exchange(
    address: Address, channel: socket.socket, body: bytes, headers: dict[str, str]
) -> int:
    connection = HTTPConnection(address.host, address.port)
    connection.sock = channel
    connection.request("POST", address.path, body, headers)
    status = connection.getresponse().status
    if status in _OK:
        return status
    if 300 <= status < 400:
        raise Unsent(f"{address.host} redirects ({status}), which is not followed.", is_final=True)
    raise Unsent(f"{address.host} answered {status}.", is_final=status == 410)


def cut_off(channel: socket.socket) -> None:
    """End a connection that another thread reads from or writes to."""
    try:
        # Of the plain socket: a thread may be reading from the TLS object that SSLSocket's drops.
        socket.socket.shutdown(channel, socket.SHUT_RDWR)
    except OSError:
        return  # it is over already
