"""io: calls the stored webhooks for a request: mutating webhooks in turn, the others concurrently.

Other requests are served while a webhook is called, so callers must read the stored object again
before they write.

Webhooks are called over TLS, by their URL.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import uuid
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson
import structlog

from devcluster.schemas.schema import copy_json
from devcluster.status import StatusError, forbidden
from devcluster.storage.patch import json_patch
from devcluster.webhooks.conditions import ConditionError, are_met, build_variables
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
        """Return whether the rules of any webhook name this request (its selectors may yet not)."""
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

        StatusError for a denial or a failure.
        """
        for hook in self._hooks[MUTATING]:
            if not self._wants(hook, action, new, old):
                continue
            changed = await self._mutate_once(hook, action, new, old, warnings)
            if changed is not None:
                new = refit(changed)
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
        """Return the object after the webhook's patch, None if the webhook did not change it."""
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
        except StatusError as error:
            raise internal(str(error.__cause__ or error)) from error
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
        """Return whether to call the webhook. StatusError if its conditions cannot be evaluated."""
        if is_exempt(action.kind) or not matches_rules(hook, action):
            return False
        if not matches_selectors(hook, (new, old), self._namespace_labels(action, new, old)):
            return False
        return not hook.conditions or _meets_conditions(hook, action.named(new), new, old)

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


def _meets_conditions(hook: Hook, action: Action, new: Body | None, old: Body | None) -> bool:
    variables = build_variables(build_review("", action, new, old), new, old)
    try:
        return are_met(hook.conditions, variables)
    except ConditionError as error:
        if hook.is_ignorable:
            return False
        raise forbidden(action.kind, action.name, str(error)) from error


_MAX_ANSWER: Final = 3 * 1024 * 1024
_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept": "application/json",
    "User-Agent": "kube-apiserver-admission",
}


class WebhookClient:
    """One pool of connections to webhooks."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def post(self, hook: Hook, review: dict[str, Any]) -> Any:
        """Send a review and return the decoded answer. Raises ReviewError."""
        service = hook.spec["clientConfig"].get("service")
        if service:  # no Service has endpoints here
            raise ReviewError(_unserved(service, hook.seconds))
        url = f"{hook.spec['clientConfig']['url']}?timeout={hook.seconds}s"
        try:
            async with asyncio.timeout(hook.seconds):
                data = await self._exchange(hook, url, orjson.dumps(review))
        except (OSError, ValueError, aiohttp.ClientError) as error:
            reason = str(getattr(error, "os_error", error)) or "no answer in time"
            raise ReviewError(f'failed to call webhook: Post "{url}": {reason}') from error
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
                text = data[:2048].decode(errors="replace").strip()
                raise ReviewError(f"failed to call webhook: HTTP {response.status}: {text}")
            return data

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        return self._session


def _unserved(service: Mapping[str, Any], seconds: int) -> str:
    name, host = service["name"], f"{service['name']}.{service['namespace']}.svc"
    url = f"https://{host}:{service.get('port', 443)}{service.get('path', '')}?timeout={seconds}s"
    return f'failed to call webhook: Post "{url}": no endpoints available for service "{name}"'


@lru_cache(maxsize=32)
def _trust(bundle: str) -> ssl.SSLContext:
    """TLS that trusts just this bundle (base64 of PEM), or the system's roots without a bundle."""
    if not bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    except (ssl.SSLError, ValueError) as error:
        raise ReviewError(
            "unable to load root certificates: unable to parse bytes as PEM block"
        ) from error
