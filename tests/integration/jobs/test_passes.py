"""Whole passes over an in-memory world: what is written, what is retried, what is told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import structlog.testing

from ipuhub.kube.errors import AlreadyExists, Conflict, Forbidden, ServerError, Unreachable
from jobs.names import FINALIZER
from jobs.partitionfacts import PartitionFacts
from tests.builders.ipujobs import NOW, at, ipujob
from tests.fakes.jobworld import JobWorld
from tests.fakes.partitions import FakePartitions, Record

if TYPE_CHECKING:
    from tests.builders.ipujobs import IPUJobBuilder


def writes(world: JobWorld) -> int:
    verbs = {"create", "patch", "delete"}
    return sum(count for (verb, _), count in world.kube.calls.items() if verb in verbs)


async def started(job: IPUJobBuilder, **options: Any) -> JobWorld:
    world = JobWorld(**options)
    world.kube.is_fast = True  # counts of workers, which may be written apart, never change alone
    world.kube.add_job(job.build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    return world


@pytest.mark.parametrize("workers", [1, 4])
async def test_a_job_runs_after_at_most_seven_and_n_writes(workers: int) -> None:
    world = await started(ipujob().workers(workers))
    assert writes(world) <= 7 + workers


async def test_a_job_without_a_launcher_runs_after_at_most_three_and_n_writes() -> None:
    world = await started(ipujob().without_launcher().workers(4))
    assert writes(world) <= 3 + 4


async def test_a_whole_life_takes_at_most_four_status_patches_and_six_events() -> None:
    world = await started(ipujob())
    await world.run(30)
    assert world.state() == "Completed"
    assert world.kube.calls["patch", "ipujobs"] <= 4
    assert world.events.reasons == [
        "IPUJobPending",
        "PartitionActive",
        "IPUJobRunning",
        "IPUJobSucceeded",
        "PartitionReleased",
    ]


@pytest.mark.parametrize("finished", [False, True])
async def test_a_pass_on_an_unchanged_world_calls_nobody(finished: bool) -> None:
    world = await started(ipujob().workers(2))
    if finished:
        await world.run(20)
    else:
        await world.run(5, launcher_exit=None)
    calls, asked = world.kube.calls.copy(), len(world.partitions.calls)
    await world.passes(10)
    assert world.kube.calls == calls
    assert set(world.partitions.calls[asked:]) == {"list"}


async def test_sleeping_workers_end_their_objects_stay_and_the_partition_is_free() -> None:
    world = await started(ipujob().workers(2))
    await world.run(20)
    phases = sorted(pod["status"]["phase"] for pod in world.kube.pods())
    assert phases == ["Failed", "Failed", "Succeeded"]
    status = (world.kube.job("sample") or {})["status"]
    assert status["workersStatus"] == {"succeeded": 2}
    assert status["partitions"][0]["state"] == "released"
    assert world.partitions.used == 0


async def test_jobs_that_do_not_fit_wait_with_the_reason_and_then_run() -> None:
    world = JobWorld(ipus=4)
    world.kube.add_job(ipujob("first").build())
    await world.until(lambda: world.state("first") == "Running", launcher_exit=None)
    world.kube.add_job(ipujob("second").build())
    await world.run(4, launcher_exit=None)
    assert world.condition("second")["reason"] == "NoCapacity"
    assert "4 IPUs are needed, 0 are free" in world.condition("second")["message"]
    world.kube.delete_job("first")
    await world.until(lambda: world.state("second") == "Running", launcher_exit=None)


async def test_a_waiting_job_can_be_deleted() -> None:
    world = JobWorld(ipus=2)
    world.kube.add_job(ipujob().build())
    await world.run(4)
    assert world.condition()["reason"] == "NoCapacity"
    world.kube.delete_job("sample")
    await world.run(4)
    assert world.kube.objects == {}


async def test_a_proxy_that_is_away_is_waited_for() -> None:
    world = JobWorld()
    world.partitions.away = True
    world.kube.add_job(ipujob().build())
    await world.run(4)
    assert world.condition()["reason"] == "ProxyUnavailable"
    assert world.kube.pods() == []
    world.partitions.away = False
    await world.until(lambda: world.state() == "Completed")


async def test_a_running_job_does_not_care_about_the_proxy() -> None:
    world = await started(ipujob())
    world.partitions.away = True
    await world.run(4, launcher_exit=None)
    assert world.state() == "Running"


async def test_a_deletion_waits_for_the_proxy_and_then_ends() -> None:
    world = await started(ipujob())
    world.partitions.away = True
    world.kube.delete_job("sample")
    await world.run(8, launcher_exit=None)
    job = world.kube.job("sample")
    assert job is not None
    assert world.kube.pods() == []
    assert "released" in job["status"]["lastMessage"]
    world.partitions.away = False
    await world.run(4)
    assert world.kube.objects == {}
    assert world.partitions.held() == []


async def test_what_the_api_server_refuses_is_shown_and_tried_again() -> None:
    world = JobWorld()
    refusal = Forbidden(403, "Forbidden", "exceeded quota: pods")
    world.kube.faults["create", "pods"] = [refusal, refusal]
    world.kube.add_job(ipujob().build())
    await world.passes(3)
    assert world.condition()["reason"] == "CreateFailed"
    assert "exceeded quota: pods" in world.condition()["message"]
    await world.until(lambda: world.state() == "Completed")


async def test_a_refusal_that_passes_by_itself_is_not_told() -> None:
    world = JobWorld()
    late = ServerError(500, "ServerTimeout", "no token yet")
    world.kube.faults["create", "pods"] = [late]
    world.kube.add_job(ipujob().build())
    await world.until(lambda: world.state() == "Completed")
    assert "CreateFailed" not in world.events.reasons


async def test_after_a_failed_step_up_the_next_ones_wait() -> None:
    world = JobWorld()
    world.kube.faults["create", "roles"] = [ServerError(500, "InternalError", "etcd is away")]
    world.kube.add_job(ipujob().build())
    await world.passes(2)
    assert world.kube.pods() == []
    await world.until(lambda: world.state() == "Completed")


async def test_17c_a_failed_step_down_does_not_stop_the_others() -> None:
    world = await started(ipujob().workers(2))
    world.kube.faults["delete", "pods"] = [ServerError(500, "InternalError", "no")]
    world.kube.delete_job("sample")
    await world.passes(1)
    deleting = [p for p in world.kube.pods() if p["metadata"].get("deletionTimestamp")]
    assert len(deleting) == 2
    await world.run(4)
    assert world.kube.objects == {}


async def test_a_job_changed_in_between_is_read_again() -> None:
    world = JobWorld()
    world.kube.faults["patch", "ipujobs"] = [Conflict(409, "Conflict", "modified")] * 3
    world.kube.add_job(ipujob().without_finalizer().build())
    await world.until(lambda: world.state() == "Completed")


async def test_a_partition_is_never_asked_for_without_the_finalizer() -> None:
    world = JobWorld()
    world.kube.faults["patch", "ipujobs"] = [ServerError(500, "InternalError", "no")] * 2
    world.kube.add_job(ipujob().without_finalizer().build())
    await world.passes(2)
    assert "ensure" not in world.partitions.calls
    await world.passes(2)
    assert FINALIZER in (world.kube.job("sample") or {})["metadata"]["finalizers"]


async def test_17b_a_new_job_of_the_same_name_has_nothing_to_do_with_the_old() -> None:
    world = await started(ipujob())
    old = world.partitions.held()[0].uid
    world.kube.delete_job("sample")
    await world.run(4, launcher_exit=None)
    world.kube.add_job(ipujob().build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    (held,) = world.partitions.held()
    assert held.uid != old
    assert world.partitions.records[old, 0].phase == "released"


async def test_somebody_elses_pod_under_a_workers_name_is_left_alone() -> None:
    world = JobWorld()
    foreign = {
        "metadata": {
            "name": "sample-worker-0",
            "namespace": "default",
            "labels": {"graphcore.ai/role": "worker"},
        },
        "spec": {"containers": [{"name": "x"}]},
    }
    world.kube.put("pods", foreign)
    world.kube.add_job(ipujob().build())
    world.kube.tick = lambda **_: None  # type: ignore[method-assign]
    for _ in range(3):
        await world.facts.poll(world.now)
        for job in world.controller.effects.caches.jobs.all():
            await world.controller.reconcile(job["metadata"]["uid"])
    assert world.condition()["reason"] == "NameConflict"
    assert "sample-worker-0" in world.condition()["message"]
    assert len(world.kube.pods()) == 1


async def test_what_a_job_without_finalizer_leaves_behind_is_freed() -> None:
    world = await started(ipujob())
    job = world.kube.job("sample")
    assert job is not None
    job["metadata"]["finalizers"] = []
    world.kube.delete_job("sample")
    await world.run(4)
    assert world.partitions.held() == []
    assert world.kube.objects == {}


async def test_pods_orphaned_by_the_user_go_before_the_partition_is_free() -> None:
    world = await started(ipujob().workers(2))
    for manifest in world.kube.objects.values():
        manifest["metadata"].pop("ownerReferences", None)
    world.kube.delete_job("sample")
    await world.run(6, launcher_exit=None)
    assert world.kube.objects == {}


async def test_what_an_orphaning_leaves_is_collected_although_the_job_has_gone() -> None:
    world = await started(ipujob())
    for (plural, _, _), manifest in world.kube.objects.items():
        if plural != "pods":
            manifest["metadata"].pop("ownerReferences", None)
    job = world.kube.objects.pop(("ipujobs", "default", "sample"))
    for pod in world.kube.pods():
        world.kube.objects.pop(("pods", "default", pod["metadata"]["name"]))
    await world.partitions.release(job["metadata"]["uid"], 0)
    assert len(world.kube.objects) == 4
    await world.facts.poll(world.now)
    await world.controller.reconcile(job["metadata"]["uid"])
    assert world.kube.objects == {}


async def test_a_late_watch_of_pods_costs_no_running_pod_its_partition() -> None:
    world = await started(ipujob())
    pods = world.controller.effects.caches.pods
    pods.by_index = lambda *_: []  # type: ignore[method-assign]
    world.kube.delete_job("sample")
    await world.run(3, launcher_exit=None)
    assert world.partitions.used == 4
    assert world.kube.job("sample") is not None
    del pods.by_index
    await world.run(4, launcher_exit=None)
    assert world.kube.objects == {}
    assert world.partitions.used == 0


async def test_an_api_server_that_cannot_say_whether_a_job_is_there_takes_nothing_away() -> None:
    world = await started(ipujob())
    job = world.kube.job("sample")
    assert job is not None
    job["metadata"]["finalizers"] = []
    world.kube.delete_job("sample")
    world.kube.faults["get", "ipujobs"] = [Unreachable("connection refused")]
    uid = job["metadata"]["uid"]
    await world.controller.reconcile(uid)
    assert world.partitions.used == 4
    assert world.controller.queue.failures(uid) == 1
    await world.run(4)
    assert world.partitions.used == 0


async def test_a_refusal_is_logged_once_and_again_only_when_it_changes() -> None:
    world = JobWorld()
    quota, policy = (Forbidden(403, "Forbidden", f"no {why}") for why in ("quota", "policy"))
    world.kube.faults["create", "pods"] = [quota] * 8 + [policy]
    world.kube.add_job(ipujob().workers(2).build())
    with structlog.testing.capture_logs() as logged:
        await world.run(8)
    said = [entry["why"] for entry in logged if entry["log_level"] != "debug" and "why" in entry]
    assert said == ["CreateChild: no quota", "CreateChild: no policy"]


async def test_an_object_that_goes_while_its_name_is_asked_for_is_simply_made_again() -> None:
    world = JobWorld()
    taken = AlreadyExists(409, "AlreadyExists", "exists")
    world.kube.faults["create", "pods"] = [taken]
    world.kube.add_job(ipujob().build())
    await world.until(lambda: world.state() == "Completed")
    assert "CreateFailed" not in world.events.reasons


async def test_an_invalid_job_waits_runs_once_it_is_fixed_and_can_be_deleted() -> None:
    world = JobWorld()
    world.kube.add_job(ipujob().ipus(6).without_finalizer().build())
    await world.run(3)
    assert world.condition()["reason"] == "InvalidSpec"
    assert world.partitions.calls.count("ensure") == 0
    job = world.kube.job("sample")
    assert job is not None
    job["spec"]["ipusPerJobInstance"] = "8"
    job["metadata"]["generation"] = 2
    await world.until(lambda: world.state() == "Completed")
    assert (world.kube.job("sample") or {})["status"]["observedGeneration"] == 2


async def test_a_list_that_was_asked_for_earlier_does_not_bring_the_past_back() -> None:
    class Slow(FakePartitions):
        async def list(self) -> list[Any]:
            before = list(self.records.values())
            facts.note("u", await self.ensure(**request), NOW)
            return before

    request = {"uid": "u", "namespace": "n", "name": "j", "instance": 0, "size": 4, "attempt": 0}
    facts = PartitionFacts(Slow(), lambda _: True)
    await facts.poll(NOW)
    assert facts.of("u")[0].phase == "active"


async def test_a_released_partition_is_remembered_while_its_job_lives() -> None:
    partitions = FakePartitions()
    facts = PartitionFacts(partitions, lambda uid: uid == "live")
    for uid in ("live", "gone", "lost"):
        await partitions.ensure(uid=uid, namespace="n", name=uid, instance=0, size=1, attempt=0)
    await partitions.release("live", 0)
    await partitions.release("gone", 0)
    await facts.poll(NOW)
    partitions.records.clear()
    assert await facts.poll(NOW) == {"gone", "lost"}
    assert facts.uids() == {"live"}


async def test_a_tombstone_beside_a_later_partition_of_the_same_holder_is_no_news() -> None:
    class WithTombstone(FakePartitions):
        async def list(self) -> list[Any]:
            held = await super().list()
            return [*(replace(r, phase="released", id="p-old") for r in held), *held]

    partitions = WithTombstone()
    facts = PartitionFacts(partitions, lambda _: True)
    await partitions.ensure(uid="u", namespace="n", name="j", instance=0, size=4, attempt=0)
    assert await facts.poll(NOW) == {"u"}
    assert facts.of("u")[0].phase == "active"
    assert await facts.poll(NOW) == set()


def waiting_fact(uid: str) -> Record:
    return Record(uid, "default", uid, 0, 0, "", 4, "waiting", reason="NoCapacity")


async def test_all_who_wait_are_woken_together_once_something_changes_or_time_has_passed() -> None:
    facts = PartitionFacts(FakePartitions(), lambda _: True)
    await facts.poll(NOW)
    facts.note("young", waiting_fact("young"), at(0))
    facts.note("old", waiting_fact("old"), at(4))
    assert await facts.poll(at(4.5)) == set()
    assert facts.wake_waiting() == {"young", "old"}
    assert facts.of("young")[0].asked_at is None
    for uid in ("young", "old"):
        facts.note(uid, waiting_fact(uid), at(5))
    assert await facts.poll(at(7)) == set()
    assert await facts.poll(at(10)) == {"young", "old"}


async def test_the_oldest_waiting_job_gets_what_becomes_free() -> None:
    """Also when its call takes longer to the proxy than the others'."""
    world = JobWorld(ipus=4)
    world.kube.add_job(ipujob("holder").build())
    await world.until(lambda: world.state("holder") == "Running", launcher_exit=None)
    uids = {}
    for name, created in (("young", "2026-03-01T12:00:09Z"), ("old", "2026-03-01T12:00:05Z")):
        job = ipujob(name).build()
        job["metadata"]["creationTimestamp"] = created
        uids[name] = world.kube.add_job(job)
        await world.run(1, launcher_exit=None)
    world.partitions.detours[uids["old"]] = 20
    world.kube.delete_job("holder")
    for _ in range(6):
        await world.by_queue(launcher_exit=None)
    assert [r.name for r in world.partitions.held()] == ["old"]


async def test_a_release_wakes_those_who_wait_at_once() -> None:
    world = JobWorld(ipus=4)
    for name in ("first", "second"):
        world.kube.add_job(ipujob(name).build())
        await world.run(6, launcher_exit=None)
    world.kube.delete_job("first")
    await world.by_queue(launcher_exit=None)
    await world.by_queue(launcher_exit=None)
    assert [r.name for r in world.partitions.held()] == ["second"]
