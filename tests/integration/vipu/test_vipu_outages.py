"""Cordons, faults of IPUs and lost agents, through the client and a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from partitions.vipu.errors import InvalidRequest, NoCapacity, NotFound, NotReady
from partitions.vipu.topology import IpuId
from partitions.vipu.types import CreateRequest, OperationState, ReadyState

if TYPE_CHECKING:
    from collections.abc import Callable

    from partitions.vipu.client import VipuClient
    from partitions.vipu.server.controller import Controller
    from partitions.vipu.server.main import VipuServer

    from .conftest import Clock


@pytest.fixture
def controller(server: tuple[VipuServer, int]) -> Controller:
    """Of eight machines, ag0 to ag7, of four IPUs each."""
    return server[0].controller


async def made(client: VipuClient, clock: Clock, name: str, size: int, **given: Any) -> None:
    await client.create_partition(CreateRequest(name, size, **given))
    clock.forward(1)
    assert (await client.partition_status(name)).ready_state is ReadyState.ACTIVE


async def positions(client: VipuClient, name: str) -> list[int]:
    (found,) = [one for one in await client.list_partitions() if one.id == name]
    return [ipu.position for ipu in found.ipus]


async def test_a_cordoned_machine_keeps_its_partitions_and_gets_no_new_ones(
    controller: Controller, client: VipuClient, clock: Clock
) -> None:
    await made(client, clock, "old", 2)
    controller.cordon("ag0", "new cables")
    controller.cordon("ag1", "")
    assert (await client.partition_status("old")).ready_state is ReadyState.ACTIVE
    await client.create_partition(CreateRequest("new", 1))
    assert await positions(client, "new") == [8]
    ipus = tuple(IpuId(0, place, "default") for place in (2, 3))
    with pytest.raises(NoCapacity, match="ag0 is cordoned: new cables"):
        await client.create_partition(CreateRequest("p", 2, cluster_id="default", ipus=ipus))
    await client.reset_partition("old")
    controller.uncordon("ag0")
    await client.create_partition(CreateRequest("p", 2, cluster_id="default", ipus=ipus))


async def test_only_so_many_partitions_fit_as_there_is_room_beside_a_cordon(
    controller: Controller, client: VipuClient
) -> None:
    controller.cordon("ag2", "new cables")
    for number in range(3):
        await client.create_partition(CreateRequest(f"p{number}", 8))
    free = "8 IPUs in one block; 4 of 32 are free, the largest free block has 4"
    closed = "4 closed: ag2 is cordoned: new cables"
    with pytest.raises(NoCapacity, match=f"{free}; use at most 4, or wait. {closed}$"):
        await client.create_partition(CreateRequest("p3", 8))
    with pytest.raises(NoCapacity, match=f"; use at most 32: no block has so many.*{closed}$"):
        await client.create_partition(CreateRequest("p3", 64))
    await client.create_partition(CreateRequest("p3", 4))
    with pytest.raises(NoCapacity, match=f"has 0; wait. {closed}$"):
        await client.create_partition(CreateRequest("p4", 4))


async def test_a_faulty_ipu_puts_its_partition_in_error_until_it_is_mended_and_reset(
    controller: Controller, client: VipuClient, clock: Clock
) -> None:
    await made(client, clock, "p", 8)
    await made(client, clock, "other", 4)
    controller.fail_ipu("ag1", 2, "IPU 2 has memory errors")
    status = await client.partition_status("p")
    assert (status.ready_state, status.operation_state) == (
        ReadyState.ERROR,
        OperationState.FAILED,
    )
    assert status.errors == ("ag1: IPU 2 has memory errors",)
    assert (await client.partition_status("other")).ready_state is ReadyState.ACTIVE
    with pytest.raises(NotReady, match="ag1: IPU 2 has memory errors. Remove it"):
        await client.reset_partition("p")
    controller.heal_ipu("ag1", 2)
    assert (await client.partition_status("p")).ready_state is ReadyState.ERROR
    await client.reset_partition("p")
    clock.forward(1)
    assert (await client.partition_status("p")).ready_state is ReadyState.ACTIVE


async def test_the_ipu_with_a_fault_gets_no_partition_and_its_neighbours_do(
    controller: Controller, client: VipuClient
) -> None:
    controller.fail_ipu("ag0", 1, "link 3 is down")
    await client.create_partition(CreateRequest("one", 1))
    await client.create_partition(CreateRequest("two", 2))
    assert (await positions(client, "one"), await positions(client, "two")) == ([0], [2, 3])


async def test_a_lost_agent_is_all_ipus_of_its_machine(
    controller: Controller, client: VipuClient, clock: Clock
) -> None:
    await made(client, clock, "here", 1)
    await made(client, clock, "across", 8)
    controller.lose_agent("ag0", "ag0 has not answered since 8:00")
    controller.lose_agent("ag2", "ag2 has not answered since 8:00")
    assert (await client.partition_status("here")).errors == ("ag0 has not answered since 8:00",)
    assert (await client.partition_status("across")).errors == ("ag2 has not answered since 8:00",)
    controller.agent_back("ag0")
    await client.reset_partition("here")
    with pytest.raises(NotReady, match="ag2 has not answered"):
        await client.reset_partition("across")
    controller.agent_back("ag2")
    controller.lose_agent("ag2", "ag2 has not answered since 9:00")
    controller.lose_agent("ag3", "ag3 has not answered since 9:01")
    assert (await client.partition_status("across")).errors == (
        "ag2 has not answered since 9:00",
        "ag3 has not answered since 9:01",
    )


async def test_a_partition_that_may_move_moves_while_there_is_room(
    controller: Controller, client: VipuClient, clock: Clock
) -> None:
    await made(client, clock, "p", 4, relocatable=True)
    controller.fail_ipu("ag0", 3, "hot")
    status = await client.partition_status("p")
    assert (status.ready_state, status.operation_state, status.errors) == (
        ReadyState.PENDING,
        OperationState.CREATING,
        (),
    )
    assert await positions(client, "p") == [4, 5, 6, 7]
    clock.forward(1)
    assert (await client.partition_status("p")).ready_state is ReadyState.ACTIVE
    for agent in range(2, 8):
        controller.cordon(f"ag{agent}", "")
    controller.lose_agent("ag1", "ag1 has not answered since 8:00")
    assert (await client.partition_status("p")).errors == ("ag1 has not answered since 8:00",)


@pytest.mark.parametrize("says_so", ["at its creation", "at the reset"])
async def test_a_reset_moves_a_partition_off_a_faulty_ipu_once_there_is_room(
    controller: Controller, client: VipuClient, clock: Clock, says_so: str
) -> None:
    first = says_so == "at its creation"
    for agent in range(1, 8):
        controller.cordon(f"ag{agent}", "")
    await made(client, clock, "p", 4, relocatable=first, num_gcds=2)
    controller.fail_ipu("ag0", 3, "hot")
    with pytest.raises(NotReady, match=r"ag0: hot. It cannot move: no block of 4 IPUs is free in"):
        await client.reset_partition("p", relocatable=not first)
    controller.uncordon("ag2")
    await client.reset_partition("p", relocatable=not first)
    assert (await client.partition_status("p")).operation_state is OperationState.CREATING
    clock.forward(1)
    assert (await client.partition_status("p")).ready_state is ReadyState.ACTIVE
    assert await positions(client, "p") == [8, 9, 10, 11]
    assert [one.num_gcds for one in await client.list_partitions()] == [2]
    await client.reset_partition("p", relocatable=True)  # its IPUs are well: it stays
    assert await positions(client, "p") == [8, 9, 10, 11]


async def test_a_reset_that_may_not_move_the_partition_names_what_would(
    controller: Controller, client: VipuClient, clock: Clock
) -> None:
    await made(client, clock, "p", 4)
    controller.fail_ipu("ag0", 3, "hot")
    with pytest.raises(NotReady, match="reset it with --relocatable to move it"):
        await client.reset_partition("p")
    assert await positions(client, "p") == [0, 1, 2, 3]


async def test_a_partition_with_auto_reset_comes_back_by_itself_three_times(
    controller: Controller, client: VipuClient, clock: Clock
) -> None:
    await made(client, clock, "p", 4, auto_reset=True)
    for count in (1, 2, 3):
        controller.fail_ipu("ag0", 0, "hot")
        assert (await client.partition_status("p")).ready_state is ReadyState.ERROR
        controller.heal_ipu("ag0", 0)
        assert (await client.partition_status("p")).auto_resets == count
        clock.forward(1)
        assert (await client.partition_status("p")).ready_state is ReadyState.ACTIVE
    controller.fail_ipu("ag0", 0, "hot")
    controller.heal_ipu("ag0", 0)
    assert (await client.partition_status("p")).ready_state is ReadyState.ERROR


async def test_a_partition_on_two_faulty_ipus_waits_for_both(
    controller: Controller, client: VipuClient, clock: Clock
) -> None:
    await made(client, clock, "p", 4, auto_reset=True)
    controller.fail_ipu("ag0", 0, "hot")
    controller.fail_ipu("ag0", 1, "hot")
    controller.heal_ipu("ag0", 0)
    assert (await client.partition_status("p")).ready_state is ReadyState.ERROR
    controller.heal_ipu("ag0", 1)
    clock.forward(1)
    assert (await client.partition_status("p")).ready_state is ReadyState.ACTIVE


async def test_what_is_said_of_machines_survives_a_restart(
    start_server: Callable[..., tuple[VipuServer, int]],
) -> None:
    first, _ = start_server()
    first.controller.cordon("ag0", "new cables")
    first.controller.fail_ipu("ag1", 3, "hot")
    first.controller.lose_agent("ag2", "ag2 has not answered since 8:00")
    first.controller.cordon("ag3", "")
    first.controller.uncordon("ag3")
    before = dict(first.controller.machines)
    first.stop()
    second, _ = start_server()
    assert dict(second.controller.machines) == before
    assert set(before) == {"ag0", "ag1", "ag2"}
    assert second.controller.create(CreateRequest("p", 4)).ipus[0].position == 12


async def test_attributes_say_why_an_ipu_gets_no_partition(
    controller: Controller, client: VipuClient, published_only: bool
) -> None:
    controller.cordon("ag0", "new cables")
    controller.fail_ipu("ag1", 2, "hot")
    fleet = await client.list_ipu_attributes()
    reasons = {(ipu.agent, ipu.index): (ipu.cordon, ipu.fault) for ipu in fleet.closed.values()}
    want = {("ag0", index): ("ag0 is cordoned: new cables", "") for index in range(4)}
    want["ag1", 2] = ("", "ag1: hot")
    assert reasons == ({} if published_only else want)


def test_a_machine_and_an_ipu_that_do_not_exist_are_refused_in_words(
    controller: Controller,
) -> None:
    with pytest.raises(NotFound, match="there is no agent 'ag8'"):
        controller.cordon("ag8", "")
    with pytest.raises(NotFound, match="ag7 has the IPUs 0 to 3, not 4"):
        controller.fail_ipu("ag7", 4, "hot")
    with pytest.raises(InvalidRequest, match="the reason has 201 characters"):
        controller.cordon("ag7", "x" * 201)
    assert not controller.machines


async def test_a_relocatable_partition_without_room_moves_as_soon_as_there_is_some(
    controller: Controller, client: VipuClient, clock: Clock
) -> None:
    await made(client, clock, "p", 4, relocatable=True)
    await made(client, clock, "stays", 4)
    for number in range(2, 8):
        await made(client, clock, f"q{number}", 4)
    controller.fail_ipu("ag0", 1, "IPU 1 is hot")
    controller.fail_ipu("ag1", 1, "IPU 1 is hot")
    await client.reset_partition("q2")  # frees nothing
    assert await positions(client, "p") == [0, 1, 2, 3]
    assert (await client.partition_status("p")).ready_state is ReadyState.ERROR

    for moves, full in enumerate(("q3", "q5", "q7"), start=1):
        await client.remove_partition(full)
        status = await client.partition_status("p")
        assert (status.ready_state, status.errors) == (ReadyState.PENDING, ())
        assert (status.auto_resets, status.max_auto_resets) == (moves, 3)
        clock.forward(1)
        place = 4 * int(full[1])
        assert await positions(client, "p") == [place, place + 1, place + 2, place + 3]
        assert (await client.partition_status("p")).ready_state is ReadyState.ACTIVE
        if moves < 3:  # its old machine is out of service, too, and so is the next
            controller.fail_ipu(f"ag{full[1]}", 1, "IPU 1 is hot")
    facts = [
        event.facts
        for event in controller.events.last()[0]
        if event.what == "partition moved once there was room"
    ]
    assert [(each["partition"], each["agent"], each["to"]) for each in facts] == [
        ("p", "ag0", "ag3"),
        ("p", "ag3", "ag5"),
        ("p", "ag5", "ag7"),
    ]
    controller.fail_ipu("ag7", 1, "IPU 1 is hot")
    await client.remove_partition("q4")
    assert (await client.partition_status("p")).ready_state is ReadyState.ERROR  # three in all
    await client.reset_partition("p")
    assert await positions(client, "p") == [16, 17, 18, 19]
    assert (await client.partition_status("p")).auto_resets == 0
    assert (await client.partition_status("stays")).ready_state is ReadyState.ERROR


@pytest.mark.parametrize("way", ["uncordon", "heal"])
async def test_room_may_also_come_from_a_machine_that_is_in_service_again(
    controller: Controller, client: VipuClient, clock: Clock, way: str
) -> None:
    await made(client, clock, "p", 4, relocatable=True)
    for number in range(1, 7):
        await made(client, clock, f"q{number}", 4)
    if way == "uncordon":
        controller.cordon("ag7", "new cables")
    else:
        controller.fail_ipu("ag7", 0, "IPU 0 is hot")
    controller.lose_agent("ag0", "ag0 has not answered since 8:00")
    assert (await client.partition_status("p")).ready_state is ReadyState.ERROR
    if way == "uncordon":
        controller.uncordon("ag7")
    else:
        controller.heal_ipu("ag7", 0)
    assert await positions(client, "p") == [28, 29, 30, 31]
