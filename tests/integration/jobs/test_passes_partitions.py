"""Whole passes: jobs that wait for IPUs or for the proxy, and cached facts of partitions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.partition import Partition
from jobs.ipujob.names import uid_of
from jobs.operator.partitions import PartitionFacts
from jobs.operator.plan import plan
from tests.builders.ipujobs import NOW, at, ipujob, observed
from tests.builders.passes import running_job
from tests.fakes.jobworld import JobWorld
from tests.fakes.partitions import FakePartitions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


async def test_jobs_that_do_not_fit_wait_with_the_reason_and_then_run() -> None:
    world = JobWorld(ipus=4)
    world.kube.add_job(ipujob("first").build())
    await world.until(lambda: world.state("first") == "Running", launcher_exit=None)
    world.kube.add_job(ipujob("second").build())
    await world.run(4, launcher_exit=None)
    assert world.condition("second")["reason"] == "NoCapacity"
    assert "4 IPUs in one block are needed" in world.condition("second")["message"]
    world.kube.delete_job("first")
    await world.until(lambda: world.state("second") == "Running", launcher_exit=None)


async def test_a_job_that_waits_for_ipus_is_written_to_once() -> None:
    world = JobWorld()
    world.kube.add_job(ipujob().ipus(64).build())
    for free in range(60):  # three minutes in which every pass finds another number free
        world.partitions.ipus = free
        await world.passes()
        world.kube.add_job(ipujob(f"other-{free}").ipus(64).build())
    (written,) = [
        c.manifest for c in world.kube.changes if c.manifest["metadata"]["name"] == "sample"
    ][1:]
    assert written["status"]["lastMessage"] == "64 IPUs in one block are needed and not free now"


def is_suspended(world: JobWorld) -> None:
    world.kube.edit_job("other", suspend=True)


def becomes_invalid(world: JobWorld) -> None:
    world.kube.edit_job("other", modelReplicas="3")


def has_its_name_taken(world: JobWorld) -> None:
    world.kube.put_foreign("configmaps", "other-launcher")


def ends_and_keeps_what_it_has(world: JobWorld) -> None:
    world.kube.edit_job("other", activeDeadlineSeconds=1, keepPartition=True)


@pytest.mark.parametrize(
    "what",
    [is_suspended, becomes_invalid, has_its_name_taken, ends_and_keeps_what_it_has],
)
async def test_who_has_stopped_asking_is_not_in_the_line_and_makes_nobody_ask_more_often(
    what: Callable[[JobWorld], None],
) -> None:
    world = JobWorld(ipus=0)
    for name in ("other", "waits"):
        world.kube.add_job(ipujob(name).build())
    await world.passes(3)
    what(world)
    await world.passes(12)
    assert world.facts.waiting() == {uid_of(world.kube.job("waits") or {})}
    world.partitions.calls.clear()
    await world.passes(20)  # a minute
    assert world.partitions.calls.count("ensure") == 10
    uid = world.kube.add_job(ipujob("newer").build())
    for _ in range(2):
        await world.controller.reconcile(uid)
    assert world.facts.waiting() == {uid, uid_of(world.kube.job("waits") or {})}


async def test_who_asks_anew_has_its_place_by_its_age() -> None:
    world = JobWorld(ipus=0)
    uid, _ = [world.kube.add_job(ipujob(name).build()) for name in ("older", "waits")]
    await world.passes(3)
    world.kube.edit_job("older", modelReplicas="3")
    await world.passes(6)
    world.kube.edit_job("older", modelReplicas="4")
    await world.passes()
    await world.controller.reconcile(uid)
    assert uid in world.facts.waiting()
    world.partitions.ipus = 4
    await world.run(3, launcher_exit=None)
    assert [r.name for r in world.partitions.held()] == ["older"]


async def edits(world: JobWorld, uid: str, sizes: Iterable[int], seconds: float) -> None:
    """Edit the job's size again and again, with passes and so much time after each edit."""
    for size in sizes:
        world.kube.edit_job("sample", ipusPerModelReplica=str(size))
        for _ in range(3):
            await world.controller.reconcile(uid)
        world.now += timedelta(seconds=seconds)


async def test_a_waiting_job_asks_at_once_for_an_edited_size_and_once() -> None:
    world = JobWorld(ipus=0)
    uid = world.kube.add_job(ipujob().build())
    world.kube.add_job(ipujob("other").build())
    await world.passes(2)
    world.partitions.calls.clear()
    await edits(world, uid, [2], 0.0)
    assert world.partitions.calls == ["ensure"]
    message = "8 IPUs in one block are needed and not free now"
    assert world.condition()["message"] == message
    world.kube.edit_job("sample", activeDeadlineSeconds=900)
    await edits(world, uid, [2, 2], 1.0)
    assert world.partitions.calls == ["ensure"]


