"""Jobs where a CRD of another source is installed, on a running API server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from ipuhub.kube.errors import ApiError
from ipuhub.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, EVENTS
from ipuhub.process.health import Health, build_runner, listening
from jobs.ipujob.names import IPUJOBS
from jobs.ipujob.storedstatus import CARRIER, read_status
from jobs.operator.statuscarrier import with_carried_fields
from jobs.operator.statuskeeper import CRD_NAME
from tests.builders.documents import build_crd_without_status_schema, our_crd
from tests.builders.ipujobs import ipujob
from tests.builders.publishedcrd import build_published_crd
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.integration.jobs.conftest import Cluster

pytestmark = pytest.mark.full_cluster


async def install(cluster: Cluster, crd: dict[str, Any]) -> None:
    """Another schema under the jobs, once the server goes by it."""
    patch = {"spec": {"versions": crd["spec"]["versions"]}}
    await cluster.client.patch(CUSTOM_RESOURCE_DEFINITIONS, CRD_NAME, patch)
    wants = "instances" in str(crd["spec"]["versions"])
    probe = ipujob("probe").current_shape().build()
    probe["metadata"]["finalizers"] = []
    await cluster.create(probe)
    status = {"desiredReplicas": 1, "lastMessage": "", "instances": [{"index": 0}]}

    async def is_in_force() -> bool:
        job = await cluster.client.patch(
            IPUJOBS, "probe", {"status": status}, cluster.namespace, subresource="status"
        )
        return ("instances" in job["status"]) is wants

    await eventually(is_in_force)
    await cluster.delete("probe")


@pytest.fixture
async def published(cluster: Cluster) -> AsyncIterator[Cluster]:
    """A cluster with the published CRD; its operator has found it there."""
    await cluster.stop_operator()
    await install(cluster, build_published_crd())
    await cluster.start_operator()
    yield cluster
    await cluster.stop_operator()
    await install(cluster, our_crd())
    await cluster.start_operator()


async def test_what_the_crd_drops_is_a_sentence_on_readyz_and_an_event_of_the_crd(
    published: Cluster,
) -> None:
    await published.stop_operator()
    published.health = health = Health()  # type: ignore[assignment]  # the real Health, with its pages
    runner = build_runner(health.app())
    stack = contextlib.AsyncExitStack()
    port = await stack.enter_async_context(listening(runner, "127.0.0.1", 0))
    await published.start_operator()
    url = f"http://127.0.0.1:{port}/readyz"

    async def readyz() -> tuple[int, str]:
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            return answer.status, await answer.text()

    async def events() -> list[dict[str, Any]]:
        crd = await published.client.get(CUSTOM_RESOURCE_DEFINITIONS, CRD_NAME)
        about = f"involvedObject.uid={crd['metadata']['uid']}"
        return list((await published.client.list(EVENTS, "default", field_selector=about)).items)

    _, text = await eventually(readyz, lambda found: "crd: " in found[1] and found[0] == 200)
    assert text.startswith(
        f"ok\ncrd: The CRD {CRD_NAME} in this cluster is not IPUHub's: it drops "
    )
    assert "apply IPUHub's CRD (charts/ipuhub/files" in text
    found = await eventually(events, lambda found: any(one["message"] in text for one in found))
    assert {(one["type"], one["reason"]) for one in found} == {("Warning", "OtherCrd")}
    await published.stop_operator()
    await install(published, without_decisions())
    await published.start_operator()
    _, text = await eventually(
        readyz, lambda found: "no job can run" in found[1] and found[0] == 503
    )
    problem = f"The CRD {CRD_NAME} in this cluster drops status.launcherStatus: no job can run; "
    assert problem in text
    found = await eventually(events, lambda found: any(problem in one["message"] for one in found))
    assert {one["reason"] for one in found} == {"OtherCrd"}
    await stack.aclose()


def without_decisions() -> dict[str, Any]:
    """A CRD that drops the operator's own status fields."""
    crd = build_published_crd()
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del root["properties"]["status"]["properties"]["launcherStatus"]
    return crd


