"""Tombstones: late partitions are removed, and tombstones expire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipuhub.partition import Phase
from partitions.proxy.sweep import SweepOptions
from partitions.vipu.errors import NoCapacity, Unavailable
from tests.builders.trackerentries import entry
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import TWO, request

if TYPE_CHECKING:
    from tests.integration.proxy.conftest import World

OURS = {"uid": "uid-job", "controller": "v1:8090"}


async def test_what_comes_after_its_release_is_removed(world: World) -> None:
    """The controller makes it long after its deadline."""
    world.answer_seconds = 0.01
    proxy = await world.start()
    world.vipu.create_refused = [Unavailable("deadline")] * 1000
    assert (await proxy.service.ensure(request())).phase == "reserving"
    await eventually(lambda: world.entry().may_come)
    await proxy.service.release("uid-job", 0)
    await eventually(lambda: world.entry().phase is Phase.RELEASED)
    world.later(60)
    world.vipu.by_hand("p-job-default-0", 4)
    drift = await proxy.sweep.once()
    assert [entry.id for entry in drift.late] == ["p-job-default-0"]
    assert world.vipu.partitions == {}


async def test_what_comes_after_its_job_went_to_another_controller_is_removed(
    world: World,
) -> None:
    world.add_vipu("v2:8090")
    world.listed = TWO
    proxy = await world.start()
    world.vipu.create_refused = [Unavailable("deadline"), NoCapacity("full")]
    record = await proxy.service.ensure(request())
    assert (record.phase, record.controller) == ("active", "v2:8090")
    world.vipu.by_hand("p-job-default-0", 4)
    await proxy.sweep.once()
    assert world.vipu.partitions == {}
    assert list(world.vipus["v2:8090"].partitions) == [record.id]


@pytest.mark.parametrize("phase", [Phase.RESERVING, Phase.CREATING])
async def test_a_release_before_it_is_listed_is_one_that_may_come(
    world: World, phase: Phase
) -> None:
    first = await world.start()
    await first.store.write(lambda draft: draft.put(entry(phase=phase, **OURS)))
    await first.service.release("uid-job", 0)
    world.vipu.by_hand("p-job-default-0", 4)
    await first.sweep.once()
    assert world.vipu.partitions == {}


async def test_what_takes_the_id_of_a_tombstone_in_good_order_is_left_alone(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    await proxy.service.release("uid-job", 0)
    world.vipu.by_hand("p-job-default-0", 4)
    assert (await proxy.sweep.once()).untracked == (("v1:8090", "p-job-default-0"),)
    assert list(world.vipu.partitions) == ["p-job-default-0"]


async def test_a_late_one_that_is_not_removed_is_tried_again(world: World) -> None:
    proxy = await world.start()
    tomb = entry(phase=Phase.RELEASED, released_at=world.now, may_come=True, **OURS)
    await proxy.store.write(lambda draft: draft.put(tomb))
    world.vipu.by_hand("p-job-default-0", 4)
    world.vipu.remove_refused = [Unavailable("busy")]
    await proxy.sweep.once()
    assert list(world.vipu.partitions) == ["p-job-default-0"]
    await proxy.sweep.once()
    assert world.vipu.partitions == {}


async def test_a_tombstone_stays_fifteen_minutes(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    await proxy.service.release("uid-job", 0)
    world.later(899)
    await proxy.sweep.once()
    assert world.entry().phase is Phase.RELEASED
    world.later(1)
    await proxy.sweep.once()
    assert world.entries() == []


async def test_with_a_recorder_a_tombstone_stays_until_it_is_acknowledged(world: World) -> None:
    world.sweep_options = SweepOptions(needs_recorder=True)
    proxy = await world.start()
    await proxy.service.ensure(request())
    await proxy.service.release("uid-job", 0)
    world.later(86_400)
    await proxy.sweep.once()
    assert world.entry().phase is Phase.RELEASED
    assert await proxy.service.acknowledge(frozenset({"uid-job"})) == 1
    assert world.entry().recorded
    await proxy.sweep.once()
    assert world.entries() == []


async def test_an_acknowledged_tombstone_still_stays_fifteen_minutes(world: World) -> None:
    world.sweep_options = SweepOptions(needs_recorder=True)
    proxy = await world.start()
    await proxy.service.ensure(request())
    await proxy.service.release("uid-job", 0)
    await proxy.service.acknowledge(frozenset({"uid-job"}))
    await proxy.sweep.once()
    assert world.entry().phase is Phase.RELEASED


async def test_only_released_partitions_can_be_acknowledged(world: World) -> None:
    world.sweep_options = SweepOptions(needs_recorder=True)
    proxy = await world.start()
    await proxy.service.ensure(request())
    assert await proxy.service.acknowledge(frozenset({"uid-job"})) == 0
    await proxy.service.release("uid-job", 0)
    world.later(86_400)
    await proxy.sweep.once()
    assert world.entry().phase is Phase.RELEASED


async def test_a_record_key_acknowledges_one_holding_and_not_the_next(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    first = await proxy.service.release("uid-job", 0)
    await proxy.service.ensure(request(attempt=1))
    await proxy.service.release("uid-job", 0)
    assert await proxy.service.acknowledge(frozenset({first.key})) == 1
    assert [e.recorded for e in sorted(world.entries(), key=lambda e: e.serial)] == [True, False]
