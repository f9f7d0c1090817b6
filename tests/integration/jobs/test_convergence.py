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


STORIES: list[tuple[Story, str | None]] = [
    (success, "Completed"),
    (failure_cleaned_up, "Failed"),
    (without_launcher, "Completed"),
    (deleted_while_running, None),
    (deleted_at_once, None),
    (deleted_when_finished, None),
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
    assert len(names) == len(set(names)), "a pod was started a second time"
    creations = [entry for entry in world.partitions.history if entry[0] == "create"]
    assert len(creations) == len(set(creations))
