"""A fifth of all calls is refused, fails or goes unanswered, with fixed seeds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.chaos.losses import STORIES
from tests.chaos.stories import check_end, check_rest
from tests.fakes.chaosworld import ChaosWorld, Faults
from tests.fakes.longform import IS_LONG
from tests.fakes.wire import Mischief

if TYPE_CHECKING:
    from tests.chaos.stories import Story

SEEDS = 40 if IS_LONG else 1


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_a_fifth_of_all_calls_goes_wrong(story: Story) -> None:
    for seed in range(SEEDS):
        chance = random.Random(f"{story.name} {seed}")
        mischief = Mischief(chance)
        world = ChaosWorld(Faults(mischief=mischief))
        await story.tell(world)
        mischief.share = 0.0
        await world.settle()
        check_end(world, story)
        await check_rest(world)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_and_the_operator_dies_on_top(story: Story) -> None:
    for seed in range(max(1, SEEDS // 2)):
        chance = random.Random(f"killed {story.name} {seed}")
        mischief = Mischief(chance)
        world = ChaosWorld(Faults(mischief=mischief, kill_at=chance.randint(1, 12), downtime=20.0))
        await story.tell(world)
        mischief.share = 0.0
        await world.settle()
        check_end(world, story)
        await check_rest(world)
