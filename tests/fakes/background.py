"""Servers for tests of synchronous code: an event loop in a thread, a cluster and a proxy in it."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from aiohttp import web

from devcluster.demo.cluster import apply_manifest
from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from ipuhub.process.health import Health
from jobs.ipujob.names import ANNOTATION_CREATED_BY, IPUJOBS
from partitions.proxy.app import Access, Parts, build_app
from tests.builders.documents import build_crd_without_status_schema, our_crd
from tests.builders.ipujobs import IPUJobBuilder
from tests.fakes.freeport import free_port
from tests.integration.proxy.conftest import FakeReviews, World, request

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path


class Background:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(180)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


class Cluster:
    """The embedded API with the CRD; it can stop and come back at the same address."""

    def __init__(
        self, background: Background, directory: Path, authorization: str = "allow-all"
    ) -> None:
        self._background = background
        self._directory = directory
        self._server = DevCluster(directory, authorization=authorization)
        background.run(self._server.start())
        self._port = int(self._server.url.rpartition(":")[2])
        self.kubeconfig = str(self._server.kubeconfig)
        background.run(self._prepare())

    def add_job(
        self,
        name: str,
        namespace: str = "default",
        spec: dict[str, Any] | None = None,
        *,
        user: str = "",
        **status: Any,
    ) -> str:
        """Create an IPUJob of a user with this status, and `spec` over the builder's; return its
        UID."""
        return str(self._background.run(self._add_job(name, namespace, spec or {}, user, status)))

    def add_namespace(self, name: str) -> None:
        """Create a namespace."""
        self._background.run(self._add_namespace(name))

    def drop_status_schema(self) -> None:
        """Let the CRD have no schema of the status: the API server keeps what it is given."""
        self._background.run(self._drop_status_schema())

    def stop(self) -> None:
        self._background.run(self._server.stop())

    def start(self) -> None:
        self._server = DevCluster(self._directory, port=self._port)
        self._background.run(self._server.start())

    async def _prepare(self) -> None:
        async with KubeClient(load_config(self.kubeconfig)) as client:
            await apply_manifest(client, our_crd())
            for name in ("team-a", "team-b"):
                await client.create(NAMESPACES, {"metadata": {"name": name}})

    async def _drop_status_schema(self) -> None:
        crd = build_crd_without_status_schema()
        patch = {"spec": {"versions": crd["spec"]["versions"]}}
        async with KubeClient(load_config(self.kubeconfig)) as client:
            await client.patch(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"], patch)

    async def _add_namespace(self, name: str) -> None:
        async with KubeClient(load_config(self.kubeconfig)) as client:
            await client.create(NAMESPACES, {"metadata": {"name": name}})

    async def _add_job(
        self, name: str, namespace: str, spec: dict[str, Any], user: str, status: dict[str, Any]
    ) -> str:
        job = IPUJobBuilder(name).manifest
        job["spec"] |= spec
        job["metadata"] = {"name": name, "namespace": namespace}
        if user:
            job["metadata"]["annotations"] = {ANNOTATION_CREATED_BY: user}
        async with KubeClient(load_config(self.kubeconfig)) as client:
            made = await client.create(IPUJOBS, job, namespace)
            await client.patch(IPUJOBS, name, {"status": status}, namespace, subresource="status")
        return str(made["metadata"]["uid"])


class Proxy:
    """The V-IPU Proxy's own routes over a fleet in memory, of 32 IPUs unless another `world` is
    given; token `web` may list."""

    def __init__(self, background: Background, world: World | None = None) -> None:
        self._background = background
        self.world = world or World()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        background.run(self._start())

    def hold(self, name: str, namespace: str = "default", size: int = 4, **given: Any) -> None:
        """Let a job hold a partition, or wait for it."""
        wanted = request(name, namespace=namespace, size=size, **given)
        self._background.run(self._service.service.ensure(wanted))

    def reload(self) -> None:
        """Reload the list of controllers."""
        self._service.fleet.reload()

    def stop(self) -> None:
        self._background.run(self._runner.cleanup())

    def start(self) -> None:
        self._background.run(self._listen())

    def close(self) -> None:
        self._background.run(self._runner.cleanup())
        self._background.run(self._service.stop())

    async def _start(self) -> None:
        self._service = await self.world.start()
        self.world.running.clear()
        await self._listen()

    async def _listen(self) -> None:
        reviews = FakeReviews()
        reviews.rights = {("web", "list", "")}
        one = self._service
        parts = Parts(one.store, one.fleet, one.service, one.sweep, Access(reviews), Health())
        self._runner = web.AppRunner(build_app(parts), access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
