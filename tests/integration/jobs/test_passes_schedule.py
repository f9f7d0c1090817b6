"""Whole passes: when a job is looked at again, and by which event."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog.testing

from ipuhub.kube.errors import Forbidden, ServerError, TooManyRequests
from ipuhub.kube.workqueue import WorkQueue
from jobs.names import LABEL_JOB_UID
from tests.builders.ipujobs import ipujob
from tests.fakes.jobworld import JobWorld

if TYPE_CHECKING:
    from ipuhub.kube.types import Manifest

BUSY = ServerError(500, "ServerTimeout", "etcd is slow")


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def timed(world: JobWorld) -> Clock:
    """The clock of the operator's queue, which is empty then."""
    clock = Clock()
    world.controller.queue = WorkQueue(clock=clock)
    return clock


async def with_partition() -> tuple[JobWorld, str]:
    """A job whose pods are the next to be made; nothing of it is queued."""
    world = JobWorld()
    uid = world.kube.add_job(ipujob().build())
    await world.passes()
    return world, uid


def lose_worker(world: JobWorld) -> None:
    """Its pod goes, and the watch tells of it."""
    (pod,) = [pod for pod in world.kube.pods() if pod["metadata"]["name"] == "sample-worker-0"]
    world.kube.force_delete_pod("sample-worker-0")
    world.controller.on_child(pod, None)


async def test_a_server_that_says_when_to_come_again_is_asked_then() -> None:
    world, uid = await with_partition()
    clock = timed(world)
    busy = TooManyRequests(429, "TooManyRequests", "later", retry_after=7)
    world.kube.faults["create", "pods"] = [busy]
    await world.controller.reconcile(uid)
    clock.now += 6.9
    assert len(world.controller.queue) == 0
    clock.now += 0.1
    assert len(world.controller.queue) == 1


async def test_a_job_that_fails_rests_longer_each_time_until_it_goes_well() -> None:
    world, uid = await with_partition()
    timed(world)
    for failures in (1, 2, 3):
        world.kube.faults["create", "pods"] = [BUSY]
        assert await world.controller.reconcile(uid) == "failed"
        assert world.controller.queue.failures(uid) == failures
    assert await world.controller.reconcile(uid) == "done"
    assert world.controller.queue.failures(uid) == 0


async def test_who_stumbles_again_after_a_success_has_stumbled_once() -> None:
    world, uid = await with_partition()
    faults = world.kube.faults
    faults["create", "configmaps"] = [BUSY]
    assert await world.controller.reconcile(uid) == "failed"
    assert await world.controller.reconcile(uid) == "done"
    lose_worker(world)
    for want in ([], ["ApiServerUnavailable"]):
        faults["create", "pods"] = [BUSY]
        assert await world.controller.reconcile(uid) == "failed"
        assert [fault.reason for fault in world.controller.faults()] == want
    assert await world.controller.reconcile(uid) == "done"
    assert list(world.controller.faults()) == []


async def test_a_refusal_that_comes_again_after_a_success_is_logged_again() -> None:
    world, uid = await with_partition()
    with structlog.testing.capture_logs() as logged:
        for want in ("failed", "done", "failed"):
            if want == "failed":
                world.kube.faults["create", "pods"] = [Forbidden(403, "Forbidden", "no quota")]
            assert await world.controller.reconcile(uid) == want
            if want == "done":
                lose_worker(world)
    said = [entry["why"] for entry in logged if entry["event"] == "refused; trying again"]
    assert said == ["CreateChild: no quota"] * 2


async def test_of_several_refusals_in_a_pass_the_first_is_told() -> None:
    world = JobWorld()
    refusals = [Forbidden(403, "Forbidden", f"no {why}") for why in ("quota", "policy")]
    uid = world.kube.add_job(ipujob().workers(2).build())
    await world.passes()
    world.kube.faults["create", "pods"] = list(refusals)
    assert await world.controller.reconcile(uid) == "failed"
    (fault,) = world.controller.faults()
    assert fault.message == "Cannot create Pod sample-worker-0: no quota"


def manifest(uid: str, job: str = "") -> Manifest:
    labels = {LABEL_JOB_UID: job} if job else {}
    return {"metadata": {"name": "sample", "namespace": "default", "uid": uid, "labels": labels}}


async def test_when_another_object_has_the_name_both_jobs_are_looked_at() -> None:
    world = JobWorld()
    queue, controller = world.controller.queue, world.controller
    controller.on_job(manifest("a"), manifest("b"))
    assert {await queue.get(), await queue.get()} == {"a", "b"}
    controller.on_child(manifest("c1", job="c"), manifest("d1", job="d"))
    assert {await queue.get(), await queue.get()} == {"c", "d"}
    controller.on_child(manifest("e1", job="e"), None)
    assert await queue.get() == "e"


async def test_who_has_not_waited_asks_for_ipus_beside_the_others() -> None:
    world = JobWorld()
    uids = [world.kube.add_job(ipujob(name).build()) for name in ("a", "b")]
    await world.facts.poll(world.now)
    asked, may_answer = [], asyncio.Event()
    ensure = world.partitions.ensure

    async def slow(**request: Any) -> Any:
        asked.append(request["name"])
        await may_answer.wait()
        return await ensure(**request)

    world.partitions.ensure = slow  # type: ignore[method-assign]
    passes = [asyncio.create_task(world.controller.reconcile(uid)) for uid in uids]
    for _ in range(20):  # turns of the loop, in no time
        await asyncio.sleep(0)
    assert asked == ["a", "b"]
    may_answer.set()
    assert await asyncio.gather(*passes) == ["done", "done"]
