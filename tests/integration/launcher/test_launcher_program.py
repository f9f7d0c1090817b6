"""`ipuhub-launcher` against the embedded API."""

from __future__ import annotations

import asyncio
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.devcluster.server import DevCluster
from ipuhub.env import SettingError
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from ipuhub.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, PODS
from jobs.crd.document import build_crd
from jobs.launcher.main import LauncherError, LauncherTask, read_task, run
from jobs.resources import IPUJOBS
from tests.builders.ipujobs import ipujob, worker
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.embedded_only


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[DevCluster]:
    server = DevCluster(tmp_path / "cluster")
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Job:
    """A stored job with two workers, and the task of its launcher."""

    def __init__(self, client: KubeClient, stored: dict[str, Any], task: LauncherTask) -> None:
        self.client, self.stored, self.task = client, stored, task
        self.said: list[str] = []

    async def add_worker(self, number: int) -> None:
        pod = worker(self.stored, number).build()
        pod["metadata"].pop("uid")
        status = worker(self.stored, number).running().build()["status"]
        await self.client.create(PODS, pod)
        name = pod["metadata"]["name"]
        await self.client.patch(PODS, name, {"status": status}, "default", subresource="status")

    async def says(self, words: str) -> None:
        await eventually(lambda: any(words in line for line in self.said))

    async def run(self, **changes: Any) -> None:
        await run(replace(self.task, **changes), self.said.append)


@pytest.fixture
async def job(cluster: DevCluster, tmp_path: Path) -> AsyncIterator[Job]:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\n")
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, build_crd())
        manifest = ipujob().workers(2).build()
        manifest["metadata"] = {"name": "sample", "namespace": "default"}
        stored = await client.create(IPUJOBS, manifest)
        task = LauncherTask(
            namespace="default",
            job="sample",
            uid=stored["metadata"]["uid"],
            instance=0,
            attempt=0,
            workers=2,
            folder=tmp_path / "opt",
            kubectl=str(kubectl),
            wait_seconds=90,
            kubeconfig=str(cluster.kubeconfig),
        )
        yield Job(client, stored, task)


async def test_it_ends_when_the_workers_are_ready_and_tells_its_progress(job: Job) -> None:
    running = asyncio.create_task(job.run())
    await job.says("0 of 2 workers are ready")
    await job.add_worker(0)
    await job.says("1 of 2 workers are ready; waiting for sample-worker-1 (not there yet)")
    await job.add_worker(1)
    await running
    assert job.said[-1] == "all 2 workers are ready"
    delivered = job.task.folder / "kubectl"
    assert delivered.stat().st_mode & stat.S_IXOTH


async def test_it_gives_up_with_a_sentence_when_its_time_is_over(job: Job) -> None:
    await job.add_worker(0)
    with pytest.raises(LauncherError, match=r"waited 3 s: 1 of 2 workers are ready; waiting for"):
        await job.run(wait_seconds=3)


async def test_a_pod_of_an_older_attempt_does_not_start_the_command(job: Job) -> None:
    await job.add_worker(0)
    await job.add_worker(1)
    status = {"instances": [{"index": 0, "attempt": 1, "state": "Restarting"}]}
    await job.client.patch(IPUJOBS, "sample", {"status": status}, "default", subresource="status")
    with pytest.raises(LauncherError, match="the job is at attempt 1, this pod belongs to"):
        await job.run()


async def test_without_kubectl_it_says_so(job: Job) -> None:
    with pytest.raises(LauncherError, match="no kubectl in this image"):
        await job.run(kubectl="")


def test_what_the_operator_did_not_say_is_named() -> None:
    with pytest.raises(SettingError, match="IPUHUB_JOB and IPUHUB_JOB_UID"):
        read_task({"IPUHUB_NAMESPACE": "default"})
    task = read_task(
        {"IPUHUB_NAMESPACE": "a", "IPUHUB_JOB": "b", "IPUHUB_JOB_UID": "c", "IPUHUB_WORKERS": "2"}
    )
    assert task.worker_names == ("b-worker-0", "b-worker-1")
