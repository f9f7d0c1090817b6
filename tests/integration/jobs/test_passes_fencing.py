"""What an operator plans from a copy that is late is not carried out: UID, attempt and version of
what it saw go with each write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jobs.actions import CreateChild, DeleteChild, EndPod, Kind, PatchStatus, Plan, Step
from jobs.names import LABEL_JOB_UID
from tests.builders.ipujobs import ipujob
from tests.builders.passes import started

if TYPE_CHECKING:
    from jobs.actions import Action
    from jobs.execute import Outcome
    from jobs.observed import Observed
    from tests.fakes.jobworld import JobWorld

FAILED = PatchStatus({"launcherStatus": "Failed"}, ())


def seen(world: JobWorld) -> Observed:
    uid = (world.kube.job("sample") or {})["metadata"]["uid"]
    found = world.controller.observer.observe(uid)
    assert found is not None
    return found


async def carried_out(world: JobWorld, observed: Observed, *actions: Action) -> Outcome:
    return await world.controller.executor.execute(observed, Plan((Step("late", actions),)))


async def test_a_status_is_not_written_over_a_job_that_has_changed() -> None:
    world = await started(ipujob())
    late = seen(world)
    world.kube.edit_job("sample", activeDeadlineSeconds=600)
    assert (await carried_out(world, late, FAILED)).failed
    assert world.state() == "Running"
    assert not (await carried_out(world, seen(world), FAILED)).failed
    assert world.state() == "Failed"


async def test_an_end_by_absence_is_not_written_while_the_pod_is_there() -> None:
    world = await started(ipujob())
    for attempt, want in ((0, "Running"), (1, "Failed")):
        end = PatchStatus({"launcherStatus": "Failed"}, (), (("sample-worker-0", attempt),))
        assert (await carried_out(world, seen(world), end)).failed is (attempt == 0)
        assert world.state() == want


@pytest.mark.parametrize("kind", [DeleteChild, EndPod])
async def test_a_pod_that_has_the_name_now_is_left_alone(kind: type) -> None:
    world = await started(ipujob())
    before = {pod["metadata"]["name"]: dict(pod) for pod in world.kube.pods()}
    where = ("default", "sample-worker-0", "uid-of-another")
    action = DeleteChild(Kind.POD, *where) if kind is DeleteChild else EndPod(*where)
    assert (await carried_out(world, seen(world), action)).failed
    assert {pod["metadata"]["name"]: dict(pod) for pod in world.kube.pods()} == before


async def test_no_pod_is_made_for_a_job_that_has_changed() -> None:
    world = await started(ipujob())
    late = seen(world)
    labels = {LABEL_JOB_UID: late.key.uid}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "sample-worker-7", "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "a"}]},
    }
    world.kube.edit_job("sample", suspend=True)
    assert (await carried_out(world, late, CreateChild(Kind.POD, pod))).failed
    assert "sample-worker-7" not in {p["metadata"]["name"] for p in world.kube.pods()}
    assert not (await carried_out(world, seen(world), CreateChild(Kind.POD, pod))).failed
    assert "sample-worker-7" in {p["metadata"]["name"] for p in world.kube.pods()}
