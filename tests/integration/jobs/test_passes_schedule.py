"""Whole passes: the time and cause of a job's next pass."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog.testing

from ipuhub.kube.errors import Forbidden, ServerError, TooManyRequests
from ipuhub.kube.workqueue import WorkQueue
from jobs.builders.pods import PodOptions
from jobs.ipujob.names import LABEL_GROUP, LABEL_JOB_UID
from jobs.ipujob.rules import Rules
from jobs.ipujob.spec import SessionLimits
from jobs.ipujob.storedstatus import UNWRITTEN
from jobs.operator.observer import Observer
from tests.builders.ipujobs import ipujob
from tests.builders.passes import running_job
from tests.fakes.jobworld import JobWorld
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

    from ipuhub.kube.resources import Manifest

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


def refusals_in(logged: Sequence[MutableMapping[str, Any]]) -> list[str]:
    return [entry["why"] for entry in logged if entry["event"] == "rejected, retrying"]


def lose_worker(world: JobWorld) -> None:
    """Its pod goes, and the watch tells of it."""
    (pod,) = [pod for pod in world.kube.pods() if pod["metadata"]["name"] == "sample-worker-0"]
    world.kube.force_delete_pod("sample-worker-0")
    world.controller.on_child(pod, None)


def slow_partitions(world: JobWorld) -> tuple[list[str], asyncio.Event]:
    """From now on a call for a partition notes the job's name and is answered after the event."""
    names: list[str] = []
    may_answer = asyncio.Event()
    ensure = world.partitions.ensure

    async def slow(**request: Any) -> Any:
        names.append(request["name"])
        await may_answer.wait()
        return await ensure(**request)

    world.partitions.ensure = slow  # type: ignore[method-assign]
    return names, may_answer


async def turns_of_the_loop() -> None:
    """Run everything that can run, in no time."""
    for _ in range(20):
        await asyncio.sleep(0)


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


async def test_what_follows_from_a_partition_is_planned_at_once_and_what_takes_time_in_time() -> (
    None
):
    world = JobWorld()
    uid = world.kube.add_job(ipujob().build())
    await world.facts.poll(world.now)
    clock = timed(world)
    world.partitions.is_slow = True
    assert await world.controller.reconcile(uid) == "done"
    assert await world.controller.queue.get() == uid
    world.controller.queue.done(uid)
    await world.controller.reconcile(uid)
    assert await world.controller.reconcile(uid) == "done"
    clock.now += 4.9
    assert len(world.controller.queue) == 0
    clock.now += 0.1
    assert len(world.controller.queue) == 1


async def test_a_write_that_no_copy_shows_yet_is_waited_for() -> None:
    world, uid = await with_partition()
    clock = timed(world)
    assert await world.controller.reconcile(uid) == "done"
    world.kube.force_delete_pod("sample-worker-0")  # and no watch tells of it
    assert await world.controller.reconcile(uid) == "deferred"
    clock.now += 120
    assert len(world.controller.queue) == 1


async def test_of_a_job_that_has_gone_nothing_is_remembered() -> None:
    world, uid = await with_partition()
    objects, records = world.kube.objects, world.partitions.records
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            world.kube.faults["create", "pods"] = [Forbidden(403, "Forbidden", "no quota")]
            assert await world.controller.reconcile(uid) == "failed"
            assert len(list(world.controller.faults())) == 1
            before = dict(objects), dict(records)
            objects.clear()
            for (plural, _, _), gone in before[0].items():
                if plural != "ipujobs":
                    world.controller.on_child(gone, None)
            records.clear()
            await world.facts.poll(world.now)
            assert await world.controller.reconcile(uid) == "gone"
            assert list(world.controller.faults()) == []
            objects |= before[0]  # the copy of the jobs was wrong: it is there again
            records |= before[1]
            await world.facts.poll(world.now)
    assert refusals_in(logged) == ["CreateChild: no quota"] * 2


