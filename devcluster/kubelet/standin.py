"""io: stand-in nodes and, where the cluster has none, scheduler and controllers, as one task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from devcluster.kubelet.binder import ClaimBinder
from devcluster.kubelet.driver import PodDriver
from devcluster.kubelet.lifecycle import NodeLifecycle
from devcluster.kubelet.nodeagent import NodeAgent
from devcluster.kubelet.nodes import stand_in_nodes
from devcluster.kubelet.processmode import ProcessMode
from devcluster.kubelet.scheduler import Scheduler
from devcluster.kubelet.world import World, utc_now

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from devcluster.kubelet.options import StandInOptions
    from ipuhub.kube.client import KubeClient


class StandInNodes:
    """Simulated nodes on the API server of `client`, which it does not close.

    Holds no state of its own: stopped or killed and started again, it goes on from the objects.
    """

    def __init__(
        self,
        client: KubeClient,
        options: StandInOptions,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._options = options
        self._now = now

    async def run(self) -> None:
        """Register the nodes and keep everything going until cancelled."""
        if self._options.processes is None:
            await self._run(self._options, None)
            return
        async with ProcessMode(self._client, self._options.processes) as mode:
            await self._run(mode.announced(self._options), mode)

    async def _run(self, options: StandInOptions, mode: ProcessMode | None) -> None:
        world = World(self._client, options, self._now)
        nodes = stand_in_nodes(options)
        agent = NodeAgent(world, nodes)
        runtime = None if mode is None else mode.attach(world)
        parts = [agent.run, PodDriver(world, nodes, runtime).run]
        if options.scheduler:
            parts.append(Scheduler(world).run)
        if options.lifecycle:
            parts.append(NodeLifecycle(world).run)
        if options.claims:
            parts.append(ClaimBinder(world).run)
        await agent.register()
        async with asyncio.TaskGroup() as group:
            for informer in world.informers():
                group.create_task(informer.run())
            for run in parts:
                group.create_task(run())
