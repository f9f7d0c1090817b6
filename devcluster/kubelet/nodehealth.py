"""io: what becomes of nodes whose lease is not renewed, and of the pods on them.

The node lifecycle of the embedded cluster: silent nodes, their taints and their pods.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import structlog

from devcluster.kubelet.containers import unheard_condition
from devcluster.kubelet.nodes import LEASE_NAMESPACE
from devcluster.kubelet.options import from_text, to_text
from devcluster.kubelet.scheduling import taints_of, tolerates
from devcluster.kubelet.world import BY_NODE, delete_pod
from ipuhub.kube.errors import ApiError, Conflict, NotFound
from ipuhub.kube.resources import NODES, PODS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from devcluster.kubelet.world import World
    from ipuhub.kube.resources import Manifest

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_OURS: Final = (NOT_READY, UNREACHABLE)
_EFFECTS: Final = ("NoSchedule", "NoExecute")
_SILENT: Final = "Kubelet stopped posting node status."


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What is to be written to a node; None where it is right already."""

    conditions: list[dict[str, Any]] | None = None
    taints: list[dict[str, Any]] | None = None


def judge_node(
    node: Mapping[str, Any], heard_at: datetime, dead_after_seconds: float, now: datetime
) -> NodeVerdict:
    """Judge a node by the last sign of life it gave.

    Silent nodes become Ready=Unknown; taints follow the Ready condition.
    """
    is_dead = now >= heard_at + timedelta(seconds=dead_after_seconds)
    truth = "Unknown" if is_dead else ready_status(node)
    conditions = _unknown_conditions(node, now) if is_dead else None
    wanted = {"True": "", "Unknown": UNREACHABLE}.get(truth, NOT_READY)
    return NodeVerdict(conditions, _taints(node, wanted, now))


def ready_status(node: Mapping[str, Any]) -> str:
    """Status of the Ready condition: True, False or Unknown."""
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready":
            return str(condition["status"])
    return "Unknown"


def evict_at(
    pod: Mapping[str, Any], node: Mapping[str, Any], eviction_seconds: float | None
) -> datetime | None:
    """When the pod is to be deleted for its node's NoExecute taints; None: never.

    `eviction_seconds` replaces the seconds that the pod's own tolerations give.
    """
    tolerations = pod["spec"].get("tolerations") or ()
    times: list[datetime] = []
    for taint in taints_of(node):
        if taint.get("effect") != "NoExecute" or not taint.get("timeAdded"):
            continue
        matching = [one for one in tolerations if tolerates(one, taint)]
        if any(one.get("tolerationSeconds") is None for one in matching):
            continue
        seconds = max((float(one["tolerationSeconds"]) for one in matching), default=0.0)
        if eviction_seconds is not None:
            seconds = eviction_seconds
        times.append(from_text(taint["timeAdded"]) + timedelta(seconds=seconds))
    return min(times, default=None)


def _unknown_conditions(node: Mapping[str, Any], now: datetime) -> list[dict[str, Any]] | None:
    found = (node.get("status") or {}).get("conditions") or []
    if all(one["status"] == "Unknown" for one in found) and found:
        return None
    return [
        {
            **one,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": _SILENT,
            "lastTransitionTime": to_text(now),
        }
        for one in found
        if one["status"] != "Unknown"
    ]


def _taints(node: Mapping[str, Any], wanted: str, now: datetime) -> list[dict[str, Any]] | None:
    found = taints_of(node)
    present = {(one["key"], one["effect"]) for one in found if one["key"] in _OURS}
    if present == ({(wanted, effect) for effect in _EFFECTS} if wanted else set()):
        return None
    kept = [one for one in found if one["key"] not in _OURS]
    if not wanted:
        return kept
    added = [{"key": wanted, "effect": one, "timeAdded": to_text(now)} for one in _EFFECTS]
    return [*kept, *added]


log = structlog.get_logger(__name__)
_LONGEST_PAUSE: Final = 5.0


