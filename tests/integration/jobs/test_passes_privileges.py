"""Jobs with privileges that no webhook has seen, and the day on which the rule begins to hold."""

from __future__ import annotations

from datetime import timedelta

from jobs.ipujob.privileges import LABEL_POD_PROFILE, NOBODYS, Privileges
from tests.builders.ipujobs import ipujob
from tests.fakes.jobworld import JobWorld

ALLOWED = Privileges("privileged")


def world_with(privileges: Privileges, policy: str = "Never") -> JobWorld:
    world = JobWorld()
    world.privileges = privileges
    world.start()
    job = ipujob().without_finalizer().with_template(hostPID=True)
    world.kube.add_job(job.with_spec(restartPolicy={"type": policy, "backOffLimit": 3}).build())
    return world


def restart_operator(world: JobWorld, privileges: Privileges) -> None:
    world.privileges = privileges
    world.start()


def uids(world: JobWorld) -> set[str]:
    return {pod["metadata"]["uid"] for pod in world.kube.pods()}


async def test_a_job_past_the_webhooks_gets_no_pods_and_no_partition_until_it_is_changed() -> None:
    world = world_with(NOBODYS)
    await world.run(5)
    assert (world.state(), world.condition()["reason"]) == ("Pending", "InvalidSpec")
    assert "spec.workers.template.spec.hostPID: true is not allowed" in world.condition()["message"]
    assert (uids(world), world.partitions.used) == (set(), 0)
    world.kube.edit_job("sample", workers=ipujob().spec["workers"])
    await world.until(lambda: world.state() == "Completed")


async def test_once_the_namespace_may_have_it_the_job_begins() -> None:
    world = world_with(NOBODYS)
    await world.run(3)
    restart_operator(world, ALLOWED)
    await world.until(lambda: world.state() == "Completed")


async def test_a_job_that_runs_when_the_rule_begins_to_hold_runs_to_its_end() -> None:
    world = world_with(ALLOWED)
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    before = uids(world)
    restart_operator(world, NOBODYS)
    await world.run(5, launcher_exit=None)
    assert (world.state(), world.condition()["reason"]) == ("Running", "InvalidSpec")
    assert "hostPID: true is not allowed" in world.condition()["message"]
    assert uids(world) == before
    await world.until(lambda: world.state() == "Completed")
    await world.run(3)
    assert world.partitions.used == 0


async def test_it_is_not_started_again_before_it_may_and_goes_on_then() -> None:
    world = world_with(ALLOWED, "OnFailure")
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    restart_operator(world, NOBODYS)
    await world.until(lambda: world.state() == "Restarting", launcher_exit=1)
    world.now += timedelta(seconds=60)
    await world.run(5)
    assert (world.state(), world.condition()["reason"]) == ("Restarting", "InvalidSpec")
    assert uids(world) == set()
    restart_operator(world, ALLOWED)
    await world.until(lambda: world.state() == "Completed")


async def test_a_job_that_may_not_begin_still_deletes() -> None:
    world = world_with(NOBODYS)
    await world.run(3)
    world.kube.delete_job("sample")
    await world.run(3)
    assert world.kube.job("sample") is None


async def test_a_namespaces_label_makes_an_exception_and_wakes_its_jobs() -> None:
    world = world_with(NOBODYS)
    await world.run(3)
    assert (world.state(), world.condition()["reason"]) == ("Pending", "InvalidSpec")
    names = ("default", "x", "default")
    plain, other, labelled = ({"metadata": {"name": name, "uid": "n"}} for name in names)
    for one in (other, labelled):
        one["metadata"]["labels"] = {LABEL_POD_PROFILE: "privileged"}
    queue = world.controller.queue
    world.controller.on_namespace(None, plain)
    world.controller.on_namespace({"metadata": {"name": "x"}}, other)
    assert len(queue) == 0
    world.kube.objects["namespaces", "", "default"] = labelled
    world.controller.on_namespace(plain, labelled)
    assert len(queue) == 1
    await world.until(lambda: world.state() == "Completed")
