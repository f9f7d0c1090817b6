"""Leadership by a Lease, on a real API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.lease import LeaderElection, LeadershipLost, LeaseTiming
from ipuhub.kube.resources import LEASES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.embedded_only
QUICK = LeaseTiming(duration_seconds=1.0, renew_deadline_seconds=0.6, retry_seconds=0.05)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[DevCluster]:
    server = DevCluster(tmp_path / "cluster")
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.fixture
async def client(cluster: DevCluster) -> AsyncIterator[KubeClient]:
    async with KubeClient(load_config(str(cluster.kubeconfig))) as opened:
        yield opened


class Replica:
    """Counts who works at the same time."""

    def __init__(self, client: KubeClient, name: str, at_work: list[str]) -> None:
        self.name = name
        self.at_work = at_work
        self.election = LeaderElection(client, "default", "ipuhub-test", name, QUICK)
        self.works = asyncio.Event()
        self.task = asyncio.create_task(self.election.lead(self.work))

    async def work(self) -> None:
        self.at_work.append(self.name)
        assert len(self.at_work) == 1, "two replicas work at the same time"
        self.works.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.at_work.remove(self.name)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def lease(client: KubeClient) -> dict[str, Any]:
    found = await client.get(LEASES, "ipuhub-test", "default")
    spec: dict[str, Any] = found["spec"]
    return spec


async def test_one_works_and_the_other_follows_at_once_on_a_clean_stop(client: KubeClient) -> None:
    at_work: list[str] = []
    first = Replica(client, "a", at_work)
    await asyncio.wait_for(first.works.wait(), 5)
    second = Replica(client, "b", at_work)
    while second.election.holder != "a":
        await asyncio.sleep(0.01)
    assert not second.works.is_set()
    await first.stop()
    began = asyncio.get_running_loop().time()
    await asyncio.wait_for(second.works.wait(), 5)
    assert asyncio.get_running_loop().time() - began < QUICK.duration_seconds
    assert (await lease(client))["holderIdentity"] == "b"
    assert (await lease(client))["leaseTransitions"] == 1
    await second.stop()
    assert (await lease(client))["holderIdentity"] == ""


async def test_a_silent_leader_is_followed_when_its_lease_is_over(client: KubeClient) -> None:
    dead = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "leaseTransitions": 3}
    dead["renewTime"] = "2036-01-01T00:00:00.000000Z"  # its clock was ahead: that is not compared
    meta = {"name": "ipuhub-test", "namespace": "default"}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
    await client.create(LEASES, body | {"spec": dead})
    began = asyncio.get_running_loop().time()
    replica = Replica(client, "a", [])
    await asyncio.wait_for(replica.works.wait(), 10)
    assert asyncio.get_running_loop().time() - began >= 1.0
    assert (await lease(client))["leaseTransitions"] == 4
    await replica.stop()


async def test_who_cannot_renew_stops_working(client: KubeClient, cluster: DevCluster) -> None:
    replica = Replica(client, "a", [])
    await asyncio.wait_for(replica.works.wait(), 5)
    await cluster.stop()
    with pytest.raises(LeadershipLost, match="lost the Lease default/ipuhub-test"):
        await asyncio.wait_for(replica.task, 10)
    assert replica.at_work == []
    assert not replica.election.is_leading


async def test_who_is_replaced_stops_working(client: KubeClient) -> None:
    replica = Replica(client, "a", [])
    await asyncio.wait_for(replica.works.wait(), 5)
    usurped = {"spec": {"holderIdentity": "b"}}
    await client.patch(LEASES, "ipuhub-test", usurped, "default")
    with pytest.raises(LeadershipLost, match="b holds it now"):
        await asyncio.wait_for(replica.task, 10)


async def test_many_replicas_and_always_at_most_one_works(client: KubeClient) -> None:
    at_work: list[str] = []
    replicas = [Replica(client, f"r{n}", at_work) for n in range(6)]
    for _ in range(len(replicas)):
        waiting = [asyncio.create_task(r.works.wait()) for r in replicas]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        for task in waiting:
            task.cancel()
        leader = next(r for r in replicas if r.works.is_set())
        await leader.stop()
        replicas.remove(leader)
    assert at_work == []