async def test_a_fault_of_the_program_is_tried_again_and_stops_no_other_job() -> None:
    world = JobWorld()
    await world.facts.poll(world.now)
    ensure, broken = world.partitions.ensure, [ValueError("a bug")]

    async def breaks_once(**request: Any) -> Any:
        if broken:
            raise broken.pop()
        return await ensure(**request)

    world.partitions.ensure = breaks_once  # type: ignore[method-assign]
    for name in ("a", "b"):
        world.controller.enqueue(world.kube.add_job(ipujob(name).build()))
    with structlog.testing.capture_logs() as logged:
        working = asyncio.create_task(world.controller.run(1))
        await eventually(lambda: len(world.partitions.held()) == 2)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert [entry["event"] for entry in logged if entry["log_level"] == "error"] == ["pass failed"]
    assert world.controller.queue.retries == 1


async def test_a_proxy_that_is_away_is_not_called() -> None:
    world = JobWorld()
    world.partitions.away = True
    uid = world.kube.add_job(ipujob().build())
    await world.facts.poll(world.now)
    assert await world.controller.reconcile(uid) == "done"
    assert world.condition()["reason"] == "ProxyUnavailable"


async def test_a_slow_answer_does_not_hold_up_the_next_who_waits() -> None:
    world = JobWorld(ipus=0)
    uids = [world.kube.add_job(ipujob(name).build()) for name in ("a", "b")]
    await world.passes(2)
    world.facts.wake_waiting(world.now)
    names, may_answer = slow_partitions(world)
    passes = [asyncio.create_task(world.controller.reconcile(uid)) for uid in uids]
    await eventually(lambda: names == ["a", "b"])
    may_answer.set()
    await asyncio.gather(*passes)


async def test_what_somebody_may_have_to_act_on_is_a_warning() -> None:
    world = JobWorld()
    world.kube.add_job(ipujob().build())
    await world.until(lambda: world.state() == "Failed", launcher_exit=3)
    kinds = {reason: kind for kind, reason, _ in world.events.seen}
    assert (kinds["IPUJobRunning"], kinds["IPUJobFailed"]) == ("Normal", "Warning")


async def test_a_status_that_only_the_crd_gives_is_none() -> None:
    world = JobWorld()
    uid = world.kube.add_job({**ipujob().build(), "status": UNWRITTEN})
    seen = world.controller.observer.observe(uid)
    assert seen is not None
    assert (seen.status(), seen.state()) == ({}, None)
    await world.until(lambda: world.state() == "Running")


async def test_a_pass_sees_the_operators_options_and_limits_and_the_namespaces_group() -> None:
    world = JobWorld()
    uid = world.kube.add_job(ipujob().build())
    options, limits = PodOptions(), SessionLimits(60, 600)
    labels = {LABEL_GROUP: "vision"}
    world.kube.put("namespaces", {"metadata": {"name": "default", "labels": labels}})
    caches = world.controller.effects.caches
    seen = Observer(caches, world.facts, options, Rules(limits)).observe(uid)
    assert seen is not None
    assert seen.options is options
    assert seen.limits is limits
    assert seen.group == "vision"


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
    assert refusals_in(logged) == ["CreateChild: no quota"] * 2


async def test_what_passes_by_itself_is_no_line_in_the_log() -> None:
    world, uid = await with_partition()
    world.kube.faults["create", "pods"] = [BUSY]
    with structlog.testing.capture_logs() as logged:
        assert await world.controller.reconcile(uid) == "failed"
    assert refusals_in(logged) == []


