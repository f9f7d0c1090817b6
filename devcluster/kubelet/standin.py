"""io: stand-in nodes and, if the cluster has none, scheduler and controllers, as one task.

Also assembles process mode: the endpoint, and the runtime behind it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import structlog

from devcluster.kubelet.driver import PodDriver
from devcluster.kubelet.nodeagent import NodeAgent
from devcluster.kubelet.nodes import stand_in_nodes
from devcluster.kubelet.scheduler import Scheduler
from devcluster.kubelet.volumes import ClaimBinder
from devcluster.kubelet.world import World
from devcluster.processes.endpoint import Endpoint
from devcluster.processes.runtime import ProcessRuntime, can_isolate
from ipuhub.kube.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from pathlib import Path

    from devcluster.kubelet.options import StandInOptions
    from ipuhub.kube.client import KubeClient

log = structlog.get_logger(__name__)


class ProcessMode:
    """Containers as processes of this machine, below `folder`; a context that ends them all."""

    def __init__(self, client: KubeClient, folder: Path) -> None:
        self._client, self._folder = client, folder.absolute()
        self._runtime: ProcessRuntime | None = None

    async def __aenter__(self) -> Self:
        log.warning(
            "PROCESS MODE: the commands of pods RUN ON THIS MACHINE, as this user",
            folder=str(self._folder),
            own_mounts=can_isolate(),
        )
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        trusted = await self._client.get(CONFIG_MAPS, "kube-root-ca.crt", "kube-system")
        self._endpoint = Endpoint(trusted["data"]["ca.crt"])
        await self._endpoint.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runtime is not None:
            await self._runtime.close()
        await self._endpoint.stop()

    def announced(self, options: StandInOptions) -> StandInOptions:
        """The options with where the nodes answer."""
        certificate = self._endpoint.certificate.decode()
        port = self._endpoint.port
        return replace(options, kubelet_port=port, kubelet_certificate=certificate)

    def attach(self, world: World) -> ProcessRuntime:
        """Make the runtime of these nodes and answer for it."""
        self._runtime = ProcessRuntime(world, self._folder, self._client.config.server)
        self._endpoint.serve(self._runtime, world.pods.get)
        return self._runtime


class StandInNodes:
    """Simulated nodes on the API server of `client`, which it does not close.

    Holds no state of its own: stopped or killed and started again, it continues from the objects.
    """

    def __init__(self, client: KubeClient, options: StandInOptions) -> None:
        self._client = client
        self._options = options

    async def run(self) -> None:
        """Register the nodes and keep everything going until cancelled."""
        if self._options.processes is None:
            await self._run(self._options, None)
            return
        async with ProcessMode(self._client, self._options.processes) as mode:
            await self._run(mode.announced(self._options), mode)

    async def _run(self, options: StandInOptions, mode: ProcessMode | None) -> None:
        world = World(self._client, options)
        nodes = stand_in_nodes(options)
        agent = NodeAgent(world, nodes)
        runtime = None if mode is None else mode.attach(world)
        parts = [agent.run, PodDriver(world, nodes, runtime).run]
        if options.scheduler:
            parts.append(Scheduler(world).run)
        if options.claims:
            parts.append(ClaimBinder(world).run)
        await agent.register()
        async with asyncio.TaskGroup() as group:
            for informer in world.informers():
                group.create_task(informer.run())
            for run in parts:
                group.create_task(run())
