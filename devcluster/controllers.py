"""io: the cluster's own controllers and their loop: namespaces, garbage, CRDs, claims, events.

Also the default objects of a namespace, and its deletion: first the contents, then the namespace.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from devcluster.schemas.crds import CRD_FINALIZER, CRDS
from devcluster.schemas.kinds import BY_RESOURCE
from devcluster.storage.admission import CLAIM_FINALIZER
from devcluster.storage.metadata import DeleteOptions, without_finalizer
from devcluster.storage.objects import Target
from ipuhub.concurrency import wait_set
from ipuhub.times import format_time

if TYPE_CHECKING:
    from devcluster.gc import GarbageCollector
    from devcluster.storage.objects import Objects
    from devcluster.storage.store import Change, Item

log = structlog.get_logger(__name__)
EVENT_LIFE: Final = timedelta(hours=1)  # a real server forgets events after this, too
# It keeps them on disk, we in memory: of more than so many the oldest go earlier, but nothing that
# somebody may just be looking for.
EVENTS_KEPT: Final = 1_000
CROWDED_EVENT_LIFE: Final = timedelta(minutes=5)
_SWEEP_SECONDS: Final = 60.0
_EVENTS: Final = BY_RESOURCE[("", "v1", "events")]
_CLAIMS: Final = BY_RESOURCE[("", "v1", "persistentvolumeclaims")]
_CRD: Final = BY_RESOURCE[("apiextensions.k8s.io", "v1", "customresourcedefinitions")]


class Controllers:
    """Runs after every change, never inside a change."""

    def __init__(
        self, objects: Objects, namespaces: Namespaces, collector: GarbageCollector
    ) -> None:
        self._objects, self._namespaces, self._collector = objects, namespaces, collector
        self._news = asyncio.Event()
        self._news.set()
        objects.store.listeners.append(self._on_change)

    async def run(self) -> None:
        """Work until cancelled."""
        loop = asyncio.get_running_loop()
        sweep_at = loop.time() + _SWEEP_SECONDS
        while True:
            await wait_set(self._news, sweep_at - loop.time())
            self._news.clear()
            try:
                # By the clock: in a cluster with Leases there is always news.
                if loop.time() >= sweep_at:
                    sweep_at = loop.time() + _SWEEP_SECONDS
                    self.forget_old_events()
                self.run_once()
            except Exception:
                log.exception("a controller of the embedded API failed")

    def run_once(self) -> None:
        """Bring everything to rest."""
        while self._collector.pending or self._namespaces.pending:
            self._collector.run_once()
            self._namespaces.run_once()
        self._finish_crds()
        self._finish_claims()

    def forget_old_events(self) -> None:
        """Remove Events without a new count for EVENT_LIFE, and the oldest of too many."""
        now = self._objects.clock()
        # A copy, not `body`: these would take the place of what is asked for.
        items = self._objects.store.items(_EVENTS.resource_name)
        seen = sorted((last_seen(item.copy()), item.key) for item in items)
        for rank, (at, key) in enumerate(seen):
            is_crowded = rank < len(seen) - EVENTS_KEPT
            if now - at > (CROWDED_EVENT_LIFE if is_crowded else EVENT_LIFE):
                self._objects.delete(_EVENTS, *key)

    def _on_change(self, _change: Change) -> None:
        self._news.set()

    def _finish_crds(self) -> None:
        for item in self._objects.store.items(CRDS):
            if item.body["metadata"].get("deletionTimestamp"):
                self._finish_crd(item)

    def _finish_claims(self) -> None:
        """Let claims that are being deleted go when no unfinished pod mounts them."""
        for item in self._objects.store.items(_CLAIMS.resource_name):
            metadata = item.body["metadata"]
            held = CLAIM_FINALIZER in (metadata.get("finalizers") or ())
            if held and metadata.get("deletionTimestamp") and not self._is_mounted(item):
                drop = partial(without_finalizer, CLAIM_FINALIZER)
                self._objects.update(Target(_CLAIMS, *item.key), drop)

    def _is_mounted(self, claim: Item) -> bool:
        namespace, name = claim.key
        return any(
            (volume.get("persistentVolumeClaim") or {}).get("claimName") == name
            for pod in self._objects.store.items("pods", namespace)
            if pod.body["status"].get("phase") not in {"Succeeded", "Failed"}
            for volume in pod.body["spec"].get("volumes") or ()
        )

    def _finish_crd(self, item: Item) -> None:
        """Delete all objects of a CRD that is being deleted, then let it go."""
        spec = item.body["spec"]
        kind = next(
            (
                custom.kind
                for custom in self._objects.registry.custom.values()
                if (custom.kind.group, custom.kind.plural)
                == (spec["group"], spec["names"]["plural"])
            ),
            None,
        )
        remaining = 0
        if kind is not None:
            for content in self._objects.store.items(kind.resource_name):
                if content.body["metadata"].get("deletionTimestamp"):
                    remaining += 1
                    continue
                _, is_gone = self._objects.delete(kind, *content.key, DeleteOptions())
                remaining += not is_gone
        if not remaining and CRD_FINALIZER in (item.body["metadata"].get("finalizers") or ()):
            drop = partial(without_finalizer, CRD_FINALIZER)
            self._objects.update(Target(_CRD, *item.key), drop)


def last_seen(event: dict[str, Any]) -> datetime:
    """Return when an Event was last counted."""
    times = [event.get("lastTimestamp"), event.get("eventTime")]
    times.append((event.get("series") or {}).get("lastObservedTime"))
    times.append(event["metadata"]["creationTimestamp"])
    return max(datetime.fromisoformat(text) for text in times if text)


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
        self.pending = {item.key[1] for item in objects.store.items(_NAMESPACES.resource_name)}
        objects.store.listeners.append(self._on_change)

    def create_initial(self) -> None:
        """Make the namespaces that every cluster has."""
        for name in INITIAL:
            if self._objects.store.get(_NAMESPACES.resource_name, "", name) is None:
                body = _manifest(_NAMESPACES.kind, name)
                self._objects.create(_NAMESPACES, "", body)
        self.run_once()

    def run_once(self) -> None:
        """Bring all pending namespaces to where they should be."""
        while self.pending:
            item = self._objects.store.get(_NAMESPACES.resource_name, "", self.pending.pop())
            if item is None:
                continue
            if item.body["metadata"].get("deletionTimestamp"):
                self._empty(item)
            else:
                self._fill(item.key[1])

    def _on_change(self, change: Change) -> None:
        namespace = change.item.key[0]
        if change.bucket == _NAMESPACES.resource_name:
            self.pending.add(change.item.key[1])
        elif change.type == "DELETED" and namespace:
            self.pending.add(namespace)

    def _fill(self, name: str) -> None:
        store = self._objects.store
        if store.get(_ACCOUNTS.resource_name, name, "default") is None:
            self._objects.create(_ACCOUNTS, name, _manifest(_ACCOUNTS.kind, "default"))
        if store.get(_CONFIG_MAPS.resource_name, name, ROOT_CA) is None:
            body = {**_manifest(_CONFIG_MAPS.kind, ROOT_CA), "data": {"ca.crt": self._ca_pem}}
            self._objects.create(_CONFIG_MAPS, name, body)

    def _empty(self, item: Item) -> None:
        """Delete what is inside; when nothing is left take off the finalizer of the namespace."""
        name, store = item.key[1], self._objects.store
        remaining: dict[str, int] = {}
        finalizers: dict[str, int] = {}
        for kind in self._objects.registry.kinds():
            if not (kind.namespaced and kind.is_stored):
                continue
            for content in store.items(kind.resource_name, name):
                is_gone = False
                if not content.body["metadata"].get("deletionTimestamp"):
                    _, is_gone = self._objects.delete(kind, *content.key, DeleteOptions())
                if not is_gone:
                    remaining[kind.resource_name] = remaining.get(kind.resource_name, 0) + 1
                    for finalizer in content.body["metadata"].get("finalizers") or ():
                        finalizers[finalizer] = finalizers.get(finalizer, 0) + 1
        if remaining:
            conditions = _remaining(remaining, finalizers, format_time(self._objects.clock()))
            self._objects.update(
                Target(_NAMESPACES, "", name, "status"), lambda body: _with(body, conditions)
            )
        else:
            self._objects.update(Target(_NAMESPACES, "", name, "finalize"), _without_finalizers)


def _without_finalizers(body: Body) -> Body:
    return {**body, "spec": {key: v for key, v in body["spec"].items() if key != "finalizers"}}


def _remaining(remaining: dict[str, int], finalizers: dict[str, int], now: str) -> list[Body]:
    """The conditions that say why a namespace is still there, as a namespace controller does."""
    resources = ", ".join(f"{name} has {n} resource instances" for name, n in remaining.items())
    holders = ", ".join(f"{name} in {n} resource instances" for name, n in finalizers.items())
    found = {"NamespaceContentRemaining": f"Some resources are remaining: {resources}"}
    if finalizers:
        found["NamespaceFinalizersRemaining"] = (
            f"Some content in the namespace has finalizers remaining: {holders}"
        )
    head = {"status": "True", "reason": "SomeRemain", "lastTransitionTime": now}
    return [{"type": kind, **head, "message": message} for kind, message in found.items()]


def _with(body: Body, conditions: list[Body]) -> Body:
    """The namespace with these conditions; unchanged if they are the same."""
    messages = [entry["message"] for entry in body["status"].get("conditions") or []]
    if messages != [entry["message"] for entry in conditions]:
        body["status"]["conditions"] = conditions
    return body


def _manifest(kind: str, name: str) -> Body:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
