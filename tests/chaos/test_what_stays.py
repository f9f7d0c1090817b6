"""cleanPodPolicy x keepPartition x outcome: which pods stay, what of the partition, what counts.

Beside the table of docs/developer/chaos.md: a test per cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.builders.ipujobs import ipujob
from tests.fakes.chaosworld import ChaosWorld

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.builders.ipujobs import IPUJobBuilder

LAUNCHER, WORKERS = "sample-launcher", ["sample-worker-0", "sample-worker-1"]


async def completed(world: ChaosWorld, job: IPUJobBuilder) -> None:
    world.kube.add_job(job.build())
    await world.settle()


async def failed(world: ChaosWorld, job: IPUJobBuilder) -> None:
    world.kube.add_job(job.build())
    await world.settle(launcher_exit=7)


async def out_of_time(world: ChaosWorld, job: IPUJobBuilder) -> None:
    world.kube.add_job(job.with_spec(activeDeadlineSeconds=30).build())
    await world.settle(launcher_exit=None)


async def worker_lost(world: ChaosWorld, job: IPUJobBuilder) -> None:
    world.kube.add_job(job.build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    world.kube.evict_pod(WORKERS[1])
    await world.settle(launcher_exit=None)


async def partition_in_error(world: ChaosWorld, job: IPUJobBuilder) -> None:
    uid = world.kube.add_job(job.build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    world.partitions.set_phase(uid, 0, "error", "an IPU is down")
    await world.settle(launcher_exit=None)


OUTCOMES: dict[str, tuple[Callable[[ChaosWorld, IPUJobBuilder], Awaitable[None]], str, str, int]]
OUTCOMES = {  # how it ends; STATUS, reason, and how many workers count as failed
    "completed": (completed, "Completed", "IPUJobSucceeded", 0),
    "failed": (failed, "Failed", "IPUJobFailed", 0),
    "deadline": (out_of_time, "Failed", "DeadlineExceeded", 0),
    "worker lost": (worker_lost, "Failed", "WorkerLost", 1),
    "partition error": (partition_in_error, "Failed", "PartitionError", 0),
}
STAYS = {"None": [LAUNCHER, *WORKERS], "Workers": [LAUNCHER], "All": []}


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("keep", [False, True], ids=["released", "kept"])
@pytest.mark.parametrize("policy", STAYS)
async def test_what_stays_when_a_job_has_ended(policy: str, keep: bool, outcome: str) -> None:
    end, want_state, want_reason, want_failed = OUTCOMES[outcome]
    world = ChaosWorld()
    job = ipujob().without_finalizer().workers(2).clean(policy)
    await end(world, job.keep_partition() if keep else job)
    status = world.status()

    assert status["launcherStatus"] == want_state
    assert {c["reason"] for c in status["conditions"] if c["status"] == "True"} == {want_reason}
    pods = world.kube.pods()
    assert sorted(pod["metadata"]["name"] for pod in pods) == STAYS[policy]
    # Nothing of it runs on: pods that sleep hold CPU, memory and the metering.
    assert {pod["status"]["phase"] for pod in pods} <= {"Succeeded", "Failed"}
    if policy == "None":
        counts = {"succeeded": 2 - want_failed, "failed": want_failed}
        want_counts = {name: count for name, count in counts.items() if count}
        assert status["workersStatus"] == want_counts
    # The partition counts until it is released: a kept partition goes on counting.
    held = world.partitions.held()
    assert len(held) == keep
    error = outcome == "partition error"
    want_phase = ("error" if error else "active") if keep else "released"
    assert [entry["state"] for entry in status["partitions"]] == [want_phase]

    world.kube.delete_job("sample")
    await world.settle()
    assert world.partitions.held() == []
    assert world.kube.objects == {}
