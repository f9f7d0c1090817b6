"""Plans of an operator with a stale copy are not executed: each write carries the UID, attempt and
version that it was based on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.errors import ServerError
from jobs.ipujob.conditions import Reason
from jobs.ipujob.names import FINALIZER, LABEL_JOB_UID, Kind
from jobs.operator.actions import (
    CreateChild,
    DeleteChild,
    DeleteJob,
    EndPod,
    EnsurePartition,
    Event,
    PatchStatus,
    Plan,
    SetFinalizers,
    Step,
)
from tests.builders.ipujobs import ipujob
from tests.builders.passes import running_job
from tests.fakes.jobworld import JobWorld

if TYPE_CHECKING:
    from jobs.operator.actions import Action
    from jobs.operator.execute import Outcome
    from jobs.operator.observed import Observed

FAILED = PatchStatus({"launcherStatus": "Failed"}, ())


def seen(world: JobWorld) -> Observed:
    uid = (world.kube.job("sample") or {})["metadata"]["uid"]
    found = world.controller.observer.observe(uid)
    assert found is not None
    return found


async def carried_out(world: JobWorld, observed: Observed, *actions: Action) -> Outcome:
    return await world.controller.executor.execute(observed, Plan((Step("late", actions),)))


async def test_a_status_is_not_written_over_a_job_that_has_changed() -> None:
    world = await running_job(ipujob())
    late = seen(world)
    world.kube.edit_job("sample", activeDeadlineSeconds=600)
    assert (await carried_out(world, late, FAILED)).failed
    assert world.state() == "Running"
    assert not (await carried_out(world, seen(world), FAILED)).failed
    assert world.state() == "Failed"


async def test_an_end_by_absence_is_not_written_while_the_pod_is_there() -> None:
    world = await running_job(ipujob())
    for attempt, want in ((0, "Running"), (1, "Failed")):
        end = PatchStatus({"launcherStatus": "Failed"}, (), (("sample-worker-0", attempt),))
        assert (await carried_out(world, seen(world), end)).failed is (attempt == 0)
        assert world.state() == want


@pytest.mark.parametrize("kind", [DeleteChild, EndPod])
async def test_a_pod_that_has_the_name_now_is_left_alone(kind: type) -> None:
    world = await running_job(ipujob())
    before = {pod["metadata"]["name"]: dict(pod) for pod in world.kube.pods()}
    where = ("default", "sample-worker-0", "uid-of-another")
    action = DeleteChild(Kind.POD, *where) if kind is DeleteChild else EndPod(*where, 1)
    assert (await carried_out(world, seen(world), action)).failed
    assert {pod["metadata"]["name"]: dict(pod) for pod in world.kube.pods()} == before


async def test_what_is_said_of_a_job_that_has_gone_meanwhile_is_no_failure() -> None:
    world = await running_job(ipujob())
    late, reasons = seen(world), list(world.events.reasons)
    world.kube.objects.pop(("ipujobs", "default", "sample"))
    patch = PatchStatus({"launcherStatus": "Failed"}, (Event(Reason.DEADLINE_EXCEEDED, "over"),))
    for action in (patch, SetFinalizers(()), DeleteJob()):
        assert not (await carried_out(world, late, action)).failed
    assert world.events.reasons == reasons


async def test_a_job_that_has_the_name_now_is_not_deleted() -> None:
    world = await running_job(ipujob())
    late = seen(world)
    world.kube.delete_job("sample")
    await world.run(4)
    world.kube.add_job(ipujob().build())
    assert (await carried_out(world, late, DeleteJob())).failed
    assert "deletionTimestamp" not in (world.kube.job("sample") or {})["metadata"]
    assert not (await carried_out(world, seen(world), DeleteJob())).failed
    assert (world.kube.job("sample") or {})["metadata"]["deletionTimestamp"]


async def test_no_pod_is_made_for_a_job_that_has_changed() -> None:
    world = await running_job(ipujob())
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


async def test_the_writes_of_one_pass_do_not_stand_in_each_others_way() -> None:
    world = await running_job(ipujob())
    writes = (SetFinalizers((FINALIZER, "other")), FAILED)
    steps = tuple(Step("late", (action,)) for action in writes)
    assert not (await world.controller.executor.execute(seen(world), Plan(steps))).failed
    assert world.state() == "Failed"


async def test_no_pod_is_made_while_nobody_says_whether_the_job_has_changed() -> None:
    world = await running_job(ipujob())
    world.kube.faults["get", "ipujobs"] = [ServerError(500, "InternalError", "etcd is away")]
    pod = {"metadata": {"name": "sample-worker-7", "namespace": "default"}}
    assert (await carried_out(world, seen(world), CreateChild(Kind.POD, pod))).failed
    assert "sample-worker-7" not in {p["metadata"]["name"] for p in world.kube.pods()}


async def test_no_pod_is_made_for_a_job_that_has_gone() -> None:
    world = await running_job(ipujob())
    late = seen(world)
    world.kube.objects.pop(("ipujobs", "default", "sample"))
    pod = {"metadata": {"name": "sample-worker-7", "namespace": "default"}}
    assert (await carried_out(world, late, CreateChild(Kind.POD, pod))).failed
    assert "sample-worker-7" not in {p["metadata"]["name"] for p in world.kube.pods()}


async def test_the_partition_of_a_running_attempt_may_be_asked_for_again() -> None:
    world = await running_job(ipujob())
    assert not (await carried_out(world, seen(world), EnsurePartition(0, 0, 4))).failed
    assert (await carried_out(world, seen(world), EnsurePartition(0, 1, 4))).failed
    assert [one.attempt for one in world.partitions.held()] == [0]


async def test_what_a_job_has_given_back_is_not_made_again_for_a_late_copy() -> None:
    world = await running_job(ipujob())
    await world.run(6)
    assert world.partitions.held() == []
    late = seen(world)
    world.kube.edit_job("sample", ttlSecondsAfterFinished=600)
    assert (await carried_out(world, late, EnsurePartition(0, 0, 4))).failed
    assert world.partitions.held() == []
    assert not (await carried_out(world, seen(world), EnsurePartition(0, 0, 4))).failed
    assert len(world.partitions.held()) == 1


async def test_who_has_just_written_to_a_job_does_not_ask_whether_its_copy_is_late() -> None:
    world = JobWorld()
    uid = world.kube.add_job(ipujob().build())
    await world.passes()
    await world.controller.reconcile(uid)  # workers and launcher
    assert len(world.kube.pods()) == 2
    assert world.kube.calls["get", "ipujobs"] == 0  # its own write has told


async def test_no_pod_is_made_for_a_job_that_changes_while_a_partition_is_asked_for() -> None:
    world = await running_job(ipujob())
    ensure = world.partitions.ensure

    async def meanwhile(**request: Any) -> Any:
        world.kube.edit_job("sample", suspend=True)
        return await ensure(**request)

    world.partitions.ensure = meanwhile  # type: ignore[method-assign]
    pod = {"metadata": {"name": "sample-worker-7", "namespace": "default"}}
    actions = (
        SetFinalizers((FINALIZER, "other")),
        EnsurePartition(0, 0, 4),
        CreateChild(Kind.POD, pod),
    )
    steps = tuple(Step("late", (action,)) for action in actions)
    assert (await world.controller.executor.execute(seen(world), Plan(steps))).failed
    assert "sample-worker-7" not in {p["metadata"]["name"] for p in world.kube.pods()}


@pytest.mark.parametrize("kind", [DeleteChild, EndPod, PatchStatus])
async def test_no_pass_goes_by_a_copy_that_does_not_show_the_last_write(kind: type) -> None:
    world = await running_job(ipujob())
    observed, caches = seen(world), world.controller.effects.caches
    (pod,) = (pod for pod in observed.pods if pod.role == "worker")
    cache: Any = caches.jobs if kind is PatchStatus else caches.pods
    before = cache.get("default", "sample" if kind is PatchStatus else pod.name)
    cache.get = lambda *_: before
    where = ("default", pod.name, pod.uid)
    action = {
        DeleteChild: DeleteChild(Kind.POD, *where),
        EndPod: EndPod(*where, 1),
        PatchStatus: PatchStatus({"lastMessage": "told"}),
    }[kind]
    assert not (await carried_out(world, observed, action)).failed
    assert await world.controller.reconcile(observed.key.uid) == "deferred"
    del cache.get
    assert await world.controller.reconcile(observed.key.uid) == "done"
