"""The environment of a whole proxy: a real API server, and a vipu-server that can be stopped."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import aiohttp

from devcluster.demo.cluster import ACCESS_FILE, apply_file
from devcluster.server import DevCluster
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import AlreadyExists
from ipuhub.kube.resources import NODES
from ipuhub.kube.token import TokenSource
from partitions.client import ProxyClient
from partitions.errors import ProxyUnavailable
from partitions.proxy.fleet import FleetOptions
from partitions.proxy.process import ProxyOptions
from partitions.proxy.sweep import SweepOptions
from partitions.vipu.client import VipuClient
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.options import ServerOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ipuhub.kube.client import KubeClient

SYSTEM = "ipuhub-system"
LABEL = "vipu-ctrl=proxytest"
JOB: dict[str, Any] = {
    "uid": "beb81bbe-2309-494a-9e28-2a75a704be15",
    "namespace": "default",
    "name": "ipujob-sample",
    "instance": 0,
    "size": 4,
    "attempt": 0,
}


class Listening(Protocol):
    """A proxy, of which nothing but its port is needed."""

    @property
    def port(self) -> int: ...


@dataclass
class Lab:
    """An API server, a vipu-server that can be stopped, and what a proxy needs to start."""

    kubeconfig: str
    client: KubeClient
    storage: Path
    vipu_port: int
    tracker: str
    published_only: bool = False
    create_latency_seconds: float = 0.05
    vipu: VipuServer | None = None

    def start_vipu(self) -> None:
        options = ServerOptions(
            storage=self.storage,
            port=self.vipu_port,
            create_latency_seconds=self.create_latency_seconds,
            published_attributes_only=self.published_only,
        )
        self.vipu = VipuServer(options)
        self.vipu.start()

    async def stop_vipu(self) -> None:
        if self.vipu is not None:
            await asyncio.to_thread(self.vipu.stop)
        self.vipu = None

    def lose_state(self) -> None:
        """Remove all that the stopped vipu-server has stored."""
        self.storage.unlink()

    @property
    def options(self) -> ProxyOptions:
        return ProxyOptions(
            cluster=load_config(self.kubeconfig),
            namespace=SYSTEM,
            port=0,
            tracker=self.tracker,
            controllers=f"127.0.0.1:{self.vipu_port}:{LABEL}",
            deadline_seconds=20,
            sweep=SweepOptions(every_seconds=60),
            fleet=FleetOptions(watch_seconds=0.1),
        )

    async def exists(self) -> list[str]:
        async with VipuClient(f"127.0.0.1:{self.vipu_port}") as vipu:
            return [one.id for one in await vipu.list_partitions()]

    def operator(self, proxy: Listening) -> ProxyClient:
        token = TokenSource(self.client, f"{SYSTEM}/ipuhub-operator", "ipuhub-proxy")
        return ProxyClient(f"http://127.0.0.1:{proxy.port}", token)


async def read_path(proxy: Listening, path: str, **headers: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{proxy.port}{path}"
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        return answer.status, await answer.text()


async def ready(proxy: Listening) -> bool:
    return (await read_path(proxy, "/readyz"))[0] == 200


async def prepare_cluster(client: KubeClient) -> None:
    await apply_file(client, ACCESS_FILE)
    key, _, value = LABEL.partition("=")
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "proxytest", "labels": {key: value}},
    }
    try:
        await client.create(NODES, node)
    except AlreadyExists:
        return


@asynccontextmanager
async def some_cluster(directory: Path, given: str) -> AsyncIterator[str]:
    """The `given` cluster, else the embedded API."""
    if given:
        yield given
        return
    cluster = DevCluster(directory)
    await cluster.start()
    try:
        yield str(cluster.kubeconfig)
    finally:
        await cluster.stop()


async def try_ensure(operator: ProxyClient) -> Any:
    try:
        return await operator.ensure(**JOB)
    except ProxyUnavailable:
        return None
