"""The writes and events of a life at which faults are injected: in the long form, all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from tests.chaos.losses import STORIES
from tests.chaos.stories import check_end, check_rest
from tests.fakes.chaosworld import ChaosWorld, Faults
from tests.fakes.longform import IS_LONG
from tests.fakes.wire import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.chaos.stories import Story


LEAST = 2  # times that each kind is struck


async def run_story(story: Story, faults: Faults) -> ChaosWorld:
    """A life under faults, to the end that it must come to."""
    world = ChaosWorld(faults)
    await story.tell(world)
    check_end(world, story)
    await check_rest(world)
    return world


@dataclass(frozen=True)
class Calm:
    """Of each write and each watch event of a life without faults: what it did."""

    writes: list[str]
    events: list[str]


_calm: dict[str, Calm] = {}


async def run_undisturbed(story: Story) -> Calm:
    """Run a life without faults and return what happens in it."""
    if story.name not in _calm:
        world = await run_story(story, Faults())
        events = [
            f"{change.plural} {kind_of(change.manifest)}{' gone' * change.is_gone}"
            for change in world.kube.changes
        ]
        _calm[story.name] = Calm(world.kinds, events)
    return _calm[story.name]


async def writes_of(story: Story, share: int) -> list[int]:
    """Numbers from 0 of the writes that a fault comes to, about one of so many."""
    lives = {one.name: (await run_undisturbed(one)).writes for one in STORIES}
    return chosen(lives, share)[story.name]


async def events_of(story: Story, share: int) -> list[int]:
    """The same of watch events."""
    lives = {one.name: (await run_undisturbed(one)).events for one in STORIES}
    return chosen(lives, share)[story.name]


def chosen(lives: Mapping[str, Sequence[str]], share: int) -> dict[str, list[int]]:
    """By life, the numbers of what is struck: at least one of each life and, over all lives, each
    kind `LEAST` times, if it is there so often."""
    if IS_LONG:
        return {name: list(range(len(kinds))) for name, kinds in lives.items()}
    total = Counter(kind for kinds in lives.values() for kind in kinds)
    stride = {kind: max(1, min(share, count // LEAST)) for kind, count in total.items()}
    seen = Counter({kind: crc32(kind.encode()) for kind in total})  # each kind in other lives
    found: dict[str, list[int]] = {}
    for name, kinds in lives.items():
        found[name] = []
        for number, kind in enumerate(kinds):
            seen[kind] += 1
            if seen[kind] % stride[kind] == 0:
                found[name].append(number)
        found[name] = found[name] or [len(kinds) // 2]
    return found


def turn_of(story: Story) -> int:
    """Return the place at which a life begins to count, so that lives differ in what they leave
    out."""
    return STORIES.index(story)
