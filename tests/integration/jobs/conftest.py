"""A cluster with nodes (embedded, or of IPUHUB_TEST_KUBECONFIG) and an operator in it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.errors import AlreadyExists, ApiError, NotFound
from ipuhub.kube.events import EventRecorder
from ipuhub.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS, SERVICE_ACCOUNTS
from ipuhub.times import utc_now
from jobs.ipujob.names import IPUJOBS
from jobs.operator.operator import Operator, OperatorOptions
from tests.builders.documents import our_crd
from tests.fakes.partitions import FakePartitions
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class HealthLog:
    """Remembers what the operator says of its health."""

    def __init__(self) -> None:
        self.checks: dict[str, tuple[bool, str]] = {}
        self.notes: dict[str, str] = {}

    def set(self, name: str, ok: bool, detail: str = "") -> None:
        self.checks[name] = (ok, detail)

    def note(self, name: str, sentence: str) -> None:
        self.notes[name] = sentence

    def beat(self, name: str) -> None:
        assert name


@pytest.fixture
def nodes_offer() -> dict[str, Any]:
    """Return the stand-in nodes' resources, where they are not the usual."""
    return {}


@pytest.fixture
async def kubeconfig(
    tmp_path: Path, given_cluster: str, nodes_offer: dict[str, Any]
) -> AsyncIterator[Path]:
    """A cluster whose pods run."""
    if given_cluster:
        yield Path(given_cluster)
        return
    from devcluster.kubelet.options import StandInOptions
    from devcluster.kubelet.standin import StandInNodes
    from devcluster.server import DevCluster

    cluster = DevCluster(tmp_path / "cluster")
    await cluster.start()
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        nodes = asyncio.create_task(StandInNodes(client, StandInOptions(**nodes_offer)).run())
        try:
            yield cluster.kubeconfig
        finally:
            nodes.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await nodes
    await cluster.stop()


@dataclass
class Cluster:
    """A namespace of a cluster, with the CRD, and the operator that runs there."""

    client: KubeClient
    kubeconfig: Path
    namespace: str
    partitions: FakePartitions = field(default_factory=FakePartitions)
    health: HealthLog = field(default_factory=HealthLog)
    operator: Operator | None = None
    operator_client: KubeClient | None = None
    _task: asyncio.Task[None] | None = None

    async def start_operator(self, poll_seconds: float = 0.2) -> None:
        self.operator_client = KubeClient(load_config(str(self.kubeconfig)))
        self.operator = Operator(
            self.operator_client,
            self.partitions,
            EventRecorder(self.operator_client, "ipu-operator", utc_now),
            self.health,
            OperatorOptions(poll_seconds=poll_seconds),
        )
        self._task = asyncio.create_task(self.operator.run())

    async def stop_operator(self) -> None:
        if self._task is not None and self.operator_client is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            await self.operator_client.close()
            self._task = None

    async def create(self, job: dict[str, Any]) -> str:
        body = {**job, "metadata": {**job["metadata"], "namespace": self.namespace}}
        for bookkeeping in ("uid", "resourceVersion", "generation", "creationTimestamp"):
            body["metadata"].pop(bookkeeping, None)
        return str((await self.client.create(IPUJOBS, body))["metadata"]["uid"])

    async def job(self, name: str) -> dict[str, Any] | None:
        try:
            return await self.client.get(IPUJOBS, name, self.namespace)
        except NotFound:
            return None

    async def pods(self) -> dict[str, dict[str, Any]]:
        found = await self.client.list(PODS, self.namespace)
        return {pod["metadata"]["name"]: pod for pod in found.items}

    async def until_state(self, name: str, state: str) -> dict[str, Any]:
        async def reached() -> dict[str, Any] | None:
            job = await self.job(name)
            there = job is not None and (job.get("status") or {}).get("launcherStatus") == state
            return job if there else None

        return dict(await eventually(reached))

    async def until_reason(self, name: str, reason: str) -> str:
        """The message of the True condition with this reason."""

        async def reached() -> str | None:
            job = await self.job(name) or {}
            for condition in (job.get("status") or {}).get("conditions") or ():
                if (condition["status"], condition["reason"]) == ("True", reason):
                    return str(condition["message"])
            return None

        return str(await eventually(reached))

    async def delete(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            await self.client.delete(IPUJOBS, name, self.namespace)

    async def until_gone(self, name: str) -> None:
        async def gone() -> bool:
            return await self.job(name) is None and not await self.pods()

        await eventually(gone)


async def install_crd(client: KubeClient) -> None:
    """Installs the CRD and waits until it is served."""
    with contextlib.suppress(AlreadyExists):
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, our_crd())

    async def served() -> bool:
        try:
            await client.list(IPUJOBS)
        except ApiError:
            return False
        return True

    await eventually(served)


@pytest.fixture
async def cluster(kubeconfig: Path) -> AsyncIterator[Cluster]:
    """A fresh namespace with a running operator; all its jobs are gone afterwards."""
    async with KubeClient(load_config(str(kubeconfig))) as client:
        await install_crd(client)
        name = f"jobs-{uuid4().hex[:8]}"
        await client.create(NAMESPACES, {"metadata": {"name": name}})

        async def has_account() -> bool:
            try:
                await client.get(SERVICE_ACCOUNTS, "default", name)
            except NotFound:
                return False
            return True

        await eventually(has_account)
        made = Cluster(client, kubeconfig, name)
        await made.start_operator()
        try:
            yield made
        finally:
            left = [job["metadata"]["name"] for job in (await client.list(IPUJOBS, name)).items]
            for each in left:  # all first: none is gone while pods of another run
                await made.delete(each)
            for each in left:
                await made.until_gone(each)
            await made.stop_operator()
            await client.delete(NAMESPACES, name)
