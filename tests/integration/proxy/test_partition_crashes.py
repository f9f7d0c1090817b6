"""The service dies after its k-th write, for every k: nothing leaks, nothing is made twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from ipuhub.partition import Phase
from partitions.errors import UnknownPartition
from partitions.vipu.errors import NoCapacity, NotReady, Unavailable
from tests.integration.proxy.conftest import TWO, World, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from partitions.proxy.service import PartitionService


@dataclass
class Guillotine:
    """Lets `left` writes to tracker or V-IPU pass; the next takes effect and never answers."""

    left: int
    fell: asyncio.Event = field(default_factory=asyncio.Event)
    writes: int = 0

    async def __call__(self) -> None:
        self.writes += 1
        if self.writes > self.left:
            self.fell.set()
            await asyncio.Event().wait()


async def run_until_death(
    world: World, story: Callable[[PartitionService], Awaitable[object]], left: int
) -> bool:
    """Run `story` on a new process that dies after `left` + 1 writes; whether it died."""
    blade = Guillotine(left)
    proxy = world.build()
    await proxy.store.refresh()
    for part in (world.maps, *world.vipus.values()):
        part.on_write = blade
    story_task = asyncio.create_task(story(proxy.service))  # type: ignore[arg-type]
    died = asyncio.create_task(blade.fell.wait())
    await asyncio.wait({story_task, died}, return_when=asyncio.FIRST_COMPLETED)
    dead = blade.fell.is_set()
    story_task.cancel()
    died.cancel()
    await asyncio.gather(story_task, died, return_exceptions=True)
    await proxy.stop()
    for part in (world.maps, *world.vipus.values()):
        part.on_write = None
    return dead


async def reserve(service: PartitionService) -> None:
    await service.ensure(request())


async def restart(service: PartitionService) -> None:
    await service.ensure(request())
    await service.ensure(request(attempt=1))


async def come_and_go(service: PartitionService) -> None:
    await service.ensure(request())
    await service.release("uid-job", 0)


async def come_back(service: PartitionService) -> None:
    await come_and_go(service)
    await service.ensure(request(attempt=1))


def check_nothing_leaks(world: World) -> None:
    """Every partition that exists belongs to exactly one live entry, and the other way round."""
    live = [entry for entry in world.entries() if entry.phase is not Phase.RELEASED]
    held = sorted((entry.controller, entry.id) for entry in live)
    exist = sorted(
        (address, one) for address, vipu in world.vipus.items() for one in vipu.partitions
    )
    assert held == exist
    assert len(live) <= 1


STORIES = [reserve, restart, come_and_go, come_back]


def two_controllers() -> World:
    world = World()
    world.add_vipu("v2:8090", polls=1)
    world.listed = TWO
    world.vipu.polls = 1
    return world


def first_is_full() -> World:
    """The first controller refuses what it seemed to have room for: the reservation moves on."""
    world = two_controllers()
    world.vipu.create_refused = [NoCapacity("no room")]
    return world


def first_says_nothing() -> World:
    """The first creation takes effect and is not answered."""
    world = two_controllers()
    world.vipu.create_lost = [Unavailable("no answer")]
    return world


def removes_late() -> World:
    """A removal is refused at first."""
    world = two_controllers()
    world.vipu.remove_refused = [NotReady("a device is in use")]
    return world


FLEETS = [two_controllers, first_is_full, first_says_nothing, removes_late]


async def worlds_left_behind(
    story: Callable[[PartitionService], Awaitable[None]], fleet: Callable[[], World]
) -> AsyncIterator[tuple[int, World]]:
    """Yield the world after a death at each write of `story`, until the story comes to its end."""
    for left in range(30):
        world = fleet()
        if not await run_until_death(world, story, left):
            return
        yield left, world


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("story", STORIES)
async def test_the_next_call_finishes_what_a_crash_left(
    story: Callable[[PartitionService], Awaitable[None]], fleet: Callable[[], World]
) -> None:
    deaths = 0
    async for left, world in worlds_left_behind(story, fleet):
        deaths += 1
        async with world.process() as proxy:
            record = await proxy.service.ensure(request(attempt=5))
            if record.phase == "released":  # it was on its way out
                record = await proxy.service.ensure(request(attempt=5))
            assert record.phase == "active", (left, record)
            check_nothing_leaks(world)
            await proxy.service.release("uid-job", 0)
            check_nothing_leaks(world)
        assert all(vipu.partitions == {} for vipu in world.vipus.values())
    assert deaths >= 4


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("story", STORIES)
async def test_the_sweep_finishes_what_a_crash_left(
    story: Callable[[PartitionService], Awaitable[None]], fleet: Callable[[], World]
) -> None:
    async for left, world in worlds_left_behind(story, fleet):
        async with world.process() as proxy:
            await proxy.sweep.once()
            check_nothing_leaks(world)
            assert all(entry.phase.is_settled for entry in world.entries()), left


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize("story", STORIES)
async def test_a_release_after_a_crash_leaves_no_partition(
    story: Callable[[PartitionService], Awaitable[None]], fleet: Callable[[], World]
) -> None:
    async for _, world in worlds_left_behind(story, fleet):
        async with world.process() as proxy:
            try:
                record = await proxy.service.release("uid-job", 0)
                assert record.phase == "released"
            except UnknownPartition:
                assert world.entries() == []
        assert all(vipu.partitions == {} for vipu in world.vipus.values())


async def test_many_jobs_at_once_survive_a_crash_at_every_write() -> None:
    async def crowd(service: PartitionService) -> None:
        await asyncio.gather(*(service.ensure(request(f"job-{n}", size=8)) for n in range(6)))
        await asyncio.gather(*(service.release(f"uid-job-{n}", 0) for n in range(6)))

    for left in range(60):
        world = two_controllers()
        if not await run_until_death(world, crowd, left):
            break
        async with world.process() as proxy:
            await proxy.sweep.once()
            live = [entry for entry in world.entries() if entry.phase is not Phase.RELEASED]
            exist = {(a, one) for a, vipu in world.vipus.items() for one in vipu.partitions}
            assert {(entry.controller, entry.id) for entry in live} == exist
            assert all(entry.phase is Phase.ACTIVE for entry in live)
            for entry in live:
                await proxy.service.release(entry.uid, entry.instance)
        assert all(vipu.partitions == {} for vipu in world.vipus.values())
    assert left > 10


async def test_a_strangers_partition_of_our_name_survives_our_crashes() -> None:
    for left in range(10):
        world = two_controllers()
        for vipu in world.vipus.values():
            vipu.by_hand("p-job-default-0", 2)
        died = await run_until_death(world, reserve, left)
        async with world.process() as proxy:
            await proxy.sweep.once()
            record = await proxy.service.ensure(request(attempt=1))
            assert record.id != "p-job-default-0"
        assert [v.partitions["p-job-default-0"].resets for v in world.vipus.values()] == [0, 0]
        if not died:
            return
