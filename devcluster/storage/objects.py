"""io: create, update and delete: every write of the cluster, by a client or by its controllers.

All methods are synchronous: nothing else runs between reading and writing an object, so
preconditions and patches are atomic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from devcluster.schemas.builtin import schema_of
from devcluster.schemas.crds import CRD_FINALIZER, CRDS, accept_names
from devcluster.status import (
    FieldError,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from devcluster.storage import admission
from devcluster.storage.decoding import Decoding, decode
from devcluster.storage.metadata import (
    DeleteOptions,
    check_metadata,
    check_new_finalizers,
    check_preconditions,
    finalizer_warnings,
    keep_server_fields,
    mark_deleted,
    prepare_new,
)
from devcluster.storage.ownership import Manager, track
from devcluster.storage.store import Item
from ipuhub.times import format_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from devcluster.schemas.kinds import Kind
    from devcluster.schemas.registry import Registry
    from devcluster.schemas.schema import Schema
    from devcluster.storage.store import Store

Body = dict[str, Any]
SYSTEM_PRIORITIES: Final = ("system-cluster-critical", "system-node-critical")
_UPDATES_NEED_VERSION: Final = {"leases", "customresourcedefinitions"}


@dataclass(slots=True)
class WriteOptions:
    """The way to write: `field_validation` is Ignore, Warn or Strict; `warnings` collects
    sentences.

    `manager` is who writes; `managed` are the `managedFields` that an apply has worked out.
    """

    dry_run: bool = False
    field_validation: str = "Ignore"
    warnings: list[str] = field(default_factory=list)
    manager: str = "devcluster"
    managed: list[Body] | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The object a request is about; `subresource` is "", "status", "finalize" or "binding"."""

    kind: Kind
    namespace: str
    name: str
    subresource: str = ""


