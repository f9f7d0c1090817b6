"""The operator dies after any of its writes; what it leaves is picked up by its successor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.losses import STORIES
from tests.chaos.samples import run_story, run_undisturbed, writes_of
from tests.fakes.chaosworld import Faults
from tests.fakes.longform import IS_LONG

if TYPE_CHECKING:
    from tests.chaos.stories import Story

LATE_SECONDS = 40.0


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_every_write_may_be_the_last(story: Story) -> None:
    assert len((await run_undisturbed(story)).writes) > 3
    for number in await writes_of(story, 6):
        write = number + 1
        for downtime in (0.0, LATE_SECONDS) if IS_LONG else ((0.0, LATE_SECONDS)[write % 2],):
            await run_story(story, Faults(kill_at=write, downtime=downtime))
