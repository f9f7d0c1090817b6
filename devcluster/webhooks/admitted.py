"""io: admission of clients' writes: webhooks and RBAC escalation checks, between handlers and
store.

No lock is held while a webhook is called. If the object changes meanwhile, the whole write starts
again from the new version, as on a real server.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from devcluster.requests import review_options
from devcluster.schemas.schema import copy_json
from devcluster.status import StatusError, conflict
from devcluster.storage.objects import WriteOptions
from devcluster.webhooks.review import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from devcluster.requests import ApiRequest
    from devcluster.security.authorization import Authorizer
    from devcluster.storage.metadata import DeleteOptions
    from devcluster.storage.objects import Objects, Target
    from devcluster.storage.store import Item
    from devcluster.webhooks.webhooks import Webhooks

Body = dict[str, Any]
_ATTEMPTS: Final = 50
_OPTIONS: Final = {
    "CREATE": "CreateOptions",
    "UPDATE": "UpdateOptions",
    "DELETE": "DeleteOptions",
}


@dataclass(frozen=True, slots=True)
class WebhookView:
    """The view that webhooks have of a stored object, and the way of their changes into the stored
    object."""

    show: Callable[[Body], Body]
    apply: Callable[[Body, Body], Body]


_AS_STORED: Final = WebhookView(lambda body: body, lambda _stored, face_body: face_body)


class AdmittedWrites:
    """The write path of clients. The cluster's own controllers write to `objects` directly."""

    def __init__(self, objects: Objects, webhooks: Webhooks, authorizer: Authorizer) -> None:
        self.objects, self._webhooks, self._authorizer = objects, webhooks, authorizer

    async def create(self, request: ApiRequest, body: Body, options: WriteOptions) -> Item:
        """Store a new object."""
        kind, namespace = request.kind, request.path.namespace
        name = body["metadata"].get("name") or ""
        action = _action(request, "CREATE", name, options)
        is_asked = self._webhooks.concern(action)
        with _warning(options):
            if is_asked:
                self.objects.decode(kind, body, options)
                if kind.namespaced:
                    self.objects.check_namespace(kind, namespace, name)
                    body["metadata"].setdefault("namespace", namespace)
                body = await self._mutate(action, _AS_STORED, body, None, options)
            self._check_grant(request, body, options)
            body = self.objects.prepare_new(kind, namespace, body, options)
            if is_asked:
                await self._webhooks.validate(action, body, None, options.warnings)
            return self.objects.store_new(kind, body, options)

    async def update(
        self,
        request: ApiRequest,
        target: Target,
        change: Callable[[Body], Body],
        options: WriteOptions,
        face: WebhookView = _AS_STORED,
    ) -> Item:
        """Replace an object by what `change` makes of it."""
        kind, action = target.kind, _action(request, "UPDATE", target.name, options)
        agent = request.http.headers.get("User-Agent", "unknown").partition("/")[0]
        options.manager = request.query.get("fieldManager") or agent
        is_asked = self._webhooks.concern(action)
        with _warning(options):
            for _ in range(_ATTEMPTS):
                options.warnings.clear()
                old = self.objects.get(kind, target.namespace, target.name)
                new, shown_old = change(old.copy()), face.show(old.body) if is_asked else {}
                if is_asked:
                    self.objects.decode(kind, new, options, old.body)
                    new = await self._mutate(action, face, new, shown_old, options)
                self._check_grant(request, new, options, old.body)
                new = self.objects.prepare_change(target, old, new, options)
                if is_asked:
                    face_body = face.show(new)
                    await self._webhooks.validate(action, face_body, shown_old, options.warnings)
                if self.objects.get(kind, *old.key).revision == old.revision:
                    return self.objects.store_change(target, old, new, options)
        raise conflict(kind, target.name)

    async def delete(
        self, request: ApiRequest, key: tuple[str, str], options: DeleteOptions
    ) -> tuple[Item, bool]:
        """Delete, or mark as being deleted; return the last state and whether it is gone."""
        kind, write_options = request.kind, WriteOptions(options.dry_run)
        action = _action(request, "DELETE", key[1], write_options)
        is_asked = self._webhooks.concern(action)
        with _warning(write_options):
            for _ in range(_ATTEMPTS):
                old = self.objects.get(kind, *key)
                if is_asked:
                    await self._webhooks.mutate(action, None, old.body, write_options.warnings)
                    await self._webhooks.validate(action, None, old.body, write_options.warnings)
                if self.objects.get(kind, *key).revision == old.revision:
                    return self.objects.delete(kind, *key, options)
        raise conflict(kind, key[1])

    def _check_grant(
        self, request: ApiRequest, new: Body, options: WriteOptions, old: Body | None = None
    ) -> None:
        kind = request.kind
        if self._authorizer.grants(kind):
            self.objects.decode(kind, new, options, old)
            if kind.namespaced:
                new["metadata"].setdefault("namespace", request.path.namespace)
            self._authorizer.check_grant(request.user, kind, new, old)

    async def _mutate(
        self, action: Action, face: WebhookView, body: Body, old: Body | None, options: WriteOptions
    ) -> Body:
        """Return `body` after the mutating webhooks, defaulted and pruned after each of them."""
        quiet = WriteOptions(options.dry_run)
        latest = body

        def refit(face_body: Body) -> Body:
            nonlocal latest
            latest = face.apply(latest, copy_json(face_body))
            self.objects.decode(action.kind, latest, quiet)
            return face.show(latest)

        await self._webhooks.mutate(action, face.show(body), old, options.warnings, refit)
        return latest


@contextmanager
def _warning(options: WriteOptions) -> Iterator[None]:
    """Hand the client's warnings on to a refusal."""
    try:
        yield
    except StatusError as error:
        error.warnings = list(options.warnings)
        raise


def _action(request: ApiRequest, operation: str, name: str, options: WriteOptions) -> Action:
    path = request.path
    return Action(
        operation,
        request.kind,
        path.namespace if request.kind.namespaced else "",
        name,
        request.user,
        review_options(_OPTIONS[operation], request, dry_run=options.dry_run),
        path.subresource,
        options.dry_run,
    )