async def test_of_several_refusals_in_a_pass_the_first_is_told() -> None:
    world = JobWorld()
    refusals = [Forbidden(403, "Forbidden", f"no {subject}") for subject in ("quota", "policy")]
    uid = world.kube.add_job(ipujob().workers(2).build())
    await world.passes()
    world.kube.faults["create", "pods"] = list(refusals)
    with structlog.testing.capture_logs() as logged:
        assert await world.controller.reconcile(uid) == "failed"
    (fault,) = world.controller.faults()
    assert fault.message == "Cannot create Pod sample-worker-0: no quota"
    assert refusals_in(logged) == ["CreateChild: no quota"]


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


async def test_of_new_jobs_the_oldest_is_looked_at_first_and_before_them_who_has_run() -> None:
    world = JobWorld()
    uids = {}
    for name, second in (("young", 9), ("old", 5), ("runs", 7), ("suspended", 8)):
        job = ipujob(name).build()
        job["metadata"]["creationTimestamp"] = f"2026-03-01T12:00:0{second}Z"
        if name in {"runs", "suspended"}:
            job["status"] = {"launcherStatus": name.capitalize()}
        uids[world.kube.add_job(job)] = name
    for uid in uids:
        world.controller.enqueue(uid)
    taken = [uids[await world.controller.queue.get()] for _ in uids]
    assert taken == ["runs", "suspended", "old", "young"]


async def test_what_follows_from_a_release_is_planned_at_once() -> None:
    world = await running_job(ipujob())
    (held,) = world.partitions.held()
    world.kube.delete_job("sample")
    while world.partitions.held():
        world.kube.tick(launcher_exit=None)
        timed(world)
        await world.controller.reconcile(held.uid)
    assert len(world.controller.queue) == 1


async def test_who_is_stopped_while_asking_for_ipus_leaves_no_call_behind() -> None:
    world = JobWorld(ipus=0)
    uid = world.kube.add_job(ipujob().build())
    await world.passes(2)
    world.facts.wake_waiting(world.now)
    world.partitions.ipus = 4
    names, may_answer = slow_partitions(world)
    one_pass = asyncio.create_task(world.controller.reconcile(uid))
    await turns_of_the_loop()
    assert names == ["sample"]
    one_pass.cancel()
    await asyncio.gather(one_pass, return_exceptions=True)
    may_answer.set()
    await turns_of_the_loop()
    assert world.partitions.held() == []


async def test_who_has_not_waited_asks_for_ipus_beside_the_others() -> None:
    world = JobWorld()
    uids = [world.kube.add_job(ipujob(name).build()) for name in ("a", "b")]
    await world.facts.poll(world.now)
    names, may_answer = slow_partitions(world)
    passes = [asyncio.create_task(world.controller.reconcile(uid)) for uid in uids]
    await turns_of_the_loop()
    assert names == ["a", "b"]
    may_answer.set()
    assert await asyncio.gather(*passes) == ["done", "done"]


async def test_a_node_that_goes_and_comes_back_wakes_the_jobs_on_it_and_no_others() -> None:
    world = JobWorld()
    uid = world.kube.add_job(ipujob().build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    timed(world)
    queue, controller = world.controller.queue, world.controller

    async def woken_by(name: str, old: str, new: str) -> list[str]:
        controller.on_node(node(name, old), node(name, new))
        return [await queue.get() for _ in range(len(queue))]

    for old, new in (("True", "Unknown"), ("Unknown", "True")):
        assert await woken_by("node-1", old, new) == []  # none of the job's pods is there
        woken = await woken_by("node-0", old, new)
        assert woken == [uid]
        world.kube.objects["nodes", "", "node-0"] = node("node-0", new)
        await controller.reconcile(uid)
        queue.done(uid)
        reason = "NodeNotReady" if new == "Unknown" else "IPUJobRunning"
        assert world.condition()["reason"] == reason
        assert await woken_by("node-0", new, new) == []  # one of its heartbeats


def node(name: str, ready: str) -> Manifest:
    """A node whose condition Ready has this status."""
    return {
        "metadata": {"name": name},
        "status": {"conditions": [{"type": "Ready", "status": ready, "reason": ""}]},
    }
