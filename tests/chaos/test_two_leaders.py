"""Two operators believe to lead for half a minute, the second with caches that lag; calls
overtake."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.chaos.losses import STORIES
from tests.chaos.samples import run_story
from tests.fakes.chaosworld import Faults, Rival
from tests.fakes.logcache import Feed
from tests.fakes.longform import IS_LONG

if TYPE_CHECKING:
    from tests.chaos.stories import Story

SEEDS = 40 if IS_LONG else 1


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_two_operators_do_not_tread_on_each_other(story: Story) -> None:
    for seed in range(SEEDS):
        chance = random.Random(f"{story.name} {seed}")
        late = {name: chance.choice([0.0, 4.0, 14.0, 40.0]) for name in ("ipujobs", "pods")}
        past = chance.choice([0.0, 0.0, 10.0])
        feed = Feed(lag=lambda plural, _now, late=late: late.get(plural, 0.0), from_past=past)
        rival = Rival(chance.choice([0.0, 4.0, 8.0, 14.0, 30.0]), feed)
        await run_story(story, Faults(rival=rival, turns=lambda chance=chance: chance.randrange(4)))