async def test_a_job_that_is_edited_in_a_loop_asks_once_a_second() -> None:
    world = JobWorld(ipus=0)
    uid = world.kube.add_job(ipujob().build())
    await world.passes(2)
    world.partitions.calls.clear()
    await edits(world, uid, [1, 2] * 20, 0.05)
    assert world.partitions.calls == ["ensure"] * 2
    world.kube.edit_job("sample", ipusPerModelReplica="4")
    planned = plan(world.controller.observer.observe(uid) or observed(None), world.now)
    assert 0 < (planned.requeue_after or 0) <= 1
    world.now += timedelta(seconds=1)
    await edits(world, uid, [4], 0.0)
    assert world.partitions.calls == ["ensure"] * 3
    assert world.condition()["message"] == "16 IPUs in one block are needed and not free now"


async def test_who_cannot_ask_since_the_proxy_is_away_keeps_its_place() -> None:
    world = JobWorld(ipus=0)
    uid = world.kube.add_job(ipujob().build())
    await world.passes(3)
    world.facts.wake_waiting(world.now)
    world.partitions.away = True
    await world.passes(2)
    assert world.facts.waiting() == {uid}


async def test_who_is_refused_makes_nobody_ask_more_often() -> None:
    world = JobWorld(ipus=0)
    uids = [world.kube.add_job(ipujob(name).build()) for name in ("refused", "waits")]
    await world.passes(3)
    world.partitions.refused.add(uids[0])
    tries = 0
    for _ in range(20):  # a minute
        world.now += timedelta(seconds=3)
        tries += uids[1] in await world.facts.poll(world.now)
        for uid in uids:
            await world.controller.reconcile(uid)
    assert tries == 10
    assert world.facts.waiting() == {*uids}  # who is refused still wants its IPUs


def said_of_the_line(world: JobWorld) -> list[str]:
    waiting = ("youngest", "middle", "oldest")
    return [world.condition(name)["message"].partition("; ")[2] for name in waiting]


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
    world = await running_job(ipujob())
    world.partitions.away = True
    await world.run(4, launcher_exit=None)
    assert world.state() == "Running"


async def test_a_deletion_waits_for_the_proxy_and_then_ends() -> None:
    world = await running_job(ipujob())
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


async def test_a_job_that_vanishes_before_its_partition_is_listed_holds_nothing() -> None:
    world = JobWorld()
    uid = world.kube.add_job(ipujob().build())
    await world.passes()
    assert [r.name for r in world.partitions.held()] == ["sample"]
    (world.kube.job("sample") or {})["metadata"]["finalizers"] = []
    world.kube.delete_job("sample")
    await world.controller.reconcile(uid)
    assert world.partitions.held() == []


def waiting_fact(uid: str) -> Partition:
    return Partition(
        uid=uid,
        namespace="default",
        name=uid,
        instance=0,
        size=4,
        phase="waiting",
        reason="NoCapacity",
    )


async def test_all_who_wait_are_woken_together_once_something_changes_or_time_has_passed() -> None:
    facts = PartitionFacts(FakePartitions(), lambda _: True)
    await facts.poll(NOW)
    facts.note("young", waiting_fact("young"), at(0))
    facts.note("old", waiting_fact("old"), at(4))
    assert await facts.poll(at(4.5)) == set()
    assert facts.wake_waiting(at(4.5)) == {"young", "old"}
    assert facts.of("young")[0].asked_at is None
    for uid in ("young", "old"):
        facts.note(uid, waiting_fact(uid), at(5))
    assert await facts.poll(at(7)) == set()
    assert await facts.poll(at(10)) == {"young", "old"}


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_the_oldest_waiting_job_gets_what_becomes_free(*, is_restarted: bool) -> None:
    """Also when its call takes longer to the proxy than the others', or its dry run to the API
    server, and when the operator was restarted meanwhile."""
    world = JobWorld(ipus=4)
    world.kube.add_job(ipujob("holder").build())
    await world.until(lambda: world.state("holder") == "Running", launcher_exit=None)
    uids = {}
    for name, created in (("young", "2026-03-01T12:00:09Z"), ("old", "2026-03-01T12:00:05Z")):
        job = ipujob(name).build()
        job["metadata"]["creationTimestamp"] = created
        uids[name] = world.kube.add_job(job)
        await world.run(3, launcher_exit=None)
    world.partitions.detours[uids["old"]] = 20
    world.kube.calls.clear()
    if is_restarted:
        world.start()
        world.partitions.ipus = 8
    else:
        world.kube.delete_job("holder")
    for _ in range(6):
        await world.by_queue(launcher_exit=None)
    assert [r.name for r in world.partitions.held() if r.name != "holder"] == ["old"]
    assert world.kube.calls["try", "pods"] == 0


async def test_a_release_wakes_those_who_wait_at_once() -> None:
    world = JobWorld(ipus=4)
    for name in ("first", "second"):
        world.kube.add_job(ipujob(name).build())
        await world.run(6, launcher_exit=None)
    world.kube.delete_job("first")
    await world.by_queue(launcher_exit=None)
    await world.by_queue(launcher_exit=None)
    assert [r.name for r in world.partitions.held()] == ["second"]
