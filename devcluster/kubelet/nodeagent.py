"""io: registers the stand-in nodes and keeps their leases and statuses."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from devcluster.kubelet.nodes import (
    LEASE_NAMESPACE,
    build_lease,
    build_node,
    build_status,
    has_reported,
)
from ipuhub.backoff import Backoff
from ipuhub.kube.errors import AlreadyExists, ApiError, NotFound
from ipuhub.kube.resources import LEASES, NODES
from ipuhub.times import format_micro_time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from devcluster.kubelet.nodes import StandInNode
    from devcluster.kubelet.world import World
    from ipuhub.kube.resources import Manifest

log = structlog.get_logger(__name__)


class NodeAgent:
    """The nodes' own reports. A node whose object is deleted stays away until the next start."""

    def __init__(self, world: World, nodes: Mapping[str, StandInNode]) -> None:
        self._world = world
        self._nodes = nodes
        self._status_due: dict[str, datetime] = {}
        self._problem = ""

    async def register(self) -> None:
        """Create the nodes, or take them over; waits while the API server is unavailable."""
        backoff, tries = Backoff(), 0
        while True:
            try:
                for node in self._nodes.values():
                    await self._register(node)
            except ApiError as error:
                if not error.retryable:
                    raise
                self._say(str(error))
                await asyncio.sleep(backoff.delay_seconds(tries, 0.5))
                tries += 1
            else:
                self._say("")
                log.info("nodes registered", nodes=len(self._nodes))
                return

    async def run(self) -> None:
        """Report until cancelled."""
        await self._world.nodes.wait_synced()
        while True:
            problem = ""
            for name, node in self._nodes.items():
                found = self._world.nodes.get("", name)
                try:
                    if found is not None:
                        await self._report(node, found)
                except ApiError as error:
                    problem = str(error)
            self._say(problem)
            await asyncio.sleep(self._world.options.lease_seconds)

    async def _register(self, node: StandInNode) -> None:
        client, body = self._world.client, build_node(node, self._world.options)
        try:
            found = await client.create(NODES, body)
        except AlreadyExists:
            reported = {key: body["metadata"].get(key) for key in ("labels", "annotations")}
            known = {"metadata": {key: value for key, value in reported.items() if value}}
            found = await client.patch(NODES, node.name, known)
        await self._post_status(node, found)
        await self._renew(node, found)

    async def _report(self, node: StandInNode, found: Manifest) -> None:
        now = self._world.now()
        await self._renew(node, found)
        if now >= self._status_due.get(node.name, now) or not has_reported(found, now):
            await self._post_status(node, found)

    async def _post_status(self, node: StandInNode, found: Manifest) -> None:
        now = self._world.now()
        status = build_status(node, self._world.options, found, now)
        await self._world.client.patch(
            NODES, node.name, status, subresource="status", patch_type="strategic"
        )
        self._status_due[node.name] = now + timedelta(seconds=self._world.options.status_seconds)

    async def _renew(self, node: StandInNode, found: Manifest) -> None:
        now = self._world.now()
        client = self._world.client
        renewal = {"spec": {"renewTime": format_micro_time(now), "holderIdentity": node.name}}
        try:
            await client.patch(LEASES, node.name, renewal, LEASE_NAMESPACE)
        except NotFound:
            await client.create(LEASES, build_lease(node, found["metadata"]["uid"], now))

    def _say(self, problem: str) -> None:
        """Log a trouble once, and its end."""
        if problem and not self._problem:
            log.warning("nodes cannot report", problem=problem)
        elif self._problem and not problem:
            log.info("nodes report again")
        self._problem = problem
