"""Odd answers of a V-IPU controller in the middle of things."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from ipuhub.partition import Phase
from partitions.errors import TrackerUnavailable, UnknownPartition
from partitions.proxy.breaker import CircuitBreaker, Connection
from partitions.proxy.circuit import CircuitState
from partitions.proxy.drift import Drift
from partitions.proxy.fleet import Fleet, FleetOptions
from partitions.vipu.errors import NoAnswer, NotReady, Refused, Unavailable, VipuError
from partitions.vipu.types import OperationState, ReadyState
from tests.fakes.configmaps import unreachable
from tests.fakes.vipu import FakeVipu
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import START, request

if TYPE_CHECKING:
    from partitions.vipu.types import CreateRequest
    from tests.integration.proxy.conftest import World

ID = "p-job-default-0"


async def start_slowly(world: World) -> object:
    """A proxy with one partition that never finishes being created."""
    world.answer_seconds = 0.01
    world.vipu.polls = 10**6
    proxy = await world.start()
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.CREATING)
    return proxy


async def test_a_partition_that_vanishes_while_it_is_made_is_made_again(world: World) -> None:
    await start_slowly(world)
    world.vipu.polls = 0
    world.vipu.partitions.clear()
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    assert world.vipu.created == [ID, ID]


async def test_a_partition_that_is_removed_while_it_is_made_is_made_again(world: World) -> None:
    await start_slowly(world)
    made = world.vipu.partitions[ID]
    made.polls_left, made.ready = 0, ReadyState.REMOVED
    await eventually(lambda: world.entry().phase is Phase.RESERVING)
    del world.vipu.partitions[ID]
    world.vipu.polls = 0
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)


@pytest.mark.parametrize(
    ("ready", "operation"),
    [(ReadyState.ERROR, OperationState.IDLE), (ReadyState.PENDING, OperationState.FAILED)],
)
async def test_a_partition_that_fails_while_it_is_made_is_an_error_that_says_why(
    world: World, ready: ReadyState, operation: OperationState
) -> None:
    await start_slowly(world)
    made = world.vipu.partitions[ID]
    made.polls_left, made.ready, made.operation = 0, ready, operation
    await eventually(lambda: world.entry().phase is Phase.ERROR)
    assert world.entry().reason == "PartitionError"
    assert world.entry().message == f"partition {ID} is in ERROR"


async def test_a_partition_is_not_active_while_a_reset_is_under_way(world: World) -> None:
    await start_slowly(world)
    made = world.vipu.partitions[ID]
    made.polls_left, made.operation = 0, OperationState.RESETTING
    polls = made.polls
    await eventually(lambda: made.polls > polls + 3)
    assert world.entry().phase is Phase.CREATING
    made.operation = OperationState.IDLE
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)


async def test_a_controller_that_leaves_while_a_partition_is_made_is_noted_and_waited_for(
    world: World,
) -> None:
    await start_slowly(world)
    world.vipu.down = NoAnswer("v1:8090: refused")
    await eventually(lambda: world.entry().reason == "ControllerUnavailable")
    assert world.entry().message == "v1:8090: refused"
    world.vipu.partitions[ID].polls_left = 0
    world.vipu.down = None
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    assert world.entry().reason == ""


async def test_a_removal_that_takes_time_is_released_when_it_is_over(world: World) -> None:
    world.answer_seconds = 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.vipu.removes_slowly = True
    assert (await proxy.service.release("uid-job", 0)).phase == "releasing"
    world.vipu.partitions.clear()
    await eventually(lambda: world.entry().phase is Phase.RELEASED)


async def test_a_slow_removal_is_asked_for_once(world: World) -> None:
    world.answer_seconds = 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    world.vipu.removes_slowly = True
    await proxy.service.release("uid-job", 0)
    polls = world.vipu.partitions["p-job-default-0"].polls
    await eventually(lambda: world.vipu.partitions["p-job-default-0"].polls > polls + 2)
    assert world.vipu.removes == 1


async def test_a_new_attempt_makes_a_partition_anew_that_is_only_remembered(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    remembered = world.vipu.partitions["p-job-default-0"]
    remembered.ready = ReadyState.REMOVED
    world.vipu.before_create = lambda _: world.vipu.partitions.clear()
    assert (await proxy.service.ensure(request(attempt=1))).phase == "active"
    assert remembered.resets == 0
    assert world.vipu.created == ["p-job-default-0"] * 2


async def test_a_partition_whose_creation_could_not_be_written_down_stays_ours(
    world: World,
) -> None:
    world.answer_seconds, world.patience_seconds = 0.05, 0.5
    proxy = await world.start()

    async def lose_the_api_server() -> None:
        world.vipu.on_write = None
        world.maps.down = unreachable()

    world.vipu.on_write = lose_the_api_server
    with contextlib.suppress(TrackerUnavailable):
        await proxy.service.ensure(request())
    await asyncio.sleep(0)
    world.maps.down = None
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    assert set(world.vipu.partitions) == {world.entry().id} == {"p-job-default-0"}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unavailable("away"), "ControllerUnavailable"),
        (NotReady("busy"), "ReleaseRefused"),
        (Refused("not yours"), "ReleaseRefused"),
        (VipuError("internal"), "ReleaseRefused"),
    ],
)
async def test_a_refused_removal_is_tried_again_until_it_works(
    world: World, error: VipuError, reason: str
) -> None:
    world.vipu.remove_refused = [error] * 3
    proxy = await world.start()
    await proxy.service.ensure(request())
    seen: set[str] = set()

    async def look() -> None:
        seen.add(world.entry().reason)

    world.maps.on_write = look
    assert (await proxy.service.release("uid-job", 0)).phase == "released"
    assert reason in seen
    assert world.vipu.partitions == {}


async def test_a_reservation_that_hangs_can_be_released(world: World) -> None:
    world.answer_seconds = 0.01
    world.vipu.create_refused = [Unavailable("deadline")] * 10**5
    proxy = await world.start()
    assert (await proxy.service.ensure(request())).phase == "reserving"
    await eventually(lambda: world.entry().reason == "ControllerUnavailable")
    await proxy.service.release("uid-job", 0)
    await eventually(lambda: world.entry().phase is Phase.RELEASED)


async def test_a_fault_of_our_own_in_one_partition_does_not_stop_the_others(world: World) -> None:
    world.answer_seconds = 10
    left = [1]

    def explode(wanted: CreateRequest) -> None:
        if wanted.id == ID and left:
            left.pop()
            raise RuntimeError("a bug")

    world.vipu.before_create = explode
    proxy = await world.start()
    records = await asyncio.gather(
        proxy.service.ensure(request()), proxy.service.ensure(request("other"))
    )
    assert {record.phase for record in records} == {"active"}
    assert not left


async def test_a_faulty_partition_without_a_status_is_judged_by_the_next_sweep(
    world: World,
) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.vipu.partitions[ID].ready = ReadyState.ERROR
    real = world.vipu.partition_status

    async def away(_: str) -> object:
        raise Unavailable("deadline")

    world.vipu.partition_status = away  # type: ignore[assignment,method-assign]
    await proxy.sweep.once()
    assert world.entry().phase is Phase.ACTIVE
    world.vipu.partition_status = real  # type: ignore[method-assign]
    await proxy.sweep.once()
    assert world.entry().phase is Phase.ERROR


async def test_a_fleet_that_makes_no_sense_is_a_problem_of_that_controller_only(
    world: World,
) -> None:
    world.add_vipu("v2:8090")
    world.listed = "v1:8090:vipu-ctrl=v1,v2:8090:vipu-ctrl=v2"
    world.vipu.fleet_error = ValueError("two IPUs at one place")
    proxy = await world.start()
    assert (await proxy.service.ensure(request())).controller == "v2:8090"
    (first, _) = await proxy.fleet.views()
    assert first.problem == "its fleet makes no sense: two IPUs at one place"


async def test_a_controller_that_does_not_answer_in_time_counts_as_away() -> None:
    views = []

    class Hanging(FakeVipu):
        async def _arrive(self) -> None:
            views.append(self)
            await asyncio.Event().wait()

    def connect(address: str) -> Connection:
        breaker = CircuitBreaker(address, lambda: 0.0, lambda: START)
        return Connection(breaker.guard(Hanging()), breaker)

    fleet = Fleet(
        connect=connect,
        read_list=lambda: "v1:8090:a=b",
        has_node=lambda _: True,
        clock=lambda: 0.0,
        options=FleetOptions(view_seconds=0.01),
    )
    fleet.reload()
    for _ in range(3):
        (view,) = await fleet.views()
        assert view.problem.startswith("v1:8090: no answer in 0.01 s")
    # And is not asked again at once, so that nobody waits for it.
    assert view.circuit.state is CircuitState.OPEN
    before = len(views)
    (again,) = await fleet.views()
    assert (again.problem, len(views)) == (view.problem, before)
    await fleet.close()


async def test_callers_share_a_list_that_begins_after_they_came(world: World) -> None:
    proxy = await world.start()
    await proxy.fleet.views()
    before = world.vipu.lists
    views = await asyncio.gather(*(proxy.fleet.views() for _ in range(20)))
    assert len(views) == 20
    assert world.vipu.lists - before <= 2


async def test_connections_are_closed_at_the_end(world: World) -> None:
    async with world.process() as proxy:
        await proxy.service.ensure(request())
    assert world.vipu.closed


async def test_a_tombstone_buried_while_somebody_asks_is_unknown(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    await proxy.service.release("uid-job", 0)
    world.later(10_000)
    assert isinstance(await proxy.sweep.once(), Drift)
    with pytest.raises(UnknownPartition):
        await proxy.service.release("uid-job", 0)
