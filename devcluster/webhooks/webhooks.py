"""io: asks the stored webhooks about a request: the mutating ones in turn, the others at once.

While a webhook is being asked other requests go on; whoever calls must look again at what is
stored before writing.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import structlog

from devcluster.storage.patch import PatchError, copy_json, json_patch
from devcluster.webhooks.review import (
    ReviewError,
    build_review,
    internal,
    parse_patch,
    read_verdict,
    refusal,
)
from devcluster.webhooks.webhookmatch import (
    MUTATING,
    VALIDATING,
    is_exempt,
    matches_rules,
    matches_selectors,
    read_hooks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from devcluster.storage.store import Change, Store
    from devcluster.webhooks.review import Verdict
    from devcluster.webhooks.webhookclient import WebhookClient
    from devcluster.webhooks.webhookmatch import Action, Hook

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