class Objects:
    """The write path over the store."""

    def __init__(self, store: Store, registry: Registry, clock: Callable[[], datetime]) -> None:
        self.store, self.registry, self.clock = store, registry, clock

    def get(self, kind: Kind, namespace: str, name: str) -> Item:
        """Return the object; StatusError 404."""
        item = self.store.get(kind.resource_name, namespace if kind.namespaced else "", name)
        if item is None:
            raise not_found(kind, name)
        return item

    def create(
        self, kind: Kind, namespace: str, body: Body, options: WriteOptions | None = None
    ) -> Item:
        """Store a new object; `body` becomes the store's. StatusError 403, 404, 409, 422."""
        options = options or WriteOptions()
        return self.store_new(kind, self.prepare_new(kind, namespace, body, options), options)

    def prepare_new(self, kind: Kind, namespace: str, body: Body, options: WriteOptions) -> Body:
        """Return `body` as it would be stored. StatusError 400, 403, 404, 422."""
        errors = self.decode(kind, body, options)
        metadata = body["metadata"]
        given = metadata.get("namespace")
        if kind.namespaced and given and given != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        prepare_new(kind, namespace, body, self.clock())
        custom = self.registry.custom_kind(kind)
        if custom is None:
            admission.default_new(kind, body)
        elif kind.has_status:
            body.pop("status", None)
            custom.schema.default(body)  # an API server does so when it reads what it has stored
        if self._counts_generations(kind):
            metadata["generation"] = 1
        if kind.namespaced:
            self.check_namespace(kind, namespace, metadata.get("name", ""))
        self._check_admission(kind, namespace, body)
        self._check(kind, body, errors + admission.check_new(kind, body))
        self._warn(kind, {}, metadata, options)
        if options.managed:
            metadata["managedFields"] = options.managed
        return body

    def store_new(self, kind: Kind, body: Body, options: WriteOptions) -> Item:
        """Store what `prepare_new` returned. StatusError 403, 404, 409."""
        metadata = body["metadata"]
        if kind.namespaced:
            self.check_namespace(kind, metadata["namespace"], metadata["name"])
        present = self.store.get(
            kind.resource_name, metadata.get("namespace", ""), metadata["name"]
        )
        if present is not None:
            raise already_exists(present.body["metadata"], kind)
        if kind.resource_name == CRDS:
            metadata.setdefault("finalizers", []).append(CRD_FINALIZER)
            accept_names(body, format_time(self.clock()))
        return self._put(kind, body, options)

    def update(
        self,
        target: Target,
        change: Callable[[Body], Body],
        options: WriteOptions | None = None,
    ) -> Item:
        """Replace an object by what `change` makes of it. StatusError 404, 409, 422.

        Nothing is written when nothing changed. The last finalizer of an object that is being
        deleted, removed, removes the object.
        """
        options = options or WriteOptions()
        old = self.get(target.kind, target.namespace, target.name)
        new = self.prepare_change(target, old, change(old.copy()), options)
        return self.store_change(target, old, new, options)

    def prepare_change(self, target: Target, old: Item, new: Body, options: WriteOptions) -> Body:
        """Return `new` as it would replace `old`. StatusError 400, 409, 422."""
        kind = target.kind
        errors = self.decode(kind, new, options, old.body)
        self._check_identity(target, old.body, new)
        keep_server_fields(old.body["metadata"], new["metadata"])
        new = self._keep_other_parts(target, old, new)
        check_new_finalizers(kind, old.body["metadata"], new["metadata"])
        is_judged = target.subresource != "binding" and self.registry.custom_kind(kind) is None
        if is_judged:
            errors += admission.check_update(kind, old.body, new)
        self._check(kind, new, errors, target.subresource)
        self._warn(kind, old.body["metadata"], new["metadata"], options)
        if kind.resource_name == CRDS and not target.subresource:
            accept_names(new, format_time(self.clock()))
        managed = options.managed
        if managed is None:
            managed = self._tracked(target, old.body, new, options.manager)
        if managed:
            new["metadata"]["managedFields"] = managed
        return new

    def schema(self, kind: Kind) -> Schema | None:
        """Return the schema of a kind's objects."""
        custom = self.registry.custom_kind(kind)
        return custom.schema if custom is not None else schema_of(kind.api_version, kind.kind)

    def _tracked(self, target: Target, old: Body, new: Body, manager: str) -> list[Body]:
        """Return who owns which field after a write that is no apply."""
        schema = self.schema(target.kind)
        if schema is None or not old["metadata"].get("managedFields"):
            return []
        writer = Manager(manager, "Update", target.kind.api_version, target.subresource)
        return track(old, new, schema, writer, format_time(self.clock()))

    def store_change(self, target: Target, old: Item, new: Body, options: WriteOptions) -> Item:
        """Store what `prepare_change` returned; `old` must still be what is stored."""
        kind = target.kind
        if new == old.body:
            return old
        if self._counts_generations(kind) and _spec_changed(kind, old.body, new):
            new["metadata"]["generation"] = old.body["metadata"].get("generation", 0) + 1
        if _is_finished(kind, new) and not options.dry_run:
            return self.store.remove(kind.resource_name, *old.key, last=new)
        return self._put(kind, new, options)

    def delete(
        self, kind: Kind, namespace: str, name: str, options: DeleteOptions | None = None
    ) -> tuple[Item, bool]:
        """Delete, or mark as being deleted; return the last state and whether it is gone."""
        options = options or DeleteOptions()
        item = self.get(kind, namespace, name)
        if kind.plural == "namespaces" and name in admission.PROTECTED_NAMESPACES:
            raise forbidden(kind, name, "this namespace may not be deleted")
        metadata = item.body["metadata"]
        check_preconditions(kind, metadata, options)
        body = mark_deleted(kind, item.copy(), options, self.clock())
        if options.dry_run:
            return item, body is None
        if body is None:
            return self.store.remove(kind.resource_name, *item.key), True
        if body == item.body:
            return item, False
        return self.store.put(kind.resource_name, body), False

    def _put(self, kind: Kind, body: Body, options: WriteOptions) -> Item:
        if options.dry_run:
            key = (body["metadata"].get("namespace", ""), body["metadata"]["name"])
            return Item(key, self.store.revision, body, orjson.dumps(body))
        # The type comes first, where lists cut it off.
        head = {"apiVersion": body["apiVersion"], "kind": body["kind"]}
        return self.store.put(kind.resource_name, {**head, **body})

    def decode(
        self, kind: Kind, body: Body, options: WriteOptions, old: Body | None = None
    ) -> list[FieldError]:
        """Drop unknown fields of `body`, fill in defaults; return what is wrong with its form."""
        custom = self.registry.custom_kind(kind)
        how = Decoding(options.field_validation, options.warnings, old)
        errors = decode(kind, custom, body, how)
        if custom is None:
            admission.default_always(kind, body)
        return errors

    def _check(
        self, kind: Kind, body: Body, errors: list[FieldError], subresource: str = ""
    ) -> None:
        found = check_metadata(kind, body) + errors
        custom = self.registry.custom_kind(kind)
        if custom is not None:
            found += custom.faults(body, subresource)
        if found:
            raise invalid(kind, body["metadata"].get("name", ""), list(dict.fromkeys(found)))

    def _warn(self, kind: Kind, old: Body, new: Body, options: WriteOptions) -> None:
        if self.registry.custom_kind(kind) is not None:
            options.warnings.extend(finalizer_warnings(old, new))

    def _check_identity(self, target: Target, old: Body, new: Body) -> None:
        kind, metadata = target.kind, new.setdefault("metadata", {})
        if metadata.setdefault("name", target.name) != target.name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL "
                f"({target.name})"
            )
        if (
            kind.namespaced
            and metadata.setdefault("namespace", target.namespace) != target.namespace
        ):
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        old_metadata = old["metadata"]
        uid = metadata.get("uid")
        if uid and uid != old_metadata["uid"]:
            found = old_metadata["uid"]
            reason = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"
            raise conflict(kind, target.name, reason)
        version = metadata.get("resourceVersion")
        if version and version != old_metadata["resourceVersion"]:
            raise conflict(kind, target.name)
        if not version and (
            kind.plural in _UPDATES_NEED_VERSION or self.registry.custom_kind(kind) is not None
        ):
            message = "Invalid value: 0: must be specified for an update"
            error = FieldError("metadata.resourceVersion", "FieldValueInvalid", message)
            refusal = invalid(kind, target.name, [error])
            refusal.message = f'{kind.resource_name} "{target.name}" is invalid: {error}'
            raise refusal

    def _keep_other_parts(self, target: Target, old: Item, new: Body) -> Body:
        """Return `new` with what the addressed path does not write taken from `old`."""
        kind, custom = target.kind, self.registry.custom_kind(target.kind)
        if target.subresource == "status":
            if custom is not None:
                result = old.copy()
            else:
                result = {**old.copy(), "metadata": new["metadata"]}
                result["metadata"]["ownerReferences"] = old.body["metadata"].get("ownerReferences")
                if result["metadata"]["ownerReferences"] is None:
                    del result["metadata"]["ownerReferences"]
            return _with_part(result, new, "status")
        if kind.has_status and target.subresource != "binding":
            new = _with_part(new, old.body, "status")
        if kind.plural == "namespaces" and target.subresource != "finalize":
            new = _with_part(new, old.body, "spec")
        return new

    def _counts_generations(self, kind: Kind) -> bool:
        return (
            self.registry.custom_kind(kind) is not None
            or kind.resource_name == CRDS
            or kind.group == "admissionregistration.k8s.io"
        )

    def check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """Refuse new content where there is no namespace, or the namespace is being deleted.
        StatusError 403, 404."""
        found = self.store.get("namespaces", "", namespace)
        if found is None:
            message = f'namespaces "{namespace}" not found'
            raise StatusError(404, "NotFound", message, {"name": namespace, "kind": "namespaces"})
        if found.body["metadata"].get("deletionTimestamp"):
            error = forbidden(
                kind,
                name,
                f"unable to create new content in namespace {namespace} because it is being "
                "terminated",
            )
            message = f"namespace {namespace} is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": message}
            error.details["causes"] = [{**cause, "field": "metadata.namespace"}]
            raise error

    def _check_admission(self, kind: Kind, namespace: str, body: Body) -> None:
        if kind.resource_name != "pods":
            return
        account = body["spec"]["serviceAccountName"]
        if self.store.get("serviceaccounts", namespace, account) is None:
            raise forbidden(
                kind,
                body["metadata"].get("name", ""),
                f"error looking up service account {namespace}/{account}: serviceaccount "
                f'"{account}" not found',
            )
        # No class of either kind can be stored here. The system's own priorities are built in.
        priority = body["spec"].get("priorityClassName") or ""
        runtime = body["spec"].get("runtimeClassName") or ""
        reason = ""
        if priority and priority not in SYSTEM_PRIORITIES:
            reason = f"no PriorityClass with name {priority} was found"
        elif runtime:
            reason = f'pod rejected: RuntimeClass "{runtime}" not found'
        if reason:
            raise forbidden(kind, body["metadata"].get("name", ""), reason)


def _with_part(into: Body, source: Body, name: str) -> Body:
    """Return `into` with top-level field `name` as in `source`."""
    if name in source:
        return {**into, name: source[name]}
    into.pop(name, None)
    return into


def _spec_changed(kind: Kind, old: Body, new: Body) -> bool:
    skipped = {"metadata", "status"} if kind.has_status else {"metadata"}
    return {k: v for k, v in old.items() if k not in skipped} != {
        k: v for k, v in new.items() if k not in skipped
    }


def _is_finished(kind: Kind, body: Body) -> bool:
    """Return whether nothing holds an object that is being deleted any more."""
    metadata = body["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if kind.plural == "namespaces":
        return not body["spec"].get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")
