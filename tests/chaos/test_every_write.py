"""The operator dies after any of its writes; what it leaves is picked up by its successor."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.chaos.losses import STORIES
from tests.chaos.stories import check_end, check_rest
from tests.fakes.chaosworld import ChaosWorld, Faults

if TYPE_CHECKING:
    from tests.chaos.stories import Story

LONG = bool(os.environ.get("CHAOS_LONG"))
LATE_SECONDS = 40.0


async def told(story: Story, faults: Faults) -> ChaosWorld:
    world = ChaosWorld(faults)
    await story.tell(world)
    check_end(world, story)
    await check_rest(world)
    return world


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_every_write_may_be_the_last(story: Story) -> None:
    calm = await told(story, Faults())
    assert calm.writes > 3
    for write in range(1, calm.writes + 1):
        for downtime in (0.0, LATE_SECONDS) if LONG else ((0.0, LATE_SECONDS)[write % 2],):
            await told(story, Faults(kill_at=write, downtime=downtime))
