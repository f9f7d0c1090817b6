"""Each watch event is lost or late in turn; caches lag; a new operator starts from old lists."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.chaos.losses import STORIES
from tests.chaos.samples import events_of, run_story, turn_of, writes_of
from tests.fakes.chaosworld import Faults
from tests.fakes.logcache import Feed
from tests.fakes.longform import one_in_turn

if TYPE_CHECKING:
    from datetime import datetime

    from tests.chaos.stories import Story

AGES = (6.0, 20.0, 60.0)
SHARE = 16  # in the quick form about every sixteenth event is lost, and delayed


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_every_event_may_be_lost(story: Story) -> None:
    for number in await events_of(story, SHARE):
        await run_story(story, Faults(feed=Feed(drop=number)))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_every_event_may_be_late(story: Story) -> None:
    for number in await events_of(story, SHARE):
        await run_story(story, Faults(feed=Feed(stall=number)))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_caches_may_lag(story: Story) -> None:
    """Each resource by its own time, which changes every half minute."""
    for seed in one_in_turn(range(12), turn_of(story)):
        salt = random.Random(seed).random()

        def lag(plural: str, now: datetime, salt: float = salt) -> float:
            part = random.Random(f"{salt}{plural}{int(now.timestamp()) // 30}")
            return part.choice([0.0, 0.0, 4.0, 10.0, 40.0])

        await run_story(story, Faults(feed=Feed(lag=lag)))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_a_new_operator_may_read_an_older_version(story: Story) -> None:
    """Its first lists are some time old, and stay so for as long again."""
    for number in await writes_of(story, 12):
        for age in one_in_turn(AGES, number + turn_of(story)):
            past = Feed(from_past=age)
            await run_story(story, Faults(kill_at=number + 1, feed_after=past))
