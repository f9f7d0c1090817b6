"""A partition that appears after its job gave it up is removed; a stranger's partition stays."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.partition import Phase
from partitions.proxy import tombstones
from partitions.vipu.client import VipuClient
from partitions.vipu.errors import NoAnswer, NoCapacity, NotFound, Unavailable
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.options import ServerOptions
from partitions.vipu.types import OperationState, ReadyState
from tests.builders.trackerentries import entry
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import TWO, World, request
from tests.integration.proxy.test_tombstones import OURS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from partitions.vipu.server.records import PartitionRecord
    from partitions.vipu.server.users import Caller
    from partitions.vipu.types import CreateRequest, VipuStatus
    from tests.integration.proxy.conftest import Service

ID = "p-job-default-0"


class Landing:
    """A real vipu-server that answers creations at once and carries them out when the test lets
    it."""

    def __init__(self, server: VipuServer) -> None:
        self.requests: list[CreateRequest] = []
        self._controller = server.controller
        self._create = server.controller.create
        server.controller.create = self.create  # type: ignore[method-assign]

    def create(self, wanted: CreateRequest, caller: Caller) -> PartitionRecord:
        made = self._create(wanted, caller)
        self._controller.remove(wanted.id, force=True)
        self.requests.append(wanted)
        return made

    def land(self) -> None:
        self._create(self.requests[0])


@asynccontextmanager
async def landing_late(
    folder: Path, options: str = ""
) -> AsyncIterator[tuple[World, Service, Landing]]:
    port = free_port()
    server = VipuServer(
        ServerOptions(storage=folder / "vipu.json", port=port, create_latency_seconds=0)
    )
    await asyncio.to_thread(server.start)
    world, address = World(answer_seconds=0.01), f"127.0.0.1:{port}"
    world.vipus[address] = VipuClient(address)  # type: ignore[assignment]
    world.listed = f"{address}:vipu-ctrl=v1{options}"
    try:
        async with world.process() as proxy:
            yield world, proxy, Landing(server)
    finally:
        await asyncio.to_thread(server.stop)


async def test_what_a_vipu_server_accepted_and_makes_after_the_release_is_removed_once(
    tmp_path: Path,
) -> None:
    async with landing_late(tmp_path) as (world, proxy, landing):
        address = world.listed.rpartition(":")[0]
        await proxy.service.ensure(request())
        await eventually(lambda: bool(landing.requests))
        await proxy.service.release("uid-job", 0)
        await eventually(lambda: world.entry().phase is Phase.RELEASED)
        landing.land()
        assert [one.id for one in (await proxy.sweep.once()).late] == [ID]
        assert await proxy.fleet.listed(address) == {}
        # It has come. Another cluster's job of the same name gets the same id, and keeps it.
        drift = await proxy.sweep.once()
        assert (drift.late, world.entry().may_come) == ((), False)
        landing.land()
        drift = await proxy.sweep.once()
        assert (drift.late, drift.untracked) == ((), ((address, ID),))
        assert list(await proxy.fleet.listed(address)) == [ID]


@pytest.mark.parametrize("edit", ["off the list", ";gcds=1", ";gcds=2;reconfigurable=off"])
async def test_what_comes_late_is_judged_by_what_was_asked_not_by_the_list_of_today(
    tmp_path: Path, edit: str
) -> None:
    options = ";gcds=2;reconfigurable=on"
    async with landing_late(tmp_path, options) as (world, proxy, landing):
        address = world.listed.partition(":vipu-ctrl")[0]
        await proxy.service.ensure(request())
        await eventually(lambda: bool(landing.requests))
        await proxy.service.release("uid-job", 0)
        await eventually(lambda: world.entry().phase is Phase.RELEASED)
        world.listed = f"{address}:vipu-ctrl=v1{edit}"
        if edit == "off the list":
            world.add_vipu("v2:8090")
            world.listed = "v2:8090:vipu-ctrl=v2"
        proxy.fleet.reload()
        landing.land()
        (partition,) = (await proxy.fleet.listed(address)).values()
        assert (partition.num_gcds, partition.reconfigurable) == (2, True)
        assert [one.id for one in (await proxy.sweep.once()).late] == [ID]
        assert await proxy.fleet.listed(address) == {}


async def give_up(world: World) -> Service:
    """A proxy whose job was deleted while the fate of its partition was unknown."""
    proxy = await world.start()
    tomb = entry(phase=Phase.RELEASED, released_at=world.now, may_come=True, **OURS)
    await proxy.store.write(lambda draft: draft.put(tomb))
    return proxy


@pytest.mark.parametrize("is_removed", [True, False], ids=["comes and goes", "is another's"])
async def test_of_two_tombstones_of_an_id_none_claims_what_comes_after_the_first(
    world: World, is_removed: bool
) -> None:
    proxy = await give_up(world)
    if not is_removed:  # the first has come and was removed when the second was released
        await proxy.store.write(lambda draft: draft.put(tombstones.note_arrival(world.entry())))
    again = replace(world.entry(), serial=1, has_come=False)
    await proxy.store.write(lambda draft: draft.put(again))
    world.vipu.by_hand(ID, 4)
    await proxy.sweep.once()
    assert (world.vipu.partitions == {}) is is_removed
    assert [one.may_come for one in world.entries() if one.serial == 1] == [False]
    world.vipu.partitions.clear()
    await proxy.sweep.once()
    assert [one.may_come for one in world.entries()] == [False, False]
    world.vipu.by_hand(ID, 4)  # another cluster's
    assert (await proxy.sweep.once()).late == ()
    assert list(world.vipu.partitions) == [ID]


async def test_of_two_tombstones_of_an_id_each_has_the_partition_on_its_own_terms_removed(
    world: World,
) -> None:
    proxy = await give_up(world)
    tomb = world.entry()
    both = replace(tomb, terms="1s"), replace(tomb, serial=1, terms="2s")
    for each in both:
        await proxy.store.write(lambda draft, each=each: draft.put(each))  # type: ignore[misc]
    for gcds, left in ((1, {1}), (2, set[int]())):
        world.vipu.by_hand(ID, 4)
        made = world.vipu.partitions[ID]
        made.request = replace(made.request, num_gcds=gcds)
        await proxy.sweep.once()
        assert world.vipu.partitions == {}
        await proxy.sweep.once()
        assert {one.serial for one in world.entries() if one.may_come} == left
    world.vipu.by_hand(ID, 4)  # another cluster's
    assert (await proxy.sweep.once()).late == ()
    assert list(world.vipu.partitions) == [ID]


async def test_an_arrival_is_noted_although_a_recorder_acknowledges_meanwhile(
    world: World,
) -> None:
    proxy = await give_up(world)
    world.vipu.by_hand(ID, 4)
    remove = world.vipu.remove_partition

    async def acknowledged(partition_id: str, **given: Any) -> None:
        await remove(partition_id, **given)
        await proxy.service.acknowledge(frozenset({"uid-job"}))

    world.vipu.remove_partition = acknowledged  # type: ignore[method-assign]
    await proxy.sweep.once()
    assert (world.entry().recorded, world.entry().has_come) == (True, True)


async def test_one_that_was_released_while_it_was_being_made_leaves_its_id_to_others(
    world: World,
) -> None:
    world.vipu.polls, world.answer_seconds = 10**6, 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.CREATING)
    await proxy.service.release("uid-job", 0)
    await eventually(lambda: world.entry().phase is Phase.RELEASED)
    world.vipu.by_hand(ID, 4)
    assert (await proxy.sweep.once()).untracked == (("v1:8090", ID),)
    assert list(world.vipu.partitions) == [ID]


async def test_one_whose_answer_was_lost_and_that_was_used_leaves_its_id_to_others(
    world: World,
) -> None:
    world.vipu.create_lost = [Unavailable("deadline")]
    proxy = await world.start()
    assert (await proxy.service.ensure(request())).phase == "active"
    world.vipu.partitions.clear()  # a person removes it
    await proxy.service.release("uid-job", 0)
    world.vipu.by_hand(ID, 4)
    assert (await proxy.sweep.once()).untracked == (("v1:8090", ID),)
    assert list(world.vipu.partitions) == [ID]


async def test_none_comes_once_its_controller_has_answered_long_without_it(world: World) -> None:
    proxy = await give_up(world)
    world.vipu.down = NoAnswer("v1:8090: no answer")
    for _ in range(3):  # a silent controller may have made it before, so its silence does not count
        world.later(3600)
        await proxy.sweep.once()
        assert world.entry().may_come
    world.vipu.down = None
    await proxy.sweep.once()
    world.later(899)
    await proxy.sweep.once()
    assert world.entry().may_come
    world.later(1)
    await proxy.sweep.once()
    assert world.entries() == []
    world.vipu.by_hand(ID, 4)
    assert (await proxy.sweep.once()).late == ()
    assert list(world.vipu.partitions) == [ID]


async def test_one_that_a_silent_controller_made_is_removed_however_late_it_answers(
    world: World,
) -> None:
    proxy = await give_up(world)
    world.vipu.down = NoAnswer("v1:8090: no answer")
    world.vipu.by_hand(ID, 4)
    world.later(86_400)
    await proxy.sweep.once()
    world.vipu.down = None
    await proxy.sweep.once()
    assert world.vipu.partitions == {}


async def test_one_on_a_controller_off_the_list_is_removed_while_its_tombstone_stands(
    world: World,
) -> None:
    proxy = await give_up(world)
    world.add_vipu("v2:8090")
    world.listed = "v2:8090:vipu-ctrl=v2"
    proxy.fleet.reload()
    world.vipu.by_hand(ID, 4)
    await proxy.sweep.once()
    assert world.vipu.partitions == {}
    world.later(900)
    await proxy.sweep.once()
    assert world.entries() == []


async def test_a_removal_that_fails_is_asked_for_again_and_one_that_is_sound_then_is_anothers(
    world: World,
) -> None:
    proxy = await give_up(world)
    world.vipu.by_hand(ID, 4)
    world.vipu.removals_end = [(ReadyState.ERROR, OperationState.FAILED)]
    await proxy.sweep.once()
    assert list(world.vipu.partitions) == [ID]
    await proxy.sweep.once()
    assert (world.vipu.partitions, world.vipu.removes) == ({}, 2)
    world.vipu.by_hand(ID, 4)
    for _ in range(2):
        await proxy.sweep.once()
    assert (list(world.vipu.partitions), world.vipu.removes) == ([ID], 2)
    assert not world.entry().may_come


async def test_what_was_accepted_and_is_not_there_yet_has_a_tombstone_when_its_job_moves(
    world: World,
) -> None:
    """The room that the controller does not have any more is its own."""
    world.add_vipu("v2:8090")
    world.listed = TWO
    proxy = await world.start()
    status, create = world.vipu.partition_status, world.vipu.create_partition
    made: list[str] = []

    async def create_later(wanted: CreateRequest) -> str:
        if made:
            raise NoCapacity("full")
        made.append(wanted.id)
        return wanted.id

    async def unknown(partition_id: str) -> VipuStatus:
        raise NotFound(f"no {partition_id}")

    world.vipu.create_partition = create_later  # type: ignore[method-assign]
    world.vipu.partition_status = unknown  # type: ignore[method-assign]
    record = await proxy.service.ensure(request())
    assert (record.phase, record.controller) == ("active", "v2:8090")
    world.vipu.create_partition = create  # type: ignore[method-assign]
    world.vipu.partition_status = status  # type: ignore[method-assign]
    world.vipu.by_hand(ID, 4)
    await proxy.sweep.once()
    assert world.vipu.partitions == {}
    assert list(world.vipus["v2:8090"].partitions) == [record.id]
