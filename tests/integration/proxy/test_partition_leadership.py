"""A proxy that is no longer the leader changes nothing on V-IPU or in the tracker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from ipuhub.partition import Phase
from partitions.errors import NotLeading
from partitions.proxy.lifecycle import TrackerEntry
from partitions.proxy.sweep import SweepOptions
from partitions.proxy.tracker import MAX_ENTRY_BYTES, MAX_SHARD_BYTES
from partitions.proxy.vipuapi import only_while_leading
from partitions.vipu.errors import Unavailable
from partitions.vipu.types import CreateRequest
from tests.fakes.vipu import FakeVipu
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import START, request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from partitions.proxy.tracker import Draft
    from partitions.proxy.vipuapi import VipuApi
    from tests.integration.proxy.conftest import Service, World

    Call = Callable[[VipuApi], Awaitable[object]]

ID = "p-job-default-0"
CHANGES = {
    "create": lambda vipu: vipu.create_partition(CreateRequest("new", 2)),
    "reset": lambda vipu: vipu.reset_partition(ID),
    "remove": lambda vipu: vipu.remove_partition(ID),
}
QUESTIONS = {
    "list": lambda vipu: vipu.list_partitions(),
    "attributes": lambda vipu: vipu.list_ipu_attributes(),
    "heartbeat": lambda vipu: vipu.heartbeat("ag0"),
    "status": lambda vipu: vipu.partition_status(ID),
}


def state(vipu: FakeVipu) -> dict[str, int]:
    return {name: one.resets for name, one in vipu.partitions.items()}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_no_change_reaches_vipu_from_who_may_not_lead_any_more(change: Call) -> None:
    vipu = FakeVipu()
    vipu.by_hand(ID, 2)
    with pytest.raises(NotLeading) as refused:
        await change(only_while_leading(vipu, lambda: 0.0))
    assert refused.value.retryable
    assert state(vipu) == {ID: 0}
    await change(only_while_leading(vipu, lambda: 60.0))
    assert state(vipu) != {ID: 0}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
async def test_questions_are_free(question: Call) -> None:
    vipu = FakeVipu()
    vipu.by_hand(ID, 2)
    assert await question(only_while_leading(vipu, lambda: 0.0))


async def test_a_change_is_given_up_before_another_replica_can_lead() -> None:
    class Silent(FakeVipu):
        async def remove_partition(self, partition_id: str, *, force: bool = False) -> None:
            await asyncio.Event().wait()

    with pytest.raises(Unavailable):
        await only_while_leading(Silent(), lambda: 0.01).remove_partition(ID)


class StandsStill:
    """Of one process, just before it sends its next removal to V-IPU."""

    def __init__(self, proxy: Service) -> None:
        vipu = proxy.fleet.api("v1:8090")
        self._remove = vipu.remove_partition
        self.stands = asyncio.Event()
        self.wakes = asyncio.Event()
        self.outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        vipu.remove_partition = self._late  # type: ignore[method-assign]

    async def _late(self, partition_id: str) -> None:
        self.stands.set()
        await self.wakes.wait()
        try:
            await self._remove(partition_id)
        except NotLeading:
            self.outcome.set_result("refused")
            raise
        self.outcome.set_result("sent")


async def test_a_leader_that_stood_still_does_not_remove_what_its_successor_has_made(
    world: World,
) -> None:
    first = await world.start()
    await first.service.ensure(request())
    still = StandsStill(first)
    releasing = asyncio.create_task(first.service.release("uid-job", 0))
    await still.stands.wait()

    second = await world.start()
    assert (await second.service.release("uid-job", 0)).phase == "released"
    made = await second.service.ensure(request(attempt=1))
    assert (made.id, made.phase) == (ID, "active")  # the readable id again

    first.lead.left_seconds = 0.0
    still.wakes.set()
    assert await still.outcome == "refused"
    assert set(world.vipu.partitions) == {ID}
    assert world.vipu.removes == 1
    releasing.cancel()


def leads_until_it_has_reserved(world: World, proxy: Service) -> None:
    async def stop_leading() -> None:
        proxy.lead.left_seconds = 0.0

    world.maps.on_write = stop_leading


async def test_a_leader_that_stood_still_reserves_no_id_that_its_successor_has_in_another_map(
    world: World,
) -> None:
    """The first ConfigMap was full when it looked, so that its write goes into another
    ConfigMap."""
    world.sweep_options = SweepOptions(tombstone_seconds=0)
    second = await world.start()
    await second.store.write(fill_a_map)
    world.patience_seconds = 0.2  # of the first alone: it writes nothing
    first = await world.start()
    views, stands, wakes = await first.fleet.views(), asyncio.Event(), asyncio.Event()

    async def stand_still() -> object:
        stands.set()
        await wakes.wait()
        return views

    first.fleet.views = stand_still  # type: ignore[method-assign,assignment]
    late = asyncio.create_task(first.service.ensure(request("a", namespace="b-c")))
    await stands.wait()

    await second.sweep.once()  # makes room in the first
    mine = await second.service.ensure(request("a-b", namespace="c"))
    first.lead.left_seconds = 0.0
    wakes.set()
    await asyncio.gather(late, return_exceptions=True)
    await second.sweep.once()
    assert [(one.uid, one.id) for one in world.entries()] == [("uid-a-b", mine.id)]
    assert world.vipu.partitions[mine.id].resets == 0


def fill_a_map(draft: Draft) -> None:
    budget = 0
    while budget + MAX_ENTRY_BYTES + 20 < MAX_SHARD_BYTES:
        number = len(list(draft.entries()))
        draft.put(
            TrackerEntry(
                uid=f"gone-{number:06}",
                instance=0,
                namespace="default",
                name="gone",
                attempt=0,
                id=f"p-gone-{number}",
                size=4,
                phase=Phase.RELEASED,
                controller="v1:8090",
                label="vipu-ctrl=v1",
                reserved_at=START,
                released_at=START,
            )
        )
        budget += len(f"gone-{number:06}.0.0") + MAX_ENTRY_BYTES


async def test_who_leads_again_goes_on_with_what_it_may_not_do_meanwhile(world: World) -> None:
    world.answer_seconds = 0.01
    proxy = await world.start()
    leads_until_it_has_reserved(world, proxy)
    assert (await proxy.service.ensure(request())).phase == "reserving"
    assert world.vipu.partitions == {}
    assert world.entry().reason == ""  # V-IPU is not to blame
    world.maps.on_write, proxy.lead.left_seconds = None, 60.0
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)


async def test_that_nothing_was_sent_keeps_a_strangers_partition_strange(world: World) -> None:
    world.answer_seconds = 0.01
    proxy = await world.start()
    leads_until_it_has_reserved(world, proxy)
    await proxy.service.ensure(request())
    world.vipu.by_hand(ID, 4)
    world.maps.on_write, proxy.lead.left_seconds = None, 60.0
    await eventually(lambda: world.entries()[0].phase is Phase.ACTIVE)
    assert world.entry().id != ID
    assert world.vipu.partitions[ID].resets == 0
