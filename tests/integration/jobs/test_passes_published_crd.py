"""Jobs on a cluster whose CRD drops every field that the published CRD does not know."""

from __future__ import annotations

import pytest
import structlog

from jobs.ipujob.storedstatus import CARRIER
from jobs.operator.statuscarrier import with_carried_fields
from tests.builders.ipujobs import ipujob
from tests.builders.publishedcrd import STATUS_FIELDS
from tests.fakes.jobworld import JobWorld

RESTARTS = {"type": "OnFailure", "backOffLimit": 2}


def world_of_published() -> JobWorld:
    world = JobWorld()
    world.kube.status_fields = STATUS_FIELDS
    world.kube.add_job(ipujob().with_spec(restartPolicy=RESTARTS).build())
    return world


@pytest.mark.parametrize("restarts_operator", [False, True])
async def test_a_failing_job_is_restarted_as_often_as_it_says(restarts_operator: bool) -> None:
    world = world_of_published()
    for _ in range(60):
        await world.passes()
        world.kube.tick(launcher_exit=1)
        if restarts_operator:
            world.start()  # which knows nothing of what the CRD keeps
    status = (world.kube.job("sample") or {})["status"]
    assert (status["launcherStatus"], status["restartCount"]) == ("Failed", 2)
    starts = {name: n for (_, name), n in world.kube.main_starts.items() if "launcher" in name}
    assert starts == {f"sample-launcher/{attempt}": 1 for attempt in range(3)}
    assert "instances" not in status
    assert with_carried_fields(status)["instances"][0]["attempt"] == 2
    assert with_carried_fields(status)["partitions"][0]["state"] == "released"
    assert world.partitions.used == 0


async def test_it_costs_few_writes_more() -> None:
    world = world_of_published()
    await world.run(60, launcher_exit=1)
    assert (
        world.kube.calls["patch", "ipujobs"] <= 15
    )  # three attempts of four, the release, and one to learn


async def test_a_status_that_does_not_stick_is_decided_once_and_no_job_is_touched() -> None:
    world = JobWorld()
    world.kube.status_fields = frozenset({"desiredReplicas", "lastMessage"})
    world.kube.add_job(ipujob().build())
    with structlog.testing.capture_logs() as logged:
        await world.run(20)
    says = [line["says"] for line in logged if line["event"] == "the CRD of IPUJobs"]
    assert len(says) == 2  # each thing that it learns, once
    assert says[-1] == world.controller.effects.keeper.problem
    assert world.kube.pods() == []
    assert world.kube.calls["patch", "ipujobs"] <= 2
    assert world.events.reasons == ["StatusNotKept"]
    assert "apply IPUHub's" in world.controller.effects.keeper.problem
    world.kube.delete_job("sample")
    await world.run(5)
    assert world.kube.job("sample") is None


async def test_once_the_right_crd_is_there_the_fields_go_where_they_belong() -> None:
    world = world_of_published()
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    assert CARRIER in str(world.kube.job("sample"))
    world.kube.status_fields = None
    await world.run(40, launcher_exit=1)
    status = (world.kube.job("sample") or {})["status"]
    assert status["instances"][0]["state"] == "Failed"
    assert CARRIER not in str(status)
