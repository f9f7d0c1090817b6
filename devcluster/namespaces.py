"""io: what every namespace holds from its first moment, and its end: contents, then itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from devcluster.schemas.kinds import BY_RESOURCE
from devcluster.storage.deletion import DeleteOptions
from devcluster.storage.metadata import format_time
from devcluster.storage.objects import Target

if TYPE_CHECKING:
    from devcluster.storage.objects import Objects
    from devcluster.storage.store import Change, Item

Body = dict[str, Any]
INITIAL: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
ROOT_CA: Final = "kube-root-ca.crt"
_NAMESPACES: Final = BY_RESOURCE[("", "v1", "namespaces")]
_ACCOUNTS: Final = BY_RESOURCE[("", "v1", "serviceaccounts")]
_CONFIG_MAPS: Final = BY_RESOURCE[("", "v1", "configmaps")]


class Namespaces:
    """Fills new namespaces and empties those that are being deleted.

    It only remembers names to look at (`pending`); `run_once` does the work, so that nothing is
    written from inside another write.
    """

    def __init__(self, objects: Objects, ca_pem: str) -> None:
        self._objects, self._ca_pem = objects, ca_pem
        self.pending = {item.key[1] for item in objects.store.items(_NAMESPACES.storage_key)}
        objects.store.listeners.append(self._on_change)

    def create_initial(self) -> None:
        """Make the namespaces that every cluster has."""
        for name in INITIAL:
            if self._objects.store.get(_NAMESPACES.storage_key, "", name) is None:
                body = _manifest(_NAMESPACES.kind, name)
                self._objects.create(_NAMESPACES, "", body)
        self.run_once()

    def run_once(self) -> None:
        """Bring all pending namespaces to where they should be."""
        while self.pending:
            item = self._objects.store.get(_NAMESPACES.storage_key, "", self.pending.pop())
            if item is None:
                continue
            if item.body["metadata"].get("deletionTimestamp"):
                self._empty(item)
            else:
                self._fill(item.key[1])

    def _on_change(self, change: Change) -> None:
        namespace = change.item.key[0]
        if change.bucket == _NAMESPACES.storage_key:
            self.pending.add(change.item.key[1])
        elif change.type == "DELETED" and namespace:
            self.pending.add(namespace)

    def _fill(self, name: str) -> None:
        store = self._objects.store
        if store.get(_ACCOUNTS.storage_key, name, "default") is None:
            self._objects.create(_ACCOUNTS, name, _manifest(_ACCOUNTS.kind, "default"))
        if store.get(_CONFIG_MAPS.storage_key, name, ROOT_CA) is None:
            body = {**_manifest(_CONFIG_MAPS.kind, ROOT_CA), "data": {"ca.crt": self._ca_pem}}
            self._objects.create(_CONFIG_MAPS, name, body)

    def _empty(self, item: Item) -> None:
        """Delete what is inside; when nothing is left take off the finalizer of the namespace."""
        name, store = item.key[1], self._objects.store
        left: dict[str, int] = {}
        finalizers: dict[str, int] = {}
        for kind in self._objects.registry.kinds():
            if not (kind.namespaced and kind.is_stored) or kind.group == "events.k8s.io":
                continue
            for content in store.items(kind.storage_key, name):
                is_gone = False
                if not content.body["metadata"].get("deletionTimestamp"):
                    _, is_gone = self._objects.delete(kind, *content.key, DeleteOptions())
                if not is_gone:
                    left[kind.resource_name] = left.get(kind.resource_name, 0) + 1
                    for finalizer in content.body["metadata"].get("finalizers") or ():
                        finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
        if left:
            conditions = _remaining(left, finalizers, format_time(self._objects.clock()))
            self._objects.update(
                Target(_NAMESPACES, "", name, "status"), lambda body: _with(body, conditions)
            )
        else:
            self._objects.update(Target(_NAMESPACES, "", name, "finalize"), _without_finalizers)


def _without_finalizers(body: Body) -> Body:
    return {**body, "spec": {key: v for key, v in body["spec"].items() if key != "finalizers"}}


def _remaining(left: dict[str, int], finalizers: dict[str, int], now: str) -> list[Body]:
    """The conditions that say why a namespace is still there, as a namespace controller does."""
    resources = ", ".join(f"{name} has {n} resource instances" for name, n in left.items())
    holders = ", ".join(f"{name} in {n} resource instances" for name, n in finalizers.items())
    found = {"NamespaceContentRemaining": f"Some resources are remaining: {resources}"}
    if finalizers:
        found["NamespaceFinalizersRemaining"] = (
            f"Some content in the namespace has finalizers remaining: {holders}"
        )
    head = {"status": "True", "reason": "SomeRemain", "lastTransitionTime": now}
    return [{"type": kind, **head, "message": message} for kind, message in found.items()]


def _with(body: Body, conditions: list[Body]) -> Body:
    """The namespace with these conditions; as it is when they say nothing new."""
    said = [entry["message"] for entry in body["status"].get("conditions") or []]
    if said != [entry["message"] for entry in conditions]:
        body["status"]["conditions"] = conditions
    return body


def _manifest(kind: str, name: str) -> Body:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