class NodeLifecycle:
    """Marks silent nodes, taints them, evicts their pods, and removes pods of deleted nodes."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._began_at: datetime | None = None
        self._orphaned_at: dict[str, datetime] = {}
        self._changed = asyncio.Event()
        self._problem = ""
        world.nodes.add_handler(lambda _old, _new: self._changed.set())

    async def run(self) -> None:
        """Watch over the nodes until cancelled."""
        world = self._world
        for informer in (world.pods, world.nodes, world.leases):
            await informer.wait_synced()
        # Leases that ran out while nobody looked after them say nothing.
        self._began_at = world.now()
        pause = min(_LONGEST_PAUSE, world.options.dead_after_seconds / 4)
        while True:
            self._changed.clear()
            try:
                if world.leases.problem or world.nodes.problem:
                    self._began_at = world.now()  # the server is silent, not the nodes
                else:
                    await self.look()
                self._problem = ""
            except ApiError as error:
                if not self._problem:
                    log.warning("will look again", work="nodes", problem=str(error))
                self._problem = str(error)
                await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Judge every node once."""
        for node in self._world.nodes.all():
            await self._judge(node)
            await self._evict(node)
        await self._collect_orphans()

    async def _judge(self, node: Manifest) -> None:
        now = self._world.now()
        name = node["metadata"]["name"]
        dead_after = self._world.options.dead_after_seconds
        verdict = judge_node(node, self._heard_at(node, now), dead_after, now)
        client = self._world.client
        try:
            if verdict.conditions:
                log.warning("node is silent", node=name)
                await self._mark_pods(name, now)
                patch = {"status": {"conditions": verdict.conditions}}
                await client.patch(NODES, name, patch, subresource="status", patch_type="strategic")
            if verdict.taints is not None:
                version = node["metadata"]["resourceVersion"]
                if verdict.conditions:
                    version = None  # our own write made it old
                metadata = {"resourceVersion": version} if version else {}
                taints = {"metadata": metadata, "spec": {"taints": verdict.taints or None}}
                await client.patch(NODES, name, taints)
        except (NotFound, Conflict):
            return  # changed meanwhile: the watch brings it back

    async def _mark_pods(self, node: str, now: datetime) -> None:
        """Tell of the pods of a silent node that nobody knows whether they are Ready; before the
        node is marked, so that what fails is tried again."""
        for pod in self._world.pods.by_index(BY_NODE, node):
            condition = unheard_condition(pod.get("status") or {}, now)
            if condition is not None:
                meta, patch = pod["metadata"], {"status": {"conditions": [condition]}}
                where = (meta["name"], patch, meta["namespace"])
                with contextlib.suppress(NotFound):
                    await self._world.client.patch(
                        PODS, *where, subresource="status", patch_type="strategic"
                    )

    def _heard_at(self, node: Manifest, now: datetime) -> datetime:
        name = node["metadata"]["name"]
        lease = self._world.leases.get(LEASE_NAMESPACE, name) or {}
        renewed = (lease.get("spec") or {}).get("renewTime")
        times = [from_text(node["metadata"]["creationTimestamp"]), self._began_at or now]
        return max([*times, from_text(renewed)] if renewed else times)

    async def _evict(self, node: Manifest) -> None:
        world = self._world
        if not taints_of(node):
            return
        now, seconds = world.now(), world.options.eviction_seconds
        for pod in world.pods.by_index(BY_NODE, node["metadata"]["name"]):
            at = evict_at(pod, node, seconds)
            if at is not None and now >= at and not pod["metadata"].get("deletionTimestamp"):
                log.info("evicting", pod=pod["metadata"]["name"], node=node["metadata"]["name"])
                await delete_pod(self._world.client, pod)

    async def _collect_orphans(self) -> None:
        """Remove the pods of nodes that no longer exist: nobody else can end them."""
        world = self._world
        now = world.now()
        quarantine = timedelta(seconds=world.options.dead_after_seconds)
        orphans = [pod for pod in world.pods.all() if self._is_orphan(pod)]
        self._orphaned_at = {
            uid: self._orphaned_at.get(uid, now)
            for uid in (pod["metadata"]["uid"] for pod in orphans)
        }
        for pod in orphans:
            if now >= self._orphaned_at[pod["metadata"]["uid"]] + quarantine:
                await delete_pod(world.client, pod, grace_seconds=0)

    def _is_orphan(self, pod: Manifest) -> bool:
        node = pod["spec"].get("nodeName")
        return bool(node) and self._world.nodes.get("", node) is None
