"""Lost partitions, and partitions that a controller does not remove, in the job's status."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jobs.ipujob.names import uid_of
from tests.builders.ipujobs import ipujob
from tests.builders.passes import running_job

if TYPE_CHECKING:
    from jobs.ipujob.names import Manifest
    from tests.fakes.jobworld import JobWorld

FORCE = "partition is in use: remove it with force"


def lose(world: JobWorld) -> None:
    """Answer as the proxy once a stranger's partition of another size has our id."""
    uid = uid_of(world.kube.job("sample") or {})
    problem = {"reason": "PartitionLost", "message": "it has 8 IPUs, not 4"}
    record = world.partitions.records[uid, 0]
    world.partitions.records[uid, 0] = replace(record, phase="error", **problem)


def partition_of(world: JobWorld) -> Manifest:
    found: Any = (world.kube.job("sample") or {})["status"]["partitions"]
    return dict(found[0])


def events(world: JobWorld, reason: str) -> list[tuple[str, str]]:
    return [
        (kind, message)
        for kind, event_reason, message in world.events.seen
        if event_reason == reason
    ]


async def test_a_running_job_whose_partition_was_replaced_does_not_stay_running() -> None:
    world = await running_job(ipujob())
    lose(world)
    await world.until(lambda: world.state() == "Failed", launcher_exit=None)
    assert world.condition()["reason"] == "PartitionLost"
    assert "it has 8 IPUs, not 4" in world.condition()["message"]
    assert [kind for kind, _ in events(world, "PartitionLost")] == ["Warning"]
    await world.until(lambda: not world.partitions.held(), launcher_exit=None)


async def test_of_a_lost_partition_nothing_is_kept() -> None:
    world = await running_job(ipujob().keep_partition())
    await world.until(lambda: world.state() == "Completed")
    await world.run(3)
    assert len(world.partitions.held()) == 1
    lose(world)
    await world.run(3)
    assert world.partitions.held() == []


async def test_a_removal_that_is_refused_is_told_on_a_finished_job_once() -> None:
    world = await running_job(ipujob())
    world.partitions.refuses_removal = FORCE
    await world.until(lambda: world.state() == "Completed")
    await world.run(6)
    (event,) = events(world, "ReleaseRefused")
    assert (event[0], FORCE in event[1]) == ("Warning", True)
    assert (partition_of(world)["state"], partition_of(world)["message"]) == ("releasing", FORCE)
    world.partitions.refuses_removal = ""
    await world.run(6)
    assert partition_of(world)["state"] == "released"
    assert "message" not in partition_of(world)


async def test_a_deletion_that_waits_for_it_says_so_too() -> None:
    world = await running_job(ipujob())
    world.partitions.refuses_removal = FORCE
    world.kube.delete_job("sample")
    await world.run(8, launcher_exit=None)
    assert FORCE in (world.kube.job("sample") or {})["status"]["lastMessage"]
    assert len(events(world, "ReleaseRefused")) == 1
    world.partitions.refuses_removal = ""
    await world.run(4, launcher_exit=None)
    assert world.kube.job("sample") is None
