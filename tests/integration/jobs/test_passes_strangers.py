"""Whole passes: pods that pose as pods of a job."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import structlog.testing

from jobs.ipujob.names import JobKey, pod_labels
from jobs.operator.metrics import OPERATOR
from jobs.operator.operator import fill_metrics
from tests.builders.ipujobs import ipujob
from tests.builders.passes import running_job
from tests.fakes.counted import metric_value
from tests.fakes.jobworld import JobWorld

if TYPE_CHECKING:
    from jobs.ipujob.names import Manifest

NOT_OURS = [
    pytest.param("other-tenant", "sample-launcher", "", id="in another namespace"),
    pytest.param("default", "evil", "", id="under a name that the job does not use"),
    pytest.param("default", "sample-worker-7", "", id="a worker's name, a launcher's role"),
    pytest.param("default", "sample-worker-07", "", id="a name that is nearly a worker's"),
    pytest.param("default", "sample-worker-", "", id="a worker's name without a number"),
    pytest.param("default", "evil", "uid-of-a-job", id="owned by the job, under another name"),
]


def claim(
    world: JobWorld, uid: str, namespace: str, name: str, controller: str = "", phase: str = ""
) -> Manifest:
    """A stranger's pod with all labels of a job's pod; `controller` is the UID of its controller,
    "uid-of-a-job": the job."""
    role = "launcher" if name in {"sample-launcher", "evil", "sample-worker-7"} else "worker"
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "labels": pod_labels(JobKey(namespace, "sample", uid), role, 0, 0),
    }
    if controller:
        owner = uid if controller == "uid-of-a-job" else controller
        meta["ownerReferences"] = [{"uid": owner, "controller": True, "kind": "X", "name": "x"}]
    made = world.kube.put("pods", {"metadata": meta, "spec": {"containers": [{"name": "x"}]}})
    world.kube.strangers.add(made["metadata"]["uid"])
    placed = world.kube.objects["pods", namespace, name]
    placed["status"] = {"phase": phase or "Succeeded"}
    return placed


def uid_of_sample(world: JobWorld) -> str:
    return str((world.kube.job("sample") or {})["metadata"]["uid"])


@pytest.mark.parametrize(("namespace", "name", "controller"), NOT_OURS)
async def test_a_strangers_pod_does_not_end_a_running_job(
    namespace: str, name: str, controller: str
) -> None:
    world = await running_job(ipujob())
    claim(world, uid_of_sample(world), namespace, name, controller)
    place = ("pods", "default", "sample-launcher")
    world.kube.objects[place] = world.kube.objects.pop(place)  # the stranger's is listed first
    await world.run(3, launcher_exit=None)
    assert world.state() == "Running"


@pytest.mark.parametrize(("namespace", "name", "controller"), NOT_OURS)
async def test_a_strangers_pod_does_not_end_a_job_that_waits(
    namespace: str, name: str, controller: str
) -> None:
    world = JobWorld(ipus=0)
    uid = world.kube.add_job(ipujob().build())
    await world.passes(2)
    claim(world, uid, namespace, name, controller)
    await world.run(3, launcher_exit=None)
    assert world.state() == "Pending"
    assert world.condition()["reason"] == "NoCapacity"


@pytest.mark.parametrize(("namespace", "name", "controller"), NOT_OURS)
async def test_a_strangers_running_pod_holds_up_no_deletion_and_is_left_alone(
    namespace: str, name: str, controller: str
) -> None:
    world = await running_job(ipujob())
    pod = claim(world, uid_of_sample(world), namespace, name, controller, "Running")
    pod["metadata"]["finalizers"] = ["example.com/mine"]
    before = copy.deepcopy(pod)
    world.kube.delete_job("sample")
    await world.passes(1)
    assert "deletionTimestamp" not in pod["metadata"]
    await world.run(5, launcher_exit=None)
    assert world.kube.job("sample") is None
    assert world.partitions.used == 0
    assert [left["metadata"]["name"] for left in world.kube.pods()] == [name]
    if controller != "uid-of-a-job":  # that pod is the garbage collector's
        assert pod == before


@pytest.mark.parametrize(("namespace", "name", "controller"), NOT_OURS)
async def test_a_strangers_running_pod_holds_up_no_release_of_a_finished_job(
    namespace: str, name: str, controller: str
) -> None:
    world = await running_job(ipujob())
    claim(world, uid_of_sample(world), namespace, name, controller, "Running")
    await world.until(lambda: world.state() == "Completed")
    await world.run(4, launcher_exit=None)
    assert world.partitions.used == 0
    assert world.kube.objects["pods", namespace, name]["spec"] == {"containers": [{"name": "x"}]}


async def test_a_strangers_pod_is_not_taken_for_what_a_job_has_left() -> None:
    world = JobWorld()
    pod = claim(world, "a-job-that-never-was", "default", "evil", "", "Running")
    before = copy.deepcopy(pod)
    assert await world.controller.reconcile("a-job-that-never-was") == "gone"
    assert pod == before
    assert world.kube.calls.total() == 0


@pytest.mark.parametrize("stranger", ["evil", "sample-launcher"])
async def test_what_a_job_has_left_is_found_beside_a_strangers_pod(stranger: str) -> None:
    world = JobWorld()
    other = claim(world, "gone", "other-tenant", stranger, "", "Running")
    if stranger == "sample-launcher":  # it goes already, and will not for long
        other["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    before = copy.deepcopy(other)
    left = claim(world, "gone", "default", "sample-launcher", "", "Running")
    await world.passes(1)
    assert left["metadata"].get("deletionTimestamp")
    assert other == before


async def test_what_a_job_has_left_is_found_beside_a_strangers_config_map() -> None:
    world = JobWorld()
    labels = pod_labels(JobKey("default", "sample", "gone"), "", 0, 0)
    for namespace, name in (("other-tenant", "evil"), ("default", "sample-launcher")):
        meta = {"name": name, "namespace": namespace, "labels": labels}
        world.kube.put("configmaps", {"metadata": meta})
    await world.controller.reconcile("gone")
    assert list(world.kube.objects) == [("configmaps", "other-tenant", "evil")]


async def test_a_copy_of_a_pod_in_another_namespace_is_left_alone_when_the_job_goes() -> None:
    world = await running_job(ipujob())
    job = world.kube.job("sample")
    assert job is not None
    pod = claim(world, uid_of_sample(world), "other-tenant", "sample-launcher", "", "Running")
    job["metadata"]["finalizers"] = []
    world.kube.delete_job("sample")
    await world.run(4, launcher_exit=None)
    assert world.partitions.used == 0
    assert [place for place in world.kube.objects if place[1] == "default"] == []
    assert "deletionTimestamp" not in pod["metadata"]


@pytest.mark.parametrize("plural", ["pods", "configmaps"])
async def test_what_something_else_controls_under_the_jobs_name_is_a_conflict(plural: str) -> None:
    world = JobWorld(ipus=0)
    uid = world.kube.add_job(ipujob().build())
    await world.passes(1)
    if plural == "pods":
        taken = claim(world, uid, "default", "sample-launcher", "another", "Running")
    else:
        owners = [{"uid": "another", "controller": True}]
        labels = pod_labels(JobKey("default", "sample", uid), "", 0, 0)
        meta = {"name": "sample-launcher", "namespace": "default", "labels": labels}
        world.kube.put(plural, {"metadata": meta | {"ownerReferences": owners}})
        taken = world.kube.objects[plural, "default", "sample-launcher"]
    before = copy.deepcopy(taken)
    world.partitions.ipus = 32
    world.kube.put(
        "configmaps", {"metadata": {"name": "b", "namespace": "default", "uid": "another"}}
    )
    (world.kube.job("sample") or {})["metadata"]["creationTimestamp"] = "2026-03-01T10:00:00Z"
    await world.run(6, launcher_exit=None)
    assert world.condition()["reason"] == "NameConflict"
    assert "sample-launcher" in world.condition()["message"]
    world.kube.delete_job("sample")
    await world.run(6, launcher_exit=None)
    assert world.kube.job("sample") is None
    assert taken == before


def ignored_pods(world: JobWorld) -> float:
    """Return the ignored pods by the operator's metrics."""
    fill_metrics(world.controller, world.now)
    return metric_value(OPERATOR, "ipuhub_operator_ignored_pods")


async def test_strangers_pods_are_counted_and_told_once_in_the_log() -> None:
    world = await running_job(ipujob())
    uid = uid_of_sample(world)
    with structlog.testing.capture_logs() as logged:
        claim(world, uid, "other-tenant", "evil")
        await world.passes(2)
        claim(world, uid, "default", "evil")
        await world.passes(2)
        assert ignored_pods(world) == 2
        world.kube.objects.pop(("pods", "other-tenant", "evil"))
        await world.passes(2)
        assert ignored_pods(world) == 1
        world.kube.delete_job("sample")
        await world.run(4, launcher_exit=None)
        assert ignored_pods(world) == 1
        world.kube.objects.pop(("pods", "default", "evil"))
        await world.controller.reconcile(uid)
    assert ignored_pods(world) == 0
    entries = [entry for entry in logged if "ignored" in entry["event"]]
    assert [(entry["job_uid"], entry["pods"]) for entry in entries] == [
        (uid, ["other-tenant/evil"])
    ]
