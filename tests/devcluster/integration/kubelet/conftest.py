"""An API server, embedded or real, and stand-in nodes on it that end with the test."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devcluster.kubelet.options import StandInOptions
from devcluster.kubelet.standin import StandInNodes
from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import NotFound
from ipuhub.kube.resources import NODES, PODS
from tests.fakes.waiting import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

TRAPPED = ["sh", "-c", 'trap "exit 0" TERM; sleep 365d & wait']
NAMESPACE = "default"


@pytest.fixture
async def kubeconfig(tmp_path: Path, given_cluster: str) -> AsyncIterator[Path]:
    """The real API server of IPUHUB_TEST_KUBECONFIG, else an embedded server."""
    if given_cluster:
        yield Path(given_cluster)
        return
    server = DevCluster(tmp_path / "cluster")
    await server.start()
    yield server.kubeconfig
    await server.stop()


@dataclass
class Cluster:
    """A cluster as a test sees it; names are the test's own."""

    client: KubeClient
    suffix: str = field(default_factory=lambda: secrets.token_hex(3))
    _nodes: asyncio.Task[None] | None = None

    def options(self, **changes: Any) -> StandInOptions:
        """Nodes of this test only, with a scheduler of their own name."""
        defaults: dict[str, Any] = {
            "nodes": 2,
            "prefix": f"standin-{self.suffix}-",
            "labels": {"test": self.suffix},
            "scheduler_name": f"standin-{self.suffix}",
            "claims": False,
        }
        return StandInOptions(**(defaults | changes))

    async def start(self, **changes: Any) -> StandInOptions:
        options = self.options(**changes)
        self._nodes = asyncio.create_task(StandInNodes(self.client, options).run())
        return options

    async def stop(self) -> None:
        if self._nodes is not None:
            self._nodes.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._nodes
            self._nodes = None

    def name(self, name: str) -> str:
        return f"{name}-{self.suffix}"

    async def create_pod(
        self, name: str, *, sim: dict[str, str] | None = None, command: Any = None, **spec: Any
    ) -> Any:
        """Create a pod for this test's scheduler; `labels` go to its metadata."""
        labels = spec.pop("labels", {})
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name(name),
                "labels": labels,
                "annotations": {f"sim/{key}": value for key, value in (sim or {}).items()},
            },
            "spec": {
                "schedulerName": f"standin-{self.suffix}",
                "restartPolicy": "Never",
                "nodeSelector": {"test": self.suffix},
                "containers": [{"name": "main", "image": "main:1", "command": command or ["run"]}],
                **spec,
            },
        }
        return await self.client.create(PODS, body, NAMESPACE)

    async def pod(self, name: str) -> Any:
        return await self.client.get(PODS, self.name(name), NAMESPACE)

    async def delete_pod(self, name: str, grace: int | None = None) -> None:
        await self.client.delete(PODS, self.name(name), NAMESPACE, grace_period_seconds=grace)

    async def patch_pod(self, name: str, patch: Any) -> None:
        await self.client.patch(PODS, self.name(name), patch, NAMESPACE)

    async def pod_until(
        self, name: str, holds: Callable[[Any], Any], seconds: float = PATIENCE_SECONDS
    ) -> Any:
        """Return the pod as soon as `holds` is true of it."""
        return await eventually(lambda: self.pod(name), holds, seconds=seconds)

    async def until_phase(self, name: str, phase: str, seconds: float = PATIENCE_SECONDS) -> Any:
        return await self.pod_until(name, lambda pod: pod["status"].get("phase") == phase, seconds)

    async def until_gone(self, name: str, seconds: float = PATIENCE_SECONDS) -> None:
        async def look() -> bool:
            try:
                await self.pod(name)
            except NotFound:
                return True
            return False

        await eventually(look, seconds=seconds)

    async def clean_up(self) -> None:
        await self.stop()
        for resource, namespace in ((PODS, NAMESPACE), (NODES, None)):
            found = await self.client.list(resource, namespace)
            for one in found.items:
                if self.suffix in one["metadata"]["name"]:
                    with contextlib.suppress(NotFound):
                        await self.client.delete(
                            resource, one["metadata"]["name"], namespace, grace_period_seconds=0
                        )


@pytest.fixture
async def cluster(kubeconfig: Path) -> AsyncIterator[Cluster]:
    async with KubeClient(load_config(str(kubeconfig))) as client:
        made = Cluster(client)
        try:
            yield made
        finally:
            await made.clean_up()
