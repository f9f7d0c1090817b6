"""`check_uninstall`, the uninstall check of the operator, as the Helm chart's hook runs it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from devcluster.demo.cluster import CRD_FILE, apply_file
from devcluster.server import DevCluster
from ipuhub.kube.client import KubeClient
from ipuhub.kube.config import load_config
from jobs.ipujob.names import FINALIZER, IPUJOBS
from jobs.management.commands.check_uninstall import _held
from tests.builders.ipujobs import ipujob
from tests.fakes.manyobjects import ManyObjects, memory_below

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[DevCluster]:
    cluster = DevCluster(tmp_path / "cluster", port=0)
    await cluster.start()
    yield cluster
    await cluster.stop()


async def check(cluster: DevCluster, *arguments: str, **settings: str) -> tuple[int, str]:
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig)} | settings
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "manage.py"), "check_uninstall", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, output.decode()


async def test_a_job_with_our_finalizer_is_named_and_drained_when_told(
    cluster: DevCluster,
) -> None:
    assert await check(cluster) == (0, "No IPUJob needs the operator.\n")  # no CRD yet
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        await apply_file(client, CRD_FILE)
        held: dict[str, Any] = ipujob().build()
        held["metadata"] = {"name": "held", "finalizers": [FINALIZER, "example.com/other"]}
        free: dict[str, Any] = ipujob().build()
        free["metadata"] = {"name": "free"}
        for job in (held, free):
            await client.create(IPUJOBS, job, "default")

        code, output = await check(cluster)
        assert code == 1
        assert "1 IPUJobs still need the operator: default/held. Delete them" in output
        assert "Traceback" not in output

        code, output = await check(cluster, "--drain", "--seconds", "1")
        assert code == 1
        assert "still need the operator after 1 s: default/held" in output
        job = await client.get(IPUJOBS, "held", "default")
        assert job["metadata"]["deletionTimestamp"]  # what the operator would end now
        assert (await client.get(IPUJOBS, "free", "default"))["metadata"]["name"] == "free"

        patch = {"metadata": {"finalizers": None}}
        await client.patch(IPUJOBS, "held", patch, "default")
    assert await check(cluster, "--drain") == (0, "No IPUJob needs the operator.\n")


async def test_jobs_of_another_release_are_neither_in_the_way_nor_deleted(
    cluster: DevCluster,
) -> None:
    own = {"IPUHUB_JOB_NAMESPACES": "default,team-a"}
    async with KubeClient(load_config(str(cluster.kubeconfig))) as client:
        await apply_file(client, CRD_FILE)
        job: dict[str, Any] = ipujob().build()
        job["metadata"] = {"name": "other", "finalizers": [FINALIZER]}
        await client.create(IPUJOBS, job, "kube-public")
        for arguments in ((), ("--drain", "--seconds", "1")):
            outcome = await check(cluster, *arguments, **own)
            assert outcome == (0, "No IPUJob needs the operator.\n")
        left = await client.get(IPUJOBS, "other", "kube-public")
        assert "deletionTimestamp" not in left["metadata"]
        code, outcome = await check(cluster, IPUHUB_JOB_NAMESPACES="kube-public")
        assert (code, "kube-public/other" in outcome) == (1, True)
        await client.patch(IPUJOBS, "other", {"metadata": {"finalizers": None}}, "kube-public")


def large_job(number: int) -> dict[str, Any]:
    meta = {"namespace": "default", "name": f"job-{number:04}", "finalizers": [FINALIZER]}
    return {"metadata": meta, "spec": {"pad": f"{number:010000}"}}


async def test_thousands_of_jobs_are_checked_in_the_little_memory_of_the_hook() -> None:
    client = ManyObjects(4_000, large_job)
    with memory_below(15_000_000):  # in full they are 40 MB
        found = await _held(client)
    assert found == [("default", f"job-{number:04}") for number in range(4_000)]
