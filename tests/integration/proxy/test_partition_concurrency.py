"""Slow controllers, outages and concurrent calls: which calls wait, and which of them wins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ipuhub.backoff import Backoff
from ipuhub.partition import Phase
from partitions.errors import TrackerUnavailable
from partitions.proxy.lifecycle import begin_release
from partitions.proxy.steps.driver import Pace
from partitions.proxy.tracker import encode_entry
from partitions.vipu.errors import NoAnswer, NoCapacity
from tests.fakes.configmaps import unreachable
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import TWO, request, run_other_tasks

if TYPE_CHECKING:
    from partitions.vipu.types import VipuStatus
    from tests.integration.proxy.conftest import World


async def test_a_slow_partition_answers_creating_and_becomes_active_by_itself(
    world: World,
) -> None:
    world.vipu.polls = 10**6
    world.answer_seconds = 0.3
    proxy = await world.start()
    assert (await proxy.service.ensure(request())).phase == "creating"
    world.vipu.partitions["p-job-default-0"].polls_left = 0
    await eventually(lambda: proxy.service.find("uid-job", 0).phase == "active")


async def test_a_release_does_not_wait_for_a_slow_creation(world: World) -> None:
    world.vipu.polls = 10**6
    world.answer_seconds = 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    await proxy.service.release("uid-job", 0)
    await eventually(lambda: proxy.service.find("uid-job", 0).phase == "released")
    assert world.vipu.partitions == {}


async def test_a_release_while_the_controller_is_away_ends_when_it_is_back(
    world: World,
) -> None:
    world.answer_seconds = 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    world.vipu.down = NoAnswer("refused")
    record = await proxy.service.release("uid-job", 0)
    assert record.phase == "releasing"
    await eventually(lambda: proxy.service.find("uid-job", 0).reason == "ControllerUnavailable")
    world.vipu.down = None
    await eventually(lambda: proxy.service.find("uid-job", 0).phase == "released")
    assert world.entry().reason == ""


async def test_while_the_api_server_is_away_a_request_says_so_and_later_succeeds(
    world: World,
) -> None:
    world.patience_seconds = 0.5
    proxy = await world.start()
    world.maps.down = unreachable()
    with pytest.raises(TrackerUnavailable, match="connection refused"):
        await proxy.service.ensure(request())
    assert proxy.store.problem == "connection refused"
    world.maps.down = None
    await eventually(lambda: proxy.store.problem == "")
    assert (await proxy.service.ensure(request())).phase == "active"
    assert list(world.vipu.partitions) == ["p-job-default-0"]


async def test_before_the_tracker_was_read_every_call_says_so(world: World) -> None:
    world.maps.down = unreachable()
    world.patience_seconds = 0.01
    proxy = world.build()
    world.running.append(proxy)
    with pytest.raises(TrackerUnavailable):
        proxy.service.records()
    with pytest.raises(TrackerUnavailable):
        await proxy.service.ensure(request())
    world.maps.down = None
    await eventually(lambda: not proxy.store.problem)
    assert proxy.service.records() == []


async def test_sixty_four_jobs_at_once_get_sixty_four_partitions_in_few_patches(
    world: World,
) -> None:
    world.vipu.machines = 16
    proxy = await world.start()
    records = await asyncio.gather(
        *(proxy.service.ensure(request(f"job-{n}", size=1)) for n in range(64))
    )
    assert {record.phase for record in records} == {"active"}
    assert len({record.id for record in records}) == 64
    assert {entry.id for entry in world.entries()} == {record.id for record in records}
    assert set(world.vipu.partitions) == {record.id for record in records}
    assert len(world.maps.patches) <= 16
    assert world.maps.gets <= 1


async def test_jobs_that_compete_for_the_last_ipus_never_share_them(world: World) -> None:
    proxy = await world.start()
    records = await asyncio.gather(
        *(proxy.service.ensure(request(f"job-{n}", size=8)) for n in range(8))
    )
    assert sorted(record.phase for record in records) == ["active"] * 4 + ["waiting"] * 4
    assert {record.needed for record in records if record.phase == "waiting"} == {8}
    assert len(world.vipu.partitions) == 4
    assert len(world.entries()) == 4


async def test_on_a_full_fleet_a_creation_is_sent_only_where_a_block_is_left(
    world: World,
) -> None:
    world.vipu.by_hand("mine", 16)
    world.vipu.by_hand("mine-too", 8)
    proxy = await world.start()
    creations: list[str] = []
    world.vipu.before_create = lambda request: creations.append(request.id)
    calls = [proxy.service.ensure(request(f"job-{n}", size=4)) for n in range(64)]
    records = await asyncio.gather(*calls)
    assert len(creations) == 2
    waiting = [record for record in records if record.phase == "waiting"]
    assert {(one.reason, one.needed) for one in waiting} == {("NoCapacity", 4)}
    assert len(waiting) == 62
    assert len(proxy.service.in_turn()) == 62
    await proxy.service.release("uid-job-0", 0)
    again = [proxy.service.ensure(request(f"job-{n}", size=4)) for n in range(2, 64)]
    phases = [record.phase for record in await asyncio.gather(*again)]
    assert (phases.count("active"), len(creations)) == (1, 3)


async def test_calls_for_one_holder_follow_each_other(world: World) -> None:
    world.vipu.polls = 2
    proxy = await world.start()
    records = await asyncio.gather(*(proxy.service.ensure(request()) for _ in range(10)))
    assert {record.phase for record in records} == {"active"}
    assert world.vipu.created == ["p-job-default-0"]
    assert world.vipu.partitions["p-job-default-0"].resets == 0


async def test_calls_for_different_holders_do_not_wait_for_each_other(world: World) -> None:
    world.add_vipu("v2:8090")
    world.listed = TWO
    world.vipu.polls = 10**6
    world.answer_seconds = 30
    proxy = await world.start()
    slow = asyncio.create_task(proxy.service.ensure(request("slow", size=32)))
    await eventually(lambda: "p-slow-default-0" in world.vipu.partitions)
    assert (await proxy.service.ensure(request("fast"))).phase == "active"
    assert not slow.done()
    slow.cancel()


async def test_a_release_that_comes_while_a_place_is_sought_comes_after_it(
    world: World,
) -> None:
    proxy = await world.start()
    gate, sought = asyncio.Event(), asyncio.Event()
    views = proxy.fleet.views

    async def slowly() -> object:
        sought.set()
        await gate.wait()
        return await views()

    proxy.fleet.views = slowly  # type: ignore[assignment,method-assign]
    reserving = asyncio.create_task(proxy.service.ensure(request()))
    await sought.wait()
    releasing = asyncio.create_task(proxy.service.release("uid-job", 0))
    await run_other_tasks()
    gate.set()
    assert (await releasing).phase == "released"
    await reserving
    assert world.vipu.partitions == {}
    assert world.entry().phase is Phase.RELEASED


async def test_a_release_wakes_a_partition_that_is_rarely_looked_at(world: World) -> None:
    world.pace = Pace(poll=Backoff(3600, 3600), retry=Backoff(3600, 3600))
    world.vipu.polls = 10**6
    world.answer_seconds = 0.2
    proxy = await world.start()
    assert (await proxy.service.ensure(request())).phase == "creating"
    await proxy.service.release("uid-job", 0)
    await eventually(lambda: world.entry().phase is Phase.RELEASED)


async def test_what_somebody_writes_into_the_tracker_is_not_written_over(world: World) -> None:
    proxy = await world.start()

    def edit(_: object) -> None:
        world.vipu.before_create = None
        edited = begin_release(world.entry())
        world.maps.edit("ipu-partitions-tracker", **{edited.key: encode_entry(edited)})

    world.vipu.before_create = edit
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.RELEASED)
    assert world.vipu.partitions == {}


async def test_nor_what_somebody_writes_while_it_becomes_active(world: World) -> None:
    proxy = await world.start()
    world.vipu.polls = 1
    status, looks = world.vipu.partition_status, list[str]()

    async def looked(partition_id: str) -> VipuStatus:
        looks.append(partition_id)
        if len(looks) == 2:
            edited = begin_release(world.entry())
            world.maps.edit("ipu-partitions-tracker", **{edited.key: encode_entry(edited)})
        return await status(partition_id)

    world.vipu.partition_status = looked  # type: ignore[method-assign]
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.RELEASED)
    assert world.vipu.partitions == {}


async def test_a_move_that_another_writer_overtakes_makes_a_partition_nobody_elses(
    world: World,
) -> None:
    """The entry stays where it was, and what this attempt has asked for there is still its own."""
    world.add_vipu("v2:8090")
    world.listed = TWO
    proxy = await world.start()

    def edit(_: object) -> None:
        edited = replace(world.entry(), message="by hand")
        world.maps.edit("ipu-partitions-tracker", **{edited.key: encode_entry(edited)})
        world.vipu.before_create = None

    world.vipu.before_create = edit
    world.vipu.create_lost = [NoCapacity("no room any more")]
    record = await proxy.service.ensure(request())
    assert (record.phase, record.controller) == ("active", "v1:8090")
    assert (list(world.vipu.partitions), world.vipu.created) == ([record.id], [record.id])
