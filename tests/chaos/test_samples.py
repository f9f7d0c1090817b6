"""The short form omits only kinds of faults that it injects elsewhere, and covers every life."""

from __future__ import annotations

from collections import Counter

from tests.chaos.losses import STORIES
from tests.chaos.samples import LEAST, chosen, run_undisturbed
from tests.fakes.longform import IS_LONG


async def test_each_kind_of_write_and_event_is_struck_and_each_life() -> None:
    lives = [await run_undisturbed(story) for story in STORIES]
    writes = {story.name: life.writes for story, life in zip(STORIES, lives, strict=True)}
    events = {story.name: life.events for story, life in zip(STORIES, lives, strict=True)}
    for every in (writes, events):
        numbers = chosen(every, 8)
        assert all(numbers.values())
        struck = Counter(every[name][number] for name in every for number in numbers[name])
        there = Counter(kind for kinds in every.values() for kind in kinds)
        assert all(struck[kind] >= min(count, LEAST) for kind, count in there.items())
        assert IS_LONG or struck.total() < there.total() / 3
