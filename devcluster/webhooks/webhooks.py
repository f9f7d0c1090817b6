"""io: asks the stored webhooks about a request: the mutating ones in turn, the others at once.

While a webhook is being asked other requests go on; whoever calls must look again at what is
stored before writing.

Calls webhooks over TLS, by URL or by the Endpoints of a service.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import uuid
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson
import structlog
from aiohttp.abc import AbstractResolver
from aiohttp.resolver import ThreadedResolver

from devcluster.storage.patch import PatchError, copy_json, json_patch
from devcluster.webhooks.review import (
    MUTATING,
    VALIDATING,
    ReviewError,
    build_review,
    internal,
    is_exempt,
    matches_rules,
    matches_selectors,
    parse_patch,
    read_hooks,
    read_verdict,
    refusal,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp.abc import ResolveResult

    from devcluster.storage.store import Change, Store
    from devcluster.webhooks.review import Action, Hook, Verdict

if TYPE_CHECKING:
    Body = dict[str, Any]
log = structlog.get_logger(__name__)


class Webhooks:
    """The webhooks of the stored configurations."""

    def __init__(self, store: Store, client: WebhookClient) -> None:
        self._store, self._client = store, client
        self._hooks: dict[str, tuple[Hook, ...]] = {}
        for bucket in (MUTATING, VALIDATING):
            self._read(bucket)
        store.listeners.append(self._on_change)

    def concern(self, action: Action) -> bool:
        """Whether the rules of any webhook name this request (its selectors may yet not)."""
        if is_exempt(action.kind):
            return False
        return any(matches_rules(hook, action) for hooks in self._hooks.values() for hook in hooks)

    async def mutate(
        self,
        action: Action,
        new: Body | None,
        old: Body | None,
        warnings: list[str],
        refit: Callable[[Body], Body] = lambda body: body,
    ) -> Body | None:
        """Return the object as the mutating webhooks want it; `refit` defaults it after each.

        A webhook that asks for it sees the object once more when a later one changed it.
        StatusError for a denial or a failure.
        """
        again: set[int] = set()
        asked: list[int] = []
        for number, hook in enumerate(self._hooks[MUTATING]):
            if not self._wants(hook, action, new, old):
                continue
            changed = await self._mutate_once(hook, action, new, old, warnings)
            if changed is not None:
                new = refit(changed)
                again |= set(asked)
            if hook.is_reinvocable:
                asked.append(number)
        for number in sorted(again):
            hook = self._hooks[MUTATING][number]
            if self._wants(hook, action, new, old):
                changed = await self._mutate_once(hook, action, new, old, warnings)
                new = new if changed is None else refit(changed)
        return new

    async def validate(
        self, action: Action, new: Body | None, old: Body | None, warnings: list[str]
    ) -> None:
        """Ask the validating webhooks. StatusError for a denial or a failure."""
        action = action.named(new)
        hooks = [h for h in self._hooks[VALIDATING] if self._wants(h, action, new, old)]
        if not hooks:
            return
        calls = (self._ask(hook, action, new, old) for hook in hooks)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        failures: list[Exception] = []
        for hook, verdict in zip(hooks, answers, strict=True):
            if isinstance(verdict, BaseException):
                if not isinstance(verdict, Exception):
                    raise verdict
                failures.append(verdict)
            elif verdict is not None:
                warnings += verdict.warnings
                if not verdict.allowed:
                    failures.append(refusal(hook.name, verdict.result))
        if failures:
            raise failures[0]

    async def _mutate_once(
        self, hook: Hook, action: Action, new: Body | None, old: Body | None, warnings: list[str]
    ) -> Body | None:
        """Return the object after the webhook's patch, None when it left it as it was."""
        verdict = await self._ask(hook, action, new, old)
        if verdict is None:
            return None
        warnings += verdict.warnings
        if not verdict.allowed:
            raise refusal(hook.name, verdict.result)
        patch = parse_patch(verdict.patch) if verdict.patch else []
        if not patch:
            return None
        if new is None:
            raise internal(
                f'admission webhook "{hook.name}" attempted to modify the object, which is not '
                "supported for this operation"
            )
        try:
            changed = json_patch(new, patch)
        except PatchError as error:
            raise internal(error.cause or error.message) from error
        return None if changed == new else changed

    async def _ask(
        self, hook: Hook, action: Action, new: Body | None, old: Body | None
    ) -> Verdict | None:
        """Return the verdict; None where the webhook failed and may be ignored."""
        uid = str(uuid.uuid4())
        review = build_review(uid, action, new, old)
        try:
            answer = await self._client.post(hook, review)
            try:
                return read_verdict(answer, uid, mutates=hook.mutates)
            except ReviewError as error:
                raise ReviewError(f"received invalid webhook response: {error}") from error
        except ReviewError as error:
            log.warning("webhook failed", webhook=hook.name, problem=str(error))
            if hook.is_ignorable:
                return None
            raise internal(f'failed calling webhook "{hook.name}": {error}') from error

    def _wants(self, hook: Hook, action: Action, new: Body | None, old: Body | None) -> bool:
        if is_exempt(action.kind) or not matches_rules(hook, action):
            return False
        return matches_selectors(hook, (new, old), self._namespace_labels(action, new, old))

    def _namespace_labels(
        self, action: Action, new: Body | None, old: Body | None
    ) -> Mapping[str, str] | None:
        if action.kind.plural == "namespaces":
            body = (new if not action.subresource else None) or old or {}
        elif not action.namespace:
            return None
        else:
            item = self._store.get("namespaces", "", action.namespace)
            body = item.body if item is not None else {}
        return dict((body.get("metadata") or {}).get("labels") or {})

    def _on_change(self, change: Change) -> None:
        if change.bucket in self._hooks:
            self._read(change.bucket)

    def _read(self, bucket: str) -> None:
        bodies = [copy_json(item.body) for item in self._store.items(bucket)]
        self._hooks[bucket] = read_hooks(bodies, mutates=bucket == MUTATING)


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
