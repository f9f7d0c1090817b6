"""Reasons of failed and waiting jobs, and edits past the webhooks, on a cluster with nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jobs.ipujob.names import IPUJOBS
from tests.builders.ipujobs import ipujob
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from tests.integration.jobs.conftest import Cluster


def with_keeper(**annotations: str) -> dict[str, Any]:
    """A job whose launcher ends as told; a second container keeps its worker on any stand-in."""
    containers = [{"name": name, "image": "app:1"} for name in ("main", "keeper")]
    simulation = {f"sim/{key.replace('_', '-')}": value for key, value in annotations.items()}
    simulation["sim/runtime-seconds.keeper"] = "600"
    return ipujob().with_template(containers=containers).annotated(**simulation).build()


@pytest.mark.embedded_only  # the real server's stand-in nodes keep no last lines
async def test_the_container_the_code_and_the_last_lines_are_in_the_status(
    cluster: Cluster,
) -> None:
    await cluster.create(
        with_keeper(runtime_seconds="0", exit_code="139", log="epoch 1\nSegmentation fault\n")
    )
    status = (await cluster.until_state("sample", "Failed"))["status"]
    (entry,) = status["instances"]
    message = "Container main of sample-launcher exited with code 139 (SIGSEGV)"
    assert message in status["lastMessage"]
    assert entry["message"] == message
    assert entry["log"] == "epoch 1\nSegmentation fault"


async def test_out_of_memory_is_the_reason(cluster: Cluster) -> None:
    await cluster.create(
        with_keeper(runtime_seconds="0", exit_code="137", termination_reason="OOMKilled")
    )
    await cluster.until_state("sample", "Failed")
    assert "OOMKilled, exit code 137 (SIGKILL)" in await cluster.until_reason("sample", "OOMKilled")


@pytest.mark.embedded_only  # the real server's stand-in nodes pull every image
async def test_an_image_that_cannot_be_pulled_is_named(cluster: Cluster) -> None:
    await cluster.create(ipujob().annotated(**{"sim/image-pull-error": "true"}).build())
    wanted = 'Cannot pull image "app:1" for container main of pod sample-worker-0'
    # The launcher's image cannot be pulled either, and may have been tried first.
    await eventually(
        lambda: cluster.until_reason("sample", "ImagePullFailed"),
        lambda message: message.startswith(wanted),
    )


async def test_an_edit_past_the_webhooks_is_said_and_applied_by_a_resume(cluster: Cluster) -> None:
    await cluster.create(ipujob().workers(2).build())
    await cluster.until_state("sample", "Running")
    before = {name: pod["metadata"]["uid"] for name, pod in (await cluster.pods()).items()}
    smaller = {"spec": {"workers": {"replicas": 1}, "ipusPerModelReplica": "2"}}
    await cluster.client.patch(IPUJOBS, "sample", smaller, cluster.namespace)
    message = await cluster.until_reason("sample", "SpecChanged")
    assert "the partition's size, the number of workers" in message
    after = {name: pod["metadata"]["uid"] for name, pod in (await cluster.pods()).items()}
    assert after == before
    for suspend, state in ((True, "Suspended"), (False, "Running")):
        patch = {"spec": {"suspend": suspend}}
        await cluster.client.patch(IPUJOBS, "sample", patch, cluster.namespace)
        await cluster.until_state("sample", state)
    assert sorted(await cluster.pods()) == ["sample-launcher", "sample-worker-0"]
    assert cluster.partitions.held()[0].size == 8
