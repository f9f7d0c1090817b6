"""io: process mode put together: the endpoint, and the runtime behind it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

import structlog

from devcluster.processes.endpoint import Endpoint
from devcluster.processes.runtime import ProcessRuntime, can_isolate
from ipuhub.kube.resources import CONFIG_MAPS

if TYPE_CHECKING:
    from pathlib import Path

    from devcluster.kubelet.options import StandInOptions
    from devcluster.kubelet.world import World
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
