"""Dry runs of pods before a job takes IPUs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.kube.errors import AlreadyExists, ApiError, Forbidden, Unreachable
from jobs.operator.actions import TryPod
from jobs.operator.effects import PodDryRuns
from tests.builders.ipujobs import ipujob
from tests.fakes.jobworld import JobWorld
from tests.fakes.waiting import eventually

if TYPE_CHECKING:
    from jobs.ipujob.names import Manifest

QUOTA = Forbidden(403, "Forbidden", 'pods "sample-worker-0" is forbidden: exceeded quota: q')


async def test_a_job_that_is_refused_takes_no_ipus_and_says_why() -> None:
    world = JobWorld()
    world.kube.refusing.most_pods = 0
    world.kube.add_job(ipujob().build())
    await world.passes(4)
    assert world.partitions.history == []
    assert world.condition()["reason"] == "QuotaExceeded"
    world.kube.refusing.most_pods = None
    await world.until(lambda: world.state() == "Running", launcher_exit=None)


@pytest.mark.parametrize(
    "error",
    [
        AlreadyExists(409, "AlreadyExists", 'pods "sample-worker-0" already exists'),
        ApiError(400, "BadRequest", "admission webhook x does not support dry run"),
    ],
)
async def test_what_says_nothing_of_the_pod_holds_up_nobody(error: Exception) -> None:
    world = JobWorld()
    world.kube.faults["try", "pods"] = [error] * 4
    world.kube.add_job(ipujob().build())
    await world.passes(1)
    assert len(world.partitions.held()) == 1


async def test_a_server_that_is_away_is_asked_again() -> None:
    world = JobWorld()
    world.kube.faults["try", "pods"] = [Unreachable("timed out"), QUOTA]
    world.kube.add_job(ipujob().build())
    await world.passes(1)
    assert world.partitions.held() == []
    await world.passes(1)
    assert len(world.partitions.held()) == 1


async def test_a_burst_of_equal_jobs_asks_once() -> None:
    world = JobWorld(ipus=64)
    for number in range(8):
        world.kube.add_job(ipujob(f"job-{number}").build())
    await world.passes(2)
    assert world.kube.calls["try", "pods"] == 2  # a worker and a launcher
    assert len(world.partitions.held()) == 8


async def test_a_worker_that_never_becomes_ready_does_not_hold_its_ipus_for_ever() -> None:
    world = JobWorld()
    world.kube.now = lambda: world.now
    world.kube.unready = "the model is being loaded"
    world.kube.add_job(ipujob().build())
    await world.until(lambda: len(world.kube.pods()) == 2)
    await world.passes(20)
    assert len(world.partitions.held()) == 1
    world.now += timedelta(minutes=30)
    await world.passes()
    assert world.condition()["reason"] == "StartBlocked"
    message = "Pod sample-worker-0 is running but not Ready: the model is being loaded"
    assert message in world.condition()["message"]
    await world.until(lambda: world.partitions.held() == [])
    world.kube.unready = ""
    world.now += timedelta(minutes=5)
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    assert len(world.partitions.held()) == 1


class Slow:
    """An API server that answers a dry run once the test allows it."""

    def __init__(self, *refusals: Exception) -> None:
        self.pods: list[str] = []
        self.refusals = list(refusals)
        self.answers = asyncio.Event()

    async def try_create(self, _: Any, pod: Manifest) -> None:
        self.pods.append(pod["metadata"]["name"])
        refusal = self.refusals.pop() if self.refusals else None
        await self.answers.wait()
        if refusal is not None:
            raise refusal


async def judged(server: Slow, jobs: int) -> list[BaseException | None]:
    """The first pods of equal jobs, all looked at before the server answers."""
    client: Any = server
    rehearsals = PodDryRuns(client)
    pods = [TryPod("default/same/0", {"metadata": {"name": f"job-{n}"}}) for n in range(jobs)]
    tries = [asyncio.create_task(rehearsals.judge(pod)) for pod in pods]
    await eventually(lambda: bool(server.pods))
    server.answers.set()
    return await asyncio.gather(*tries, return_exceptions=True)


async def test_equal_jobs_at_the_same_moment_ask_once() -> None:
    server = Slow()
    assert await judged(server, 16) == [None] * 16
    assert server.pods == ["job-0"]


async def test_a_refusal_is_no_word_of_another_job() -> None:
    other = Forbidden(403, "Forbidden", 'pods "job-1" is forbidden: exceeded quota: q')
    server = Slow(other, QUOTA)
    assert await judged(server, 3) == [QUOTA, other, None]
    assert server.pods == ["job-0", "job-1", "job-2"]


async def test_a_namespace_without_its_account_yet_is_no_news() -> None:
    world = JobWorld()
    text = 'pods "x" is forbidden: error looking up service account default/default: not found'
    world.kube.faults["try", "pods"] = [Forbidden(403, "Forbidden", text)]
    world.kube.add_job(ipujob().without_launcher().build())
    await world.until(lambda: world.state() == "Running")
    assert "CreateFailed" not in world.events.reasons
