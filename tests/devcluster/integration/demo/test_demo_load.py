"""The stream of sample jobs, against the embedded API; the test plays the operator."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from devcluster.demo.cluster import CRD_FILE, apply_file
from devcluster.demo.load import IPUJOBS, DemoLoad, LoadOptions
from devcluster.demo.samples import LABEL, TEAMS
from devcluster.management.commands.run_demo_load import read_options
from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import NAMESPACES
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BRISK = LoadOptions(pause_seconds=0.01, alive=3, kept=2, shortest_seconds=5, longest_seconds=9)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[KubeClient]:
    cluster = DevCluster(tmp_path / "cluster", authorization="rbac")
    await cluster.start()
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        await apply_file(client, CRD_FILE)
        yield client
    await cluster.stop()


@contextlib.asynccontextmanager
async def running(load: DemoLoad) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(load.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def jobs(client: KubeClient) -> list[dict[str, Any]]:
    return (await client.list(IPUJOBS, label_selector=f"{LABEL}=true")).items


async def finish(client: KubeClient, job: dict[str, Any], state: str = "Completed") -> None:
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    body = {"status": {"launcherStatus": state}}
    await client.patch(IPUJOBS, name, body, namespace, subresource="status")


async def test_it_keeps_so_many_alive_and_so_many_finished_and_goes_on(client: KubeClient) -> None:
    load = DemoLoad(client, BRISK, clock=lambda: 0.0)
    async with running(load):
        await eventually(lambda: load.counts["submitted"] == 3)
        rounds = client.calls["list", "ipujobs"]
        await eventually(lambda: client.calls["list", "ipujobs"] > rounds + 3)
        assert load.counts["submitted"] == 3
        first = {job["metadata"]["name"] for job in await jobs(client)}
        for job in await jobs(client):
            await finish(client, job)
        await eventually(lambda: load.counts["submitted"] == 6 and load.counts["deleted"] == 1)
    left = await jobs(client)
    kept = [job for job in left if job["metadata"]["name"] in first]
    assert (len(left), len(kept)) == (5, 2)
    groups = {
        item["metadata"]["name"]: item["metadata"]["labels"]["ipuhub.io/group"]
        for item in (await client.list(NAMESPACES, label_selector=f"{LABEL}=true")).items
    }
    assert groups == {team.namespace: team.group for team in TEAMS}


async def test_a_second_run_goes_on_with_the_numbers_and_leaves_other_jobs_alone(
    client: KubeClient,
) -> None:
    own = {"metadata": {"name": "mine"}, "spec": {}}
    manifest = {"apiVersion": "graphcore.ai/v1alpha1", "kind": "IPUJob", **own}
    await client.create(IPUJOBS, manifest, "default")
    await client.patch(
        IPUJOBS, "mine", {"status": {"launcherStatus": "Failed"}}, "default", subresource="status"
    )
    for wanted in (3, 6):
        load = DemoLoad(client, BRISK, clock=lambda: 0.0)
        async with running(load):
            await eventually(lambda: load.counts["submitted"] == 3)  # noqa: B023
        for job in await jobs(client):
            await finish(client, job, "Failed")
        numbers = sorted(int(job["metadata"]["name"][-5:]) for job in await jobs(client))
        assert numbers[-1] == wanted
    assert await client.get(IPUJOBS, "mine", "default")


async def test_it_ends_by_itself_when_so_many_have_finished(client: KubeClient) -> None:
    load = DemoLoad(
        client, LoadOptions(0.01, alive=9, jobs=4, shortest_seconds=1), clock=lambda: 0.0
    )
    task = asyncio.create_task(load.run(asyncio.Event()))
    await eventually(lambda: load.counts["submitted"] == 4)
    assert not task.done()
    for job in await jobs(client):
        await finish(client, job)
    await asyncio.wait_for(task, 90)
    assert load.counts["submitted"] == 4


async def test_jobs_that_are_to_be_deleted_are_deleted_while_they_run(client: KubeClient) -> None:
    now = [0.0]
    options = LoadOptions(0.01, alive=60, jobs=60, shortest_seconds=5, longest_seconds=6)
    load = DemoLoad(client, options, clock=lambda: now[0])
    async with running(load):
        await eventually(lambda: load.counts["submitted"] == 60)
        assert load.counts["deleted"] == 0
        now[0] = 10.0
        await eventually(lambda: load.counts["deleted"] > 0)


def test_durations_that_contradict_each_other_are_refused_in_words() -> None:
    given = {"pause": 1, "alive": 1, "kept": 1, "shortest": 9, "longest": 3, "jobs": 0, "seed": 1}
    with pytest.raises(ValueError, match="--shortest 9 is more than --longest 3"):
        read_options(given)
