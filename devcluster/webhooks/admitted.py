"""io: writes of clients: past the webhooks into the store, on what is stored by then.

A webhook is asked without holding anything. When the object changed meanwhile the whole write
starts again from what is there now, as on a real server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from devcluster.requests import review_options
from devcluster.status import StatusError, conflict
from devcluster.storage.admission import to_stored, to_version
from devcluster.storage.objects import WriteOptions
from devcluster.storage.patch import copy_json
from devcluster.webhooks.review import Action

if TYPE_CHECKING:
    from collections.abc import Callable

    from devcluster.requests import ApiRequest
    from devcluster.schemas.kinds import Kind
    from devcluster.security.authorization import Authorizer
    from devcluster.storage.metadata import DeleteOptions
    from devcluster.storage.objects import Objects, Target
    from devcluster.storage.store import Item
    from devcluster.webhooks.webhooks import Webhooks

Body = dict[str, Any]
_ATTEMPTS: Final = 50


@dataclass(frozen=True, slots=True)
class Face:
    """How webhooks see a stored object, and how what they made of it gets into the stored one."""

    show: Callable[[Body], Body]
    apply: Callable[[Body, Body], Body]


def face_of(kind: Kind) -> Face:
    """An object as its own kind shows it."""
    return Face(lambda body: to_version(kind, body), lambda _stored, shown: to_stored(kind, shown))


class Admitted:
    """The write path of clients. The cluster's own controllers write to `objects` directly."""

    def __init__(self, objects: Objects, webhooks: Webhooks, authorizer: Authorizer) -> None:
        self.objects, self._webhooks, self._authorizer = objects, webhooks, authorizer

    async def create(self, request: ApiRequest, body: Body, options: WriteOptions) -> Item:
        """Store a new object (in its stored form)."""
        kind, namespace = request.kind, request.path.namespace
        name = body["metadata"].get("name") or ""
        action = _action(request, "CREATE", name, options)
        if not self._webhooks.concern(action):
            self._check_grant(request, body, options)
            return self.objects.create(kind, namespace, body, options)
        with _Telling(options):
            face = face_of(kind)
            self.objects.decode(kind, body, options)
            if kind.namespaced:
                self.objects.check_namespace(kind, namespace, name)
                body["metadata"].setdefault("namespace", namespace)
            body = await self._mutate(action, kind, face, body, None, options)
            self._check_grant(request, body, options)
            body = self.objects.prepare_new(kind, namespace, body, options)
            await self._webhooks.validate(action, face.show(body), None, options.warnings)
            return self.objects.store_new(kind, body, options)

    async def update(
        self,
        request: ApiRequest,
        target: Target,
        change: Callable[[Body], Body],
        options: WriteOptions,
        face: Face | None = None,
    ) -> Item:
        """Replace an object by what `change` makes of it."""
        action = _action(request, "UPDATE", target.name, options)
        if not self._webhooks.concern(action):
            return self.objects.update(target, self._granting(request, change, options), options)
        face, kind = face or face_of(target.kind), target.kind
        with _Telling(options):
            for _ in range(_ATTEMPTS):
                options.warnings.clear()
                old = self.objects.get(kind, target.namespace, target.name)
                new, shown_old = change(old.copy()), face.show(old.body)
                self.objects.decode(kind, new, options, old.body)
                new = await self._mutate(action, kind, face, new, shown_old, options)
                self._check_grant(request, new, options, old.body)
                new = self.objects.prepare_change(target, old, new, options)
                shown = face.show(new)
                await self._webhooks.validate(action, shown, shown_old, options.warnings)
                if self.objects.get(kind, *old.key).revision == old.revision:
                    return self.objects.store_change(target, old, new, options)
        raise conflict(kind, target.name)

    async def delete(
        self, request: ApiRequest, key: tuple[str, str], options: DeleteOptions
    ) -> tuple[Item, bool]:
        """Delete, or mark as being deleted; return the last state and whether it is gone."""
        kind, telling = request.kind, WriteOptions(options.dry_run)
        action = _action(request, "DELETE", key[1], telling)
        if not self._webhooks.concern(action):
            return self.objects.delete(kind, *key, options)
        with _Telling(telling):
            for _ in range(_ATTEMPTS):
                old = self.objects.get(kind, *key)
                shown = to_version(kind, old.body)
                await self._webhooks.mutate(action, None, shown, telling.warnings)
                await self._webhooks.validate(action, None, shown, telling.warnings)
                if self.objects.get(kind, *key).revision == old.revision:
                    return self.objects.delete(kind, *key, options)
        raise conflict(kind, key[1])

    async def admit(self, request: ApiRequest, body: Body, options: WriteOptions) -> Body:
        """Return an object that is not stored (a Binding, an Eviction) as the webhooks want it."""
        action = _action(request, "CREATE", request.path.name, options)
        if not self._webhooks.concern(action):
            return body
        with _Telling(options):
            changed = await self._webhooks.mutate(action, body, None, options.warnings) or body
            await self._webhooks.validate(action, changed, None, options.warnings)
        return changed

    def _granting(
        self, request: ApiRequest, change: Callable[[Body], Body], options: WriteOptions
    ) -> Callable[[Body], Body]:
        """`change`, refused where it would give away more than the user holds."""
        if not self._authorizer.grants(request.kind):
            return change

        def checked(old: Body) -> Body:
            before = copy_json(old)
            new = change(old)
            self._check_grant(request, new, options, before)
            return new

        return checked

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
        self,
        action: Action,
        kind: Kind,
        face: Face,
        body: Body,
        old: Body | None,
        options: WriteOptions,
    ) -> Body:
        """Return `body` after the mutating webhooks, defaulted and pruned after each of them."""
        quiet = WriteOptions(options.dry_run)
        latest = body

        def refit(shown: Body) -> Body:
            nonlocal latest
            latest = face.apply(latest, copy_json(shown))
            self.objects.decode(kind, latest, quiet)
            return face.show(latest)

        await self._webhooks.mutate(action, face.show(body), old, options.warnings, refit)
        return latest


class _Telling:
    """Hands what was to be said to the client on to a refusal."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, StatusError):
            error.warnings = list(self._options.warnings)


_OPTIONS: Final = {
    "CREATE": "CreateOptions",
    "UPDATE": "UpdateOptions",
    "DELETE": "DeleteOptions",
}


def _action(request: ApiRequest, operation: str, name: str, options: WriteOptions) -> Action:
    path = request.path
    return Action(
        operation,
        request.kind,
        path.namespace if request.kind.namespaced else "",
        name,
        request.user,
        review_options(_OPTIONS[operation], request),
        path.subresource,
        options.dry_run,
    )
