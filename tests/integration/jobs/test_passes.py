"""Whole passes over an in-memory world: number and order of writes, and repeated Events."""

from __future__ import annotations

import pytest

from tests.builders.ipujobs import ipujob
from tests.builders.passes import running_job
from tests.fakes.jobworld import JobWorld


def writes(world: JobWorld) -> int:
    verbs = {"create", "patch", "delete"}
    return sum(count for (verb, _), count in world.kube.calls.items() if verb in verbs)


@pytest.mark.parametrize("workers", [1, 4])
async def test_a_job_runs_after_at_most_seven_and_n_writes(workers: int) -> None:
    world = await running_job(ipujob().workers(workers))
    assert writes(world) <= 7 + workers


async def test_a_job_without_a_launcher_runs_after_at_most_three_and_n_writes() -> None:
    world = await running_job(ipujob().without_launcher().workers(4))
    assert writes(world) <= 3 + 4


async def test_a_whole_life_takes_at_most_four_status_patches_and_six_events() -> None:
    world = await running_job(ipujob())
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
    world = await running_job(ipujob().workers(2))
    if finished:
        await world.run(20)
    else:
        await world.run(5, launcher_exit=None)
    calls, requests_before = world.kube.calls.copy(), len(world.partitions.calls)
    await world.passes(10)
    assert world.kube.calls == calls
    assert set(world.partitions.calls[requests_before:]) == {"list"}


async def test_sleeping_workers_end_their_objects_stay_and_the_partition_is_free() -> None:
    world = await running_job(ipujob().workers(2))
    await world.run(20)
    phases = sorted(pod["status"]["phase"] for pod in world.kube.pods())
    assert phases == ["Succeeded"] * 3  # nobody is alarmed by the pods of a good job
    status = (world.kube.job("sample") or {})["status"]
    assert status["workersStatus"] == {"succeeded": 2}
    assert status["partitions"][0]["state"] == "released"
    assert world.partitions.used == 0


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


async def test_jobs_of_other_namespaces_are_left_to_another_operator() -> None:
    world = JobWorld()
    world.namespaces = frozenset({"lab"})
    world.start()
    world.kube.add_job(ipujob().build())  # in the namespace default
    await world.passes(5)
    assert (writes(world), set(world.partitions.calls)) == (0, {"list"})

    world.namespaces = frozenset({"lab", "default"})
    world.start()
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    done, requests_before = writes(world), len(world.partitions.calls)
    world.namespaces = frozenset({"lab"})
    world.start()
    world.kube.mark_deleted("ipujobs", world.kube.job("sample") or {})
    await world.passes(5)
    assert writes(world) == done
    assert set(world.partitions.calls[requests_before:]) == {"list"}