async def test_a_failing_job_is_restarted_once_and_the_operator_that_follows_knows_it(
    published: Cluster,
) -> None:
    job = ipujob().current_shape().with_spec(restartPolicy={"type": "OnFailure", "backOffLimit": 1})
    sim = {"sim/exit-code": "3", "sim/runtime-seconds": "0"}
    await published.create(job.annotated(**sim).build())

    async def restarting() -> dict[str, Any] | None:
        status: dict[str, Any] = (await published.job("sample") or {}).get("status") or {}
        return status if status.get("restartCount") == 1 else None

    status = await eventually(restarting)
    assert "instances" not in status
    assert with_carried_fields(status)["instances"][0]["attempt"] == 1
    await published.stop_operator()
    await published.start_operator()
    status = (await published.until_state("sample", "Failed"))["status"]
    assert status["restartCount"] == 1
    assert with_carried_fields(status)["instances"][0]["attempt"] == 1
    await eventually(lambda: published.partitions.used == 0)


async def test_once_our_crd_is_applied_the_fields_are_where_they_belong(
    published: Cluster,
) -> None:
    """A real server shows the edit by a watch of before, without the new field."""
    sim = {"sim/runtime-seconds": "600"}
    await published.create(ipujob().current_shape().annotated(**sim).build())
    assert CARRIER in str(await published.until_state("sample", "Running"))
    await install(published, our_crd())
    patch = {"spec": {"activeDeadlineSeconds": 1}}
    await published.client.patch(IPUJOBS, "sample", patch, published.namespace)
    status = (await published.until_state("sample", "Failed"))["status"]
    assert status["instances"][0]["state"] == "Failed"


@pytest.fixture
async def unchecked(cluster: Cluster) -> AsyncIterator[Cluster]:
    """A cluster with a CRD that has no schema of the status."""
    patch = {"spec": {"versions": build_crd_without_status_schema()["spec"]["versions"]}}
    await cluster.client.patch(CUSTOM_RESOURCE_DEFINITIONS, CRD_NAME, patch)
    yield cluster
    await install(cluster, our_crd())


async def test_a_malformed_status_is_reported_once_and_written_again(unchecked: Cluster) -> None:
    sim = {"sim/runtime-seconds": "600"}
    await unchecked.create(ipujob().current_shape().annotated(**sim).build())
    await unchecked.until_state("sample", "Running")

    async def with_its_worker() -> dict[str, Any] | None:
        status: dict[str, Any] = (await unchecked.job("sample") or {})["status"]
        return status if status["workersStatus"] == {"active": 1} else None

    before = await eventually(with_its_worker)  # a launcher may run some time before it is told
    pods = {name: pod["metadata"]["uid"] for name, pod in (await unchecked.pods()).items()}
    broken = {"conditions": [7], "instances": [{"index": "0"}], "workersStatus": "x", "ipus": True}

    async def is_accepted() -> bool:
        try:
            await unchecked.client.patch(
                IPUJOBS, "sample", {"status": broken}, unchecked.namespace, subresource="status"
            )
        except ApiError:
            return False  # the server still goes by the schema of before
        return True

    async def mended() -> dict[str, Any] | None:
        status: dict[str, Any] = (await unchecked.job("sample") or {})["status"]
        return None if read_status(status).malformed or "ipus" not in status else status

    await eventually(is_accepted)
    status = await eventually(mended)
    kept = ("launcherStatus", "instances", "partitions", "ipus", "workersStatus", "startTime")
    assert {name: status[name] for name in kept} == {name: before[name] for name in kept}
    assert [c["type"] for c in status["conditions"] if c["status"] == "True"] == ["Running"]
    assert {n: pod["metadata"]["uid"] for n, pod in (await unchecked.pods()).items()} == pods

    async def events() -> list[dict[str, Any]]:
        found = (await unchecked.client.list(EVENTS, unchecked.namespace)).items
        return [event for event in found if event["reason"] == "StatusMalformed"]

    (event,) = await eventually(events)
    assert (event["type"], event.get("count", 1)) == ("Warning", 1)
    for path in ("conditions[0]", "instances[0].index", "workersStatus", "ipus"):
        assert f"status.{path}" in event["message"]
