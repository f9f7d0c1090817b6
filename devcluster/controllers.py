"""io: the cluster's own controllers and their loop: namespaces, garbage, CRDs, claims, events."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from devcluster.schemas.crds import CRD_FINALIZER, CRDS
from devcluster.schemas.kinds import BY_RESOURCE
from devcluster.storage.admission import CLAIM_FINALIZER
from devcluster.storage.deletion import DeleteOptions
from devcluster.storage.objects import Target

if TYPE_CHECKING:
    from devcluster.gc import GarbageCollector
    from devcluster.namespaces import Namespaces
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
    """Runs after every change, never inside one."""

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
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), max(sweep_at - loop.time(), 0))
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
        """Remove Events that nobody has counted up for EVENT_LIFE, and the oldest of too many."""
        now = self._objects.clock()
        # A copy, not `body`: these would take the place of what is asked for.
        items = self._objects.store.items(_EVENTS.storage_key)
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
        for item in self._objects.store.items(_CLAIMS.storage_key):
            metadata = item.body["metadata"]
            held = CLAIM_FINALIZER in (metadata.get("finalizers") or ())
            if held and metadata.get("deletionTimestamp") and not self._is_mounted(item):
                drop = partial(_without_finalizer, CLAIM_FINALIZER)
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
        left = 0
        if kind is not None:
            for content in self._objects.store.items(kind.storage_key):
                if content.body["metadata"].get("deletionTimestamp"):
                    left += 1
                    continue
                _, is_gone = self._objects.delete(kind, *content.key, DeleteOptions())
                left += not is_gone
        if not left and CRD_FINALIZER in (item.body["metadata"].get("finalizers") or ()):
            drop = partial(_without_finalizer, CRD_FINALIZER)
            self._objects.update(Target(_CRD, *item.key), drop)


def last_seen(event: dict[str, Any]) -> datetime:
    """Return when an Event was last counted."""
    times = [event.get("lastTimestamp"), event.get("eventTime")]
    times.append((event.get("series") or {}).get("lastObservedTime"))
    times.append(event["metadata"]["creationTimestamp"])
    return max(datetime.fromisoformat(text) for text in times if text)


def _without_finalizer(finalizer: str, body: dict[str, Any]) -> dict[str, Any]:
    metadata = body["metadata"]
    metadata["finalizers"] = [f for f in metadata["finalizers"] if f != finalizer]
    if not metadata["finalizers"]:
        del metadata["finalizers"]
    return body
