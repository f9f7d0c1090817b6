"""io: calls webhooks over TLS, by URL or by the Endpoints of a service."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver
from aiohttp.resolver import ThreadedResolver

from devcluster.webhooks.review import ReviewError

if TYPE_CHECKING:
    from aiohttp.abc import ResolveResult

    from devcluster.storage.store import Store
    from devcluster.webhooks.webhookmatch import Hook

_MAX_ANSWER: Final = 3 * 1024 * 1024
_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "User-Agent": "kube-apiserver-admission",
}
_UNTRUSTED: Final = {18, 19, 20, 21}  # OpenSSL's ways to say that nobody known signed it


class WebhookClient:
    """One pool of connections to webhooks."""

    def __init__(self, store: Store) -> None:
        self._resolver = _ServiceResolver(store)
        self._session: aiohttp.ClientSession | None = None

    async def post(self, hook: Hook, review: dict[str, Any]) -> Any:
        """Send a review and return the decoded answer. Raises ReviewError."""
        url = f"{address_of(hook)}?timeout={hook.seconds}s"
        try:
            async with asyncio.timeout(hook.seconds):
                data = await self._exchange(hook, url, orjson.dumps(review))
        except (OSError, ValueError, aiohttp.ClientError) as error:
            raise ReviewError(f'failed to call webhook: Post "{url}": {_say(error)}') from error
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise ReviewError(
                f"failed to call webhook: couldn't get version/kind; json parse error: {error}"
            ) from error

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _exchange(self, hook: Hook, url: str, body: bytes) -> bytes:
        trust = _trust((hook.spec["clientConfig"]).get("caBundle") or "")
        async with self._open().post(
            url, data=body, headers=_HEADERS, ssl=trust, allow_redirects=False
        ) as response:
            data = await response.content.read(_MAX_ANSWER)
            while len(data) < _MAX_ANSWER and not response.content.at_eof():
                data += await response.content.read(_MAX_ANSWER - len(data))
            if response.status != 200:
                raise ReviewError(f"failed to call webhook: {_unsuccessful(response.status, data)}")
            return data

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(resolver=self._resolver, use_dns_cache=False)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session


def address_of(hook: Hook) -> str:
    """The URL that is called."""
    client = hook.spec["clientConfig"]
    if client.get("url"):
        return str(client["url"])
    service = client["service"]
    host, path = f"{service['name']}.{service['namespace']}.svc", service.get("path") or ""
    return f"https://{host}:{service.get('port', 443)}/{path.lstrip('/')}"


class _ServiceResolver(AbstractResolver):
    """Finds `NAME.NAMESPACE.svc` in the stored Endpoints, everything else by the system."""

    def __init__(self, store: Store) -> None:
        self._store, self._system = store, ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        name, _, rest = host.partition(".")
        namespace, _, zone = rest.partition(".")
        if zone != "svc":
            return await self._system.resolve(host, port, family)
        if self._store.get("services", namespace, name) is None:
            raise OSError(f'service "{name}" not found')
        found = self._store.get("endpoints", namespace, name)
        for subset in (found.body.get("subsets") or ()) if found is not None else ():
            addresses, ports = subset.get("addresses") or (), subset.get("ports") or ()
            if addresses and ports:
                return [_resolved(host, one["ip"], ports[0]["port"]) for one in addresses]
        raise OSError(f'no endpoints available for service "{name}"')

    async def close(self) -> None:
        await self._system.close()


def _resolved(host: str, address: str, port: int) -> ResolveResult:
    return {
        "hostname": host,
        "host": address,
        "port": port,
        "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
        "proto": 0,
        "flags": socket.AI_NUMERICHOST,
    }


@lru_cache(maxsize=32)
def _trust(bundle: str) -> ssl.SSLContext:
    """TLS that trusts just this bundle (base64 of PEM), or the system's roots without one."""
    if not bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    except (ssl.SSLError, ValueError) as error:
        raise ReviewError(
            "unable to load root certificates: unable to parse bytes as PEM block"
        ) from error


def _say(error: Exception) -> str:
    """The sentence that a server written in Go would print."""
    if isinstance(error, TimeoutError):
        return "context deadline exceeded"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _say_certificate(error)
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(
        error.os_error, ConnectionRefusedError
    ):
        return f"dial tcp {error.host}:{error.port}: connect: connection refused"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    cause = getattr(error, "os_error", error)
    return str(cause) or type(cause).__name__


def _say_certificate(error: aiohttp.ClientConnectorCertificateError) -> str:
    cause = error.certificate_error
    code = getattr(cause, "verify_code", 0)
    if code in _UNTRUSTED:
        return "x509: certificate signed by unknown authority"
    if code == 10:
        return "x509: certificate has expired or is not yet valid"
    return f"x509: {getattr(cause, 'verify_message', cause)}"


def _unsuccessful(status: int, data: bytes) -> str:
    if status == 404:
        return "the server could not find the requested resource"
    if status >= 500:
        text = data[:2048].decode(errors="replace").strip() or "unknown"
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'an error on the server ("{quoted}") has prevented the request from succeeding'
    return f"the server rejected our request for an unknown reason (HTTP {status})"
