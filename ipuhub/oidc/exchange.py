"""io: one HTTP request to the OIDC provider, within a deadline that its answer cannot extend.

The deadline covers the whole of it: connection, TLS, headers and body. A provider that sends a byte
now and then is cut off like a provider that sends nothing. Only the lookup of the provider's name
follows the operating system's resolver.
"""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import aiohttp

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterator, Mapping

PATIENCE_SECONDS: Final = 8.0
_MOST_BYTES: Final = 1024 * 1024
_until: ContextVar[float | None] = ContextVar("oidc_deadline", default=None)
_AWAY: Final = (
    "The provider of single sign-on does not answer. Try again in a moment, or sign in with a user "
    "name and password of IPUHub."
)
_UNTRUSTED: Final = (
    "IPUHub cannot verify the certificate of the single sign-on provider, so it sent nothing "
    "there. Tell an administrator (IPUHUB_OIDC_CA_PATH), or sign in with a user name and password "
    "of IPUHub."
)


class Unreachable(Exception):  # noqa: N818  # an answer, not an error
    """The provider did not answer, or not as a provider does; the text is for logs.

    `outcome` is for the metric, `sentence` for people.
    """

    def __init__(self, detail: str, outcome: str = "unreachable", sentence: str = _AWAY) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.sentence = sentence

    @classmethod
    def by_certificate(cls, detail: str) -> Unreachable:
        """Return the refusal of a certificate that cannot be verified."""
        return cls(detail, "certificate", _UNTRUSTED)


@dataclass(frozen=True, slots=True)
class Question:
    """A request to the provider; `fields` become the form that it sends."""

    method: str
    address: str
    headers: Mapping[str, str]
    fields: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def one_deadline() -> Iterator[None]:
    """Let all requests to the provider inside share one deadline."""
    token = _until.set(monotonic() + PATIENCE_SECONDS)
    try:
        yield
    finally:
        _until.reset(token)


def _seconds_left() -> float:
    """Return what is left until the deadline. Raise Unreachable if it has passed."""
    until = _until.get()
    remaining = PATIENCE_SECONDS if until is None else until - monotonic()
    if remaining <= 0:
        raise _too_slow()
    return remaining


def ask(question: Question, trust: ssl.SSLContext) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object of the answer; other bodies of errors are empty.

    Raise Unreachable if there is no such answer before the deadline.
    """
    try:
        status, kind, text = asyncio.run(_fetch(question, trust, _seconds_left()))
    except TimeoutError as error:
        raise _too_slow() from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise Unreachable.by_certificate(str(error)[:300]) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise Unreachable((str(error) or type(error).__name__)[:300]) from error
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict):
        return status, document
    if status == 200:
        raise Unreachable(f"{question.address} answers {kind!r}, not a JSON object")
    return status, {}


async def _fetch(
    question: Question, trust: ssl.SSLContext, seconds: float
) -> tuple[int, str, bytes]:
    body = urlencode(question.fields) if question.fields else None
    # Compressed answers are not asked for: a small answer can unpack to any size.
    headers = {**question.headers, "Accept-Encoding": "identity"}
    patience = aiohttp.ClientTimeout(total=seconds)
    async with (
        _connector() as connector,
        aiohttp.ClientSession(
            connector=connector, timeout=patience, auto_decompress=False
        ) as session,
        session.request(
            question.method,
            question.address,
            headers=headers,
            data=body,
            allow_redirects=False,
            ssl=trust,
        ) as answer,
    ):
        text = bytearray()
        async for part in answer.content.iter_any():
            text += part
            if len(text) > _MOST_BYTES:
                raise Unreachable("the answer is too large")
        return answer.status, answer.headers.get("Content-Type", "")[:100], bytes(text)


@asynccontextmanager
async def _connector() -> AsyncIterator[aiohttp.TCPConnector]:
    """Yield the connector; no connection stays open, not even to a peer that ignores the end of
    TLS."""
    opened: list[socket.socket] = []

    def open_socket(address: Any) -> socket.socket:
        opened.append(socket.socket(*address[:3]))
        return opened[-1]

    try:
        yield aiohttp.TCPConnector(socket_factory=open_socket)
    finally:
        for each in opened:
            with suppress(OSError):  # closed already
                each.shutdown(socket.SHUT_RDWR)


def _too_slow() -> Unreachable:
    return Unreachable(f"it did not answer completely within {PATIENCE_SECONDS:g} seconds")
