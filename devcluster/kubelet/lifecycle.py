"""io: the node lifecycle of the embedded cluster: silent nodes, their taints and their pods."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from devcluster.kubelet.affinity import taints_of
from devcluster.kubelet.conditions import unheard_condition
from devcluster.kubelet.instants import from_text
from devcluster.kubelet.nodehealth import evict_at, judge_node
from devcluster.kubelet.nodes import LEASE_NAMESPACE
from devcluster.kubelet.removal import delete_pod
from devcluster.kubelet.world import BY_NODE
from ipuhub.kube.errors import ApiError, Conflict, NotFound
from ipuhub.kube.resources import NODES, PODS

if TYPE_CHECKING:
    from datetime import datetime

    from devcluster.kubelet.world import World
    from ipuhub.kube.types import Manifest

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
