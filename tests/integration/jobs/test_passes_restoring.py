"""Changes by others to a job's objects and its status are reverted; the check costs no calls."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from jobs.ipujob.names import format_time
from jobs.ipujob.storedstatus import read_status
from jobs.operator.ownership import trim_child
from tests.builders.ipujobs import ipujob
from tests.fakes.jobworld import JobWorld

NAME = "sample-launcher"
EDITS: list[tuple[str, str, Any]] = [
    ("configmaps", "data", {"hostfile": "elsewhere slots=9\n", "kubexec.sh": "exit 0\n"}),
    ("configmaps", "data", {}),
    ("configmaps", "binaryData", {"more": "AAAA"}),
    ("roles", "rules", []),
    ("roles", "rules", [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]),
    ("rolebindings", "subjects", [{"kind": "User", "name": "mallory"}]),
    ("rolebindings", "subjects", []),
]
ACCOUNT = {"kind": "ServiceAccount", "name": NAME, "namespace": "default"}


def child(world: JobWorld, plural: str) -> dict[str, Any]:
    return world.kube.objects[plural, "default", NAME]


def edit(world: JobWorld, plural: str, field: str, value: Any) -> None:
    found = child(world, plural)
    found[field] = value
    world.kube._bump(plural, found)


async def running() -> JobWorld:
    world = JobWorld()
    world.kube.add_job(ipujob().workers(2).build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    await world.run(3, launcher_exit=None)
    return world


@pytest.mark.parametrize(("plural", "field", "value"), EDITS)
async def test_what_somebody_edits_is_put_back_and_told(
    plural: str, field: str, value: Any
) -> None:
    world = await running()
    before = {key: child(world, plural).get(key) for key in ("data", "rules", "subjects")}
    pods = {pod["metadata"]["uid"] for pod in world.kube.pods()}
    edit(world, plural, field, value)
    await world.run(3, launcher_exit=None)
    assert {key: child(world, plural).get(key) for key in before} == before
    assert "binaryData" not in child(world, plural)
    assert world.events.reasons.count("ObjectRestored") == 1
    assert {pod["metadata"]["uid"] for pod in world.kube.pods()} == pods
    assert world.state() == "Running"


async def test_an_unchanged_world_costs_no_call() -> None:
    world = await running()
    world.kube.calls.clear()
    await world.run(5, launcher_exit=None)
    assert not world.kube.calls


async def test_where_the_cluster_itself_changes_it_it_is_made_again_now_and_then_only() -> None:
    world = JobWorld()
    put = world.kube.put

    def altered(plural: str, body: Any) -> Any:
        made = put(plural, body)
        found = world.kube.objects[plural, made["metadata"].get("namespace", ""), _name(made)]
        found["metadata"]["creationTimestamp"] = format_time(world.now)
        if plural == "configmaps":
            found["data"] = found["data"] | {"added": "by an admission webhook"}
        return found

    world.kube.put = altered  # type: ignore[method-assign]
    world.kube.add_job(ipujob().build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    world.kube.calls.clear()
    await world.run(20, launcher_exit=None)  # a minute
    assert 1 <= world.kube.calls["delete", "configmaps"] <= 2
    assert world.state() == "Running"


async def test_a_resumed_job_with_fewer_workers_has_no_host_that_is_not_there() -> None:
    """The sibling: not a hand's work, but an earlier spec's."""
    world = await running()
    fewer = ipujob().workers(1).build()["spec"]["workers"]
    world.kube.edit_job("sample", workers=fewer, suspend=True)
    await world.until(lambda: world.state() == "Suspended", launcher_exit=None)
    world.kube.edit_job("sample", suspend=False)
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    await world.run(3, launcher_exit=None)
    assert "sample-worker-1" not in child(world, "configmaps")["data"]["hostfile"]
    assert "sample-worker-1" not in str(child(world, "roles")["rules"])


async def test_what_runs_keeps_what_it_was_made_of() -> None:
    world = await running()
    before = child(world, "configmaps")["metadata"]["uid"]
    containers = [{"name": "another", "image": "app:2"}]
    edited = ipujob().workers(2).with_template(containers=containers).build()["spec"]["workers"]
    world.kube.edit_job("sample", workers=edited)
    await world.run(5, launcher_exit=None)
    assert world.condition()["reason"] == "SpecChanged"
    assert child(world, "configmaps")["metadata"]["uid"] == before


async def test_of_a_finished_job_nothing_is_put_back() -> None:
    world = await running()
    await world.until(lambda: world.state() == "Completed")
    edit(world, "configmaps", "data", {})
    await world.run(3)
    assert child(world, "configmaps")["data"] == {}
    assert trim_child(child(world, "configmaps"))["contents"] == ""


def _name(manifest: Any) -> str:
    return str(manifest["metadata"]["name"])


async def test_a_malformed_status_is_rewritten_and_the_job_goes_on() -> None:
    world = JobWorld()
    uid = world.kube.add_job(ipujob().build())
    await world.until(lambda: world.state() == "Running")
    status = world.kube.objects["ipujobs", "default", "sample"]["status"]
    instance = status["instances"][0] | {"attempt": True, "restartAt": 7}
    status |= {"instances": [instance], "conditions": "no", "workersStatus": [1]}
    assert await world.controller.reconcile(uid) == "done"
    assert read_status(status).malformed == ()
    assert status["instances"][0]["attempt"] == 0
    (message,) = [text for _, reason, text in world.events.seen if reason == "StatusMalformed"]
    for path in ("conditions", "instances[0].attempt", "instances[0].restartAt", "workersStatus"):
        assert f"status.{path}" in message
    await world.until(lambda: world.state() == "Completed")


async def test_a_status_of_which_nothing_is_left_is_restored_from_the_pods() -> None:
    """A job at attempt 0 would wait for its pods of attempt 1 to end."""
    world = JobWorld()
    uid = world.kube.add_job(ipujob().with_spec(restartPolicy={"type": "OnFailure"}).build())
    await world.until(lambda: world.state() == "Restarting", launcher_exit=3)
    await world.until(lambda: world.state() == "Running")
    world.kube.objects["ipujobs", "default", "sample"]["status"] = "x"
    assert await world.controller.reconcile(uid) == "done"
    status = (world.kube.job("sample") or {})["status"]
    assert (status["launcherStatus"], status["instances"][0]["attempt"]) == ("Completed", 1)


@pytest.mark.parametrize("status", ["x", [], {}, None, {"lastMessage": "mine"}])
@pytest.mark.parametrize("policy", ["All", "None"])
async def test_a_finished_job_that_lost_its_status_does_not_run_again(
    status: Any, policy: str
) -> None:
    world = JobWorld()
    uid = world.kube.add_job(ipujob().with_spec(cleanPodPolicy=policy).build())
    await world.until(lambda: world.state() == "Failed", launcher_exit=3)
    await world.run(3)
    pods = {pod["metadata"]["uid"] for pod in world.kube.pods()}
    remove_status(world, status)
    assert await world.controller.reconcile(uid) == "done"
    condition = world.condition()
    assert (condition["type"], condition["reason"]) == ("Failed", "StatusLost")
    await world.run(3)
    assert {pod["metadata"]["uid"] for pod in world.kube.pods()} == pods
    assert world.state() == "Failed"
    assert world.events.reasons.count("StatusLost") == 1


async def test_a_job_that_succeeded_and_lost_its_status_is_completed_again_by_its_pods() -> None:
    world = JobWorld()
    uid = world.kube.add_job(ipujob().with_spec(cleanPodPolicy="None").build())
    await world.until(lambda: world.state() == "Completed")
    await world.run(3)
    remove_status(world, {})
    assert await world.controller.reconcile(uid) == "done"
    assert world.state() == "Completed"


async def test_a_running_job_that_lost_its_status_runs_on() -> None:
    world = await running()
    pods = {pod["metadata"]["uid"] for pod in world.kube.pods()}
    remove_status(world, {})
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    assert {pod["metadata"]["uid"] for pod in world.kube.pods()} == pods


def remove_status(world: JobWorld, status: Any) -> None:
    job = world.kube.objects["ipujobs", "default", "sample"]
    job["status"] = copy.deepcopy(status)
    world.kube._bump("ipujobs", job)
