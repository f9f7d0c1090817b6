"""The operator dies after any of its writes; what it leaves is picked up by its successor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.builders.ipujobs import ipujob
from tests.fakes.jobworld import JobWorld

Story = Callable[[JobWorld], Awaitable[None]]


async def success(world: JobWorld) -> None:
    world.kube.add_job(ipujob().without_finalizer().workers(3).build())
    await world.run(30)


async def failure_cleaned_up(world: JobWorld) -> None:
    world.kube.add_job(ipujob().without_finalizer().workers(2).clean("All").build())
    await world.run(30, launcher_exit=7)


async def without_launcher(world: JobWorld) -> None:
    world.kube.add_job(ipujob().without_finalizer().without_launcher().instances(2).build())
    await world.run(30, worker_exit=0)


async def deleted_while_running(world: JobWorld) -> None:
    world.kube.add_job(ipujob().without_finalizer().workers(2).build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    world.kube.delete_job("sample")
    await world.run(30, launcher_exit=None)


async def deleted_at_once(world: JobWorld) -> None:
    world.kube.add_job(ipujob().without_finalizer().workers(2).build())
    await world.passes(2)
    if world.kube.job("sample"):
        world.kube.delete_job("sample")
    await world.run(30)


async def deleted_when_finished(world: JobWorld) -> None:
    await success(world)
    world.kube.delete_job("sample")
    await world.run(20)


OFTEN = {"type": "OnFailure", "backOffLimit": 2}


def fails_until(attempt: int) -> Callable[[int], int]:
    return lambda number: 7 if number < attempt else 0


async def restarted_until_it_succeeds(world: JobWorld) -> None:
    job = ipujob().without_finalizer().workers(2).with_spec(restartPolicy=OFTEN)
    world.kube.add_job(job.build())
    await world.run(60, launcher_exit=fails_until(2))


async def restarted_to_the_limit(world: JobWorld) -> None:
    job = ipujob().without_finalizer().workers(2).with_spec(restartPolicy=OFTEN)
    world.kube.add_job(job.build())
    await world.run(60, launcher_exit=fails_until(9))


async def restarted_after_a_lost_worker(world: JobWorld) -> None:
    job = ipujob().without_finalizer().workers(2).with_spec(restartPolicy=OFTEN)
    world.kube.add_job(job.build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    world.kube.delete_pod("sample-worker-1")
    await world.run(40, launcher_exit=lambda attempt: 0 if attempt else None)


async def restarted_after_an_error_of_the_partition(world: JobWorld) -> None:
    job = ipujob().without_finalizer().with_spec(restartPolicy=OFTEN)
    uid = world.kube.add_job(job.build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    world.partitions.set_phase(uid, 0, "error", "an IPU is down")
    await world.run(40, launcher_exit=lambda attempt: 0 if attempt else None)


async def instances_restarted_alone(world: JobWorld) -> None:
    job = ipujob().without_finalizer().without_launcher().instances(2)
    world.kube.add_job(job.with_spec(restartPolicy=OFTEN).build())
    await world.run(60, worker_exit=fails_until(1))


async def suspended_and_resumed(world: JobWorld) -> None:
    world.kube.add_job(ipujob().without_finalizer().workers(2).build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    world.kube.edit_job("sample", suspend=True)
    await world.run(15, launcher_exit=None)
    assert world.state() == "Suspended"
    assert world.partitions.held() == []
    assert world.kube.pods() == []
    world.kube.edit_job("sample", suspend=False)
    await world.run(30)


async def scaled_down_and_up(world: JobWorld) -> None:
    job = ipujob().without_finalizer().without_launcher().instances(3)
    world.kube.add_job(job.build())
    await world.until(lambda: world.state() == "Running")
    world.kube.edit_job("sample", jobInstances=1)
    await world.run(15)
    assert len(world.partitions.held()) == 1
    assert [pod["metadata"]["name"] for pod in world.kube.pods()] == ["sample-worker-0"]
    world.kube.edit_job("sample", jobInstances=2)
    await world.run(15)
    assert len(world.partitions.held()) == 2
    await world.run(30, worker_exit=0)


async def ended_by_its_deadline(world: JobWorld) -> None:
    job = ipujob().without_finalizer().with_spec(activeDeadlineSeconds=30)
    world.kube.add_job(job.build())
    await world.run(40, launcher_exit=None)


async def deleted_by_its_time_to_live(world: JobWorld) -> None:
    job = ipujob().without_finalizer().with_spec(ttlSecondsAfterFinished=10)
    world.kube.add_job(job.build())
    await world.run(40)


STORIES: list[tuple[Story, str | None]] = [
    (success, "Completed"),
    (failure_cleaned_up, "Failed"),
    (without_launcher, "Completed"),
    (deleted_while_running, None),
    (deleted_at_once, None),
    (deleted_when_finished, None),
    (restarted_until_it_succeeds, "Completed"),
    (restarted_to_the_limit, "Failed"),
    (restarted_after_a_lost_worker, "Completed"),
    (restarted_after_an_error_of_the_partition, "Completed"),
    (instances_restarted_alone, "Completed"),
    (suspended_and_resumed, "Completed"),
    (scaled_down_and_up, "Completed"),
    (ended_by_its_deadline, "Failed"),
    (deleted_by_its_time_to_live, None),
]


@pytest.mark.parametrize(("story", "want_state"), STORIES, ids=[s.__name__ for s, _ in STORIES])
async def test_every_write_may_be_the_last(story: Story, want_state: str | None) -> None:
    calm = JobWorld()
    await story(calm)
    check_end(calm, want_state)
    assert calm.writes > 5

    for write in range(1, calm.writes + 1):
        world = JobWorld()
        world.kill_after(write)
        await story(world)
        check_end(world, want_state)


def check_end(world: JobWorld, want_state: str | None) -> None:
    assert world.state() == want_state
    assert world.partitions.held() == []
    if want_state is None:
        assert world.kube.objects == {}
    phases = {pod["metadata"]["name"]: pod["status"]["phase"] for pod in world.kube.pods()}
    assert set(phases.values()) <= {"Succeeded", "Failed"}
    assert all(count == 1 for count in world.kube.main_starts.values())
    names = [name for _, name in world.kube.main_starts]
    assert len(names) == len(set(names)), "an attempt's pod was started a second time"
    for holder in {entry[1:] for entry in world.partitions.history}:
        verbs = [entry[0] for entry in world.partitions.history if entry[1:] == holder]
        made_and_freed = [verb for verb in verbs if verb != "reset"]
        assert made_and_freed == ["create", "release"] * (len(made_and_freed) // 2)
