"""Edits that webhooks would refuse: running pods keep their spec, and the job reports it."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest

from jobs.ipujob.spec import SessionLimits
from tests.builders.ipujobs import ipujob
from tests.builders.passes import running_job
from tests.fakes.jobworld import JobWorld

NEW_TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "app:2"}]}}
EDITS: dict[str, dict[str, Any]] = {
    "the partition's size": {"ipusPerModelReplica": "2"},
    "the number of workers": {"workers": {"replicas": 3, "template": None}},
    "launcher": {"launcher": {"command": ["other"]}},
    "workers.template": {"workers": {"replicas": 2, "template": NEW_TEMPLATE}},
    "modelReplicasPerWorker": {"modelReplicasPerWorker": 7},
}


def edit(world: JobWorld, fields: dict[str, Any]) -> None:
    job = world.kube.job("sample")
    assert job is not None
    fields = copy.deepcopy(fields)
    workers = fields.get("workers")
    if workers and workers["template"] is None:
        workers["template"] = job["spec"]["workers"]["template"]
    world.kube.edit_job("sample", **fields)


def pods(world: JobWorld) -> dict[str, str]:
    return {p["metadata"]["name"]: p["metadata"]["uid"] for p in world.kube.pods()}


def images(world: JobWorld) -> set[str]:
    return {p["spec"]["containers"][0]["image"] for p in world.kube.pods()}


@pytest.mark.parametrize("what", sorted(EDITS))
async def test_an_edit_of_a_running_job_leaves_pods_and_partition_and_is_said(what: str) -> None:
    world = await running_job(ipujob().workers(2))
    before, held = pods(world), world.partitions.held()
    edit(world, EDITS[what])
    await world.run(4, launcher_exit=None)
    assert pods(world) == before
    assert world.partitions.held() == held
    assert world.state() == "Running"
    condition = world.condition()
    assert condition["reason"] == "SpecChanged"
    assert what in condition["message"]
    assert "Suspend and resume the job" in condition["message"]
    assert world.events.reasons.count("SpecChanged") == 1
    await world.run(5)
    assert world.state() == "Completed"
    assert world.partitions.used == 0


@pytest.mark.parametrize("what", sorted(EDITS))
async def test_a_resume_applies_it(what: str) -> None:
    world = await running_job(ipujob().workers(2))
    edit(world, EDITS[what])
    await world.run(2, launcher_exit=None)
    world.kube.edit_job("sample", suspend=True)
    await world.until(lambda: world.state() == "Suspended" and not world.kube.pods())
    world.kube.edit_job("sample", suspend=False)
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    await world.run(3, launcher_exit=None)
    assert world.condition()["reason"] == "IPUJobRunning"
    spec = (world.kube.job("sample") or {})["spec"]
    assert len(world.kube.pods()) == 1 + spec["workers"]["replicas"]
    size = int(spec["modelReplicas"]) * int(spec["ipusPerModelReplica"])
    assert world.partitions.held()[0].size == size
    assert images(world) == {spec["workers"]["template"]["spec"]["containers"][0]["image"]}


async def test_a_resume_in_the_moment_of_the_start_is_not_held_back() -> None:
    world = JobWorld()
    uid = world.kube.add_job(ipujob().build())
    await world.passes()  # the clock stands still from here on: no timer runs out
    while world.state() != "Running":
        await world.controller.reconcile(uid)
        world.kube.tick(launcher_exit=None)
    world.kube.edit_job("sample", suspend=True, ipusPerModelReplica="2")
    await world.controller.reconcile(uid)  # decides
    assert world.state() == "Suspended"
    world.kube.edit_job("sample", suspend=False)
    for _ in range(8):
        await world.controller.reconcile(uid)
        world.kube.tick(launcher_exit=None)
    assert world.state() == "Running"
    assert [record.size for record in world.partitions.held()] == [8]
    assert len(world.kube.pods()) == 2


async def test_a_launcher_that_is_taken_away_still_decides_the_end() -> None:
    world = await running_job(ipujob().workers(2))
    job = world.kube.job("sample")
    assert job is not None
    job["spec"].pop("launcher")
    world.kube.edit_job("sample")
    await world.run(3, launcher_exit=None)
    assert (world.state(), world.condition()["reason"]) == ("Running", "SpecChanged")
    await world.until(lambda: world.state() == "Failed", launcher_exit=3)
    assert "sample-launcher exited with code 3" in world.condition()["message"]


async def test_a_launcher_that_is_added_waits_for_the_next_attempt() -> None:
    world = await running_job(ipujob().without_launcher())
    world.kube.edit_job("sample", launcher={"command": ["x"]})
    await world.run(3)
    assert list(pods(world)) == ["sample-worker-0"]
    assert (world.state(), world.condition()["reason"]) == ("Running", "SpecChanged")


async def test_a_restart_takes_the_edited_spec() -> None:
    world = await running_job(ipujob().with_spec(restartPolicy={"type": "OnFailure"}))
    edit(world, {"ipusPerModelReplica": "2", "workers": {"replicas": 1, "template": NEW_TEMPLATE}})
    await world.run(2, launcher_exit=1)
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    assert world.partitions.held()[0].size == 8
    assert images(world) == {"app:2"}


async def test_an_edit_before_the_start_begins_anew_with_what_the_spec_says() -> None:
    world = JobWorld()
    world.kube.add_job(ipujob().build())
    world.kube.tick = lambda **_: None  # type: ignore[method-assign]
    await world.run(3)
    assert images(world) == {"app:1"}
    edit(world, {"ipusPerModelReplica": "2", "workers": {"replicas": 1, "template": NEW_TEMPLATE}})
    del world.kube.tick
    await world.until(lambda: world.state() == "Completed")
    assert images(world) == {"app:2"}
    assert (world.kube.job("sample") or {})["status"]["restartCount"] == 0
    assert {r.size for r in world.partitions.records.values()} == {8}
    starts = [name for _, name in world.kube.main_starts if "launcher" in name]
    assert starts == ["sample-launcher/1"]


async def test_an_edit_of_the_size_while_the_partition_is_made_is_no_endless_refusal() -> None:
    world = JobWorld()
    world.partitions.first_phase = "creating"
    world.kube.add_job(ipujob().build())
    await world.passes(2)
    assert world.partitions.held()[0].size == 4
    edit(world, {"ipusPerModelReplica": "2"})
    await world.passes(3)
    uid = str((world.kube.job("sample") or {})["metadata"]["uid"])
    assert world.partitions.held()[0].size == 8
    world.partitions.set_phase(uid, 0, "active")
    await world.until(lambda: world.state() == "Completed")


async def test_a_running_job_edited_to_an_invalid_spec_runs_on_and_says_what_is_wrong() -> None:
    world = await running_job(ipujob().workers(2))
    before = pods(world)
    edit(world, {"ipusPerModelReplica": "3"})
    await world.run(4, launcher_exit=None)
    assert world.state() == "Running"
    assert pods(world) == before
    assert world.condition()["reason"] == "InvalidSpec"
    assert "not a power of two" in (world.kube.job("sample") or {})["status"]["lastMessage"]
    assert world.events.reasons.count("InvalidSpec") == 1
    edit(world, {"ipusPerModelReplica": "1"})
    await world.run(2, launcher_exit=None)
    assert world.condition()["reason"] == "IPUJobRunning"


@pytest.mark.parametrize(("code", "want"), [(0, "Completed"), (2, "Failed")])
async def test_the_end_of_a_job_with_an_invalid_spec_is_seen_and_its_ipus_are_free(
    code: int, want: str
) -> None:
    world = await running_job(ipujob().with_spec(restartPolicy={"type": "OnFailure"}))
    edit(world, {"ipusPerModelReplica": "3", "restartPolicy": {"type": "Sometimes"}})
    await world.run(6, launcher_exit=code)
    assert world.state() == want
    assert world.partitions.used == 0


async def test_an_invalid_job_can_be_suspended_and_restarts_once_it_is_fixed() -> None:
    world = await running_job(ipujob())
    edit(world, {"ipusPerModelReplica": "3", "suspend": True})
    await world.run(6, launcher_exit=None)
    assert (world.state(), world.partitions.used, world.kube.pods()) == ("Suspended", 0, [])
    edit(world, {"ipusPerModelReplica": "2", "suspend": False})
    await world.until(lambda: world.state() == "Completed")


async def test_a_restarting_job_with_an_invalid_spec_stays_restarting_until_it_is_fixed() -> None:
    world = await running_job(ipujob().with_spec(restartPolicy={"type": "OnFailure"}))
    edit(world, {"ipusPerModelReplica": "3"})
    await world.run(8, launcher_exit=1)
    assert (world.state(), world.condition()["reason"]) == ("Restarting", "InvalidSpec")
    assert world.kube.pods() == []
    edit(world, {"ipusPerModelReplica": "1"})
    await world.until(lambda: world.state() == "Completed")


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense", '{"size":"x"}', "null"])
async def test_a_stamp_that_somebody_has_spoiled_changes_nothing(text: str) -> None:
    world = await running_job(ipujob())
    for pod in world.kube.pods():
        pod["metadata"]["annotations"]["ipuhub.io/made-of"] = text
    await world.run(2, launcher_exit=None)
    assert world.condition()["reason"] == "IPUJobRunning"
    await world.until(lambda: world.state() == "Completed")


async def test_a_session_may_be_made_longer_while_people_are_in_it() -> None:
    world = await running_job(ipujob().interactive(600))
    began = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    for pod in world.kube.pods():
        for container in pod["status"]["containerStatuses"]:
            container["state"]["running"]["startedAt"] = began
    world.kube.edit_job("sample", interactive={"ttl": 1200})
    world.now += timedelta(seconds=660)
    await world.run(2, launcher_exit=None)
    assert (world.state(), world.condition()["reason"]) == ("Running", "IPUJobRunning")
    world.now += timedelta(seconds=600)
    await world.run(5, launcher_exit=None)
    assert (world.state(), world.partitions.used) == ("Completed", 0)


async def test_a_session_made_too_long_past_the_webhooks_ends_at_the_maximum() -> None:
    world = JobWorld()
    world.limits = SessionLimits(maximum_seconds=900)
    world.start()
    world.kube.add_job(ipujob().without_finalizer().interactive(600).build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    began = world.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    for pod in world.kube.pods():
        for container in pod["status"]["containerStatuses"]:
            container["state"]["running"]["startedAt"] = began
    world.kube.edit_job("sample", interactive={"ttl": 10**9})
    world.now += timedelta(seconds=800)
    await world.run(2, launcher_exit=None)
    assert (world.state(), world.condition()["reason"]) == ("Running", "InvalidSpec")
    world.now += timedelta(seconds=100)
    await world.run(5, launcher_exit=None)
    assert (world.state(), world.partitions.used) == ("Completed", 0)
