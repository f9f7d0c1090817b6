"""The controller refuses for a while or forgets its partitions, or these break: one attempt per
announced pause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from jobs.ipujob.rules import Patience
from tests.chaos.losses import STORIES
from tests.chaos.samples import turn_of
from tests.chaos.stories import check_end, check_rest, new_job
from tests.fakes.chaosworld import Breakage, ChaosWorld, Faults
from tests.fakes.longform import IS_LONG, one_in_turn

if TYPE_CHECKING:
    from tests.chaos.stories import Story

SINCE = (0.0, 6.0, 12.0, 20.0, 30.0, 50.0)
SECONDS = (20.0, 130.0, 700.0) if IS_LONG else (130.0,)
OUTAGES = (0.0, 20.0, 130.0, 700.0) if IS_LONG else (0.0, 130.0)
# Never but for what is taken from the job: no exit code of a story is among these.
OF_LOSSES_ONLY = {"type": "ExitCode", "exitCodes": "250"}


def restarted_after_losses(world: ChaosWorld) -> None:
    """A job that would fail with the first broken partition is restarted of that alone."""
    add = world.kube.add_job

    def add_job(job: dict[str, Any]) -> str:
        policy = job["spec"].get("restartPolicy") or {}
        if policy.get("type", "Never") == "Never":
            job["spec"]["restartPolicy"] = policy | OF_LOSSES_ONLY
        return add(job)

    world.kube.add_job = add_job  # type: ignore[method-assign]


async def live_through(story: Story, breakage: Breakage, **faults: Any) -> None:
    world = ChaosWorld(Faults(breakage=breakage, **faults))
    if not breakage.waits_for_start:
        restarted_after_losses(world)
    await story.tell(world)
    await world.settle()
    lost_last = [verb for verb, _, _ in world.partitions.history][-1:] == ["lose"]
    kept = 0 if lost_last else story.want_held  # of what is lost nothing is left to keep
    check_end(world, replace(story, want_attempts=None, want_held=kept))
    await check_rest(world)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_the_controller_may_be_out_of_order_for_a_while(story: Story) -> None:
    """A life that ends with the first loss, as it must under Never, breaks once it runs."""
    is_never = story.name.endswith("_under_never")
    for since in one_in_turn(SINCE, turn_of(story)):
        for seconds in SECONDS:
            for breaks in (False, True):
                await live_through(
                    story, Breakage(since, seconds, breaks, waits_for_start=is_never)
                )


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_and_the_operator_dies_on_top(story: Story) -> None:
    is_never = story.name.endswith("_under_never")
    for write in one_in_turn(range(2, 30, 3), turn_of(story)):
        breakage = Breakage(4.0, 60.0, breaks=True, waits_for_start=is_never)
        await live_through(story, breakage, kill_at=write, downtime=20.0)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_the_controller_may_restart_empty(story: Story) -> None:
    """At once, or after a while in which it does not answer."""
    is_never = story.name.endswith("_under_never")
    for since in one_in_turn(SINCE, turn_of(story)):
        for seconds in OUTAGES:
            await live_through(
                story, Breakage(since, seconds, forgets=True, waits_for_start=is_never)
            )


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_and_the_operator_dies_while_the_controller_is_away(story: Story) -> None:
    is_never = story.name.endswith("_under_never")
    for write in one_in_turn(range(2, 30, 3), turn_of(story)):
        breakage = Breakage(6.0, 40.0, forgets=True, waits_for_start=is_never)
        await live_through(story, breakage, kill_at=write, downtime=20.0)


async def test_a_controller_that_never_heals_ends_the_job_with_its_own_reason() -> None:
    world = ChaosWorld(Faults(breakage=Breakage(0.0, 1e6), patience=Patience(most_losses=4)))
    policy = {"type": "OnFailure", "backOffLimit": 0}
    world.kube.add_job(new_job().with_spec(restartPolicy=policy).build())
    await world.until(lambda: world.state() == "Failed")
    (reason,) = [c["reason"] for c in world.status()["conditions"] if c["status"] == "True"]
    assert reason == "LossLimitReached"
    assert len(world.partitions.tries) == 1 + 4
    assert world.status()["restartCount"] == 4


async def test_a_pause_for_the_partitions_sake_ends_when_it_works_again() -> None:
    world = ChaosWorld()
    policy = {"type": "OnFailure", "backOffLimit": 0}
    uid = world.kube.add_job(new_job().with_spec(restartPolicy=policy).build())
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    world.partitions.set_phase(uid, 0, "error", "a cable is loose")
    await world.until(lambda: world.state() == "Restarting", launcher_exit=None)
    world.partitions.set_phase(uid, 0, "active")
    announced = world.status()["instances"][0]["restartAt"]
    await world.until(lambda: world.state() == "Running", launcher_exit=None)
    assert f"{world.now:%Y-%m-%dT%H:%M:%SZ}" <= announced
