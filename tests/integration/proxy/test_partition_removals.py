"""A partition is released when its controller no longer has it, and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipuhub.partition import Phase
from partitions.errors import UnknownPartition
from partitions.proxy.drift import Claim, UntrackedPartition
from partitions.proxy.repair import Repair
from partitions.vipu.errors import Unavailable
from partitions.vipu.types import OperationState, ReadyState
from tests.builders.trackerentries import entry
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import request
from tests.integration.proxy.test_tombstones import OURS

if TYPE_CHECKING:
    from partitions.vipu.types import VipuStatus
    from tests.fakes.vipu import FakePartition
    from tests.integration.proxy.conftest import World

ID = "p-job-default-0"
FOR_EVER = 10**5


async def release(world: World, errors: tuple[str, ...] = ()) -> None:
    """Ask for the end of a job's partition, which has these errors; do not wait for it."""
    world.answer_seconds = 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    world.vipu.partitions[ID].errors = errors
    await proxy.service.release("uid-job", 0)


@pytest.mark.parametrize(
    ("ready", "operation"),
    [
        (ReadyState.ERROR, OperationState.FAILED),
        (ReadyState.ACTIVE, OperationState.FAILED),
        (ReadyState.ERROR, OperationState.IDLE),
        (ReadyState.ACTIVE, OperationState.IDLE),
        (ReadyState.UNDEFINED, OperationState.UNDEFINED),
    ],
)
async def test_a_removal_that_does_not_remove_is_no_release_and_is_asked_for_again(
    world: World, ready: ReadyState, operation: OperationState
) -> None:
    world.vipu.removals_end = [(ready, operation)] * FOR_EVER
    await release(world)
    await eventually(lambda: world.vipu.removes > 3)
    assert world.entry().phase is Phase.RELEASING
    assert world.entry().reason == "ReleaseRefused"
    assert set(world.vipu.partitions) == {ID}

    world.vipu.removals_end.clear()
    await eventually(lambda: world.entry().phase is Phase.RELEASED)
    assert world.vipu.partitions == {}
    assert (world.entry().reason, world.entry().message) == ("", "")


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ((), f"v1:8090 was to remove partition {ID}, which is ERROR and FAILED"),
        (("agent ag1 is silent", "twice"), "agent ag1 is silent; twice"),
    ],
)
async def test_what_a_controller_says_of_a_removal_that_failed_is_shown(
    world: World, errors: tuple[str, ...], message: str
) -> None:
    world.vipu.removals_end = [(ReadyState.ERROR, OperationState.FAILED)] * FOR_EVER
    await release(world, errors)
    await eventually(lambda: bool(world.entry().reason))
    assert (world.entry().reason, world.entry().message) == ("ReleaseRefused", message)


async def test_a_removal_that_begins_late_is_waited_for_and_asked_for_once(world: World) -> None:
    world.vipu.removals_end = [(ReadyState.ACTIVE, OperationState.IDLE)]
    ask, questions = world.vipu.partition_status, []

    async def status(partition_id: str) -> VipuStatus:
        if world.vipu.removes:
            questions.append(partition_id)
        if len(questions) == 3:
            world.vipu.partitions.clear()
        return await ask(partition_id)

    world.vipu.partition_status = status  # type: ignore[method-assign]
    await release(world)
    await eventually(lambda: world.entry().phase is Phase.RELEASED)
    assert (world.vipu.removes, len(questions)) == (1, 3)


async def test_a_partition_that_is_only_remembered_is_released(world: World) -> None:
    world.vipu.removals_end = [(ReadyState.REMOVED, OperationState.IDLE)] * FOR_EVER
    await release(world)
    await eventually(lambda: world.entry().phase is Phase.RELEASED)
    assert world.vipu.removes == 1


def is_being_removed(world: World, ready: ReadyState = ReadyState.PENDING) -> FakePartition:
    """Another client has begun to remove the job's partition, with `vipu remove` for example."""
    found = world.vipu.partitions[ID]
    found.ready, found.operation = ready, OperationState.REMOVING
    return found


async def is_active(world: World) -> None:
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)


@pytest.mark.parametrize("ready", [ReadyState.PENDING, ReadyState.ACTIVE])
async def test_a_partition_under_removal_is_not_taken_for_the_next_attempt(
    world: World, ready: ReadyState
) -> None:
    world.answer_seconds = 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    await is_active(world)
    leaving = is_being_removed(world, ready)
    await proxy.service.ensure(request(attempt=1))
    polls = leaving.polls
    await eventually(lambda: leaving.polls > polls + 3)
    assert (leaving.resets, world.vipu.removes) == (0, 0)
    assert world.entry().phase is Phase.RESERVING
    world.vipu.partitions.clear()
    await is_active(world)
    assert world.vipu.created == [ID] * 2


@pytest.mark.parametrize("ready", [ReadyState.PENDING, ReadyState.ERROR])
async def test_a_partition_under_removal_is_lost_once_it_is_gone_and_never_faulty(
    world: World, ready: ReadyState
) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    is_being_removed(world, ready)
    await proxy.sweep.once()
    assert (world.entry().phase, world.entry().reason) == (Phase.ACTIVE, "")
    (view,) = await proxy.fleet.views()
    assert view.total - view.free == 4  # its IPUs are not free yet
    world.vipu.partitions.clear()
    await proxy.sweep.once()
    assert world.entry().reason == "PartitionLost"


async def test_a_removal_that_lasts_is_told_until_it_is_over(world: World) -> None:
    world.vipu.removes_slowly = True
    await release(world)
    await eventually(lambda: world.entry().reason == "PartitionRemoving")
    assert world.entry().message == (
        f"v1:8090 is removing partition {ID}: its IPUs are not free yet"
    )
    assert world.entry().phase is Phase.RELEASING
    world.vipu.partitions.clear()
    await eventually(lambda: world.entry().phase is Phase.RELEASED)
    assert (world.entry().reason, world.entry().message) == ("", "")
    assert world.vipu.removes == 1


async def test_a_partition_under_removal_cannot_be_adopted(world: World) -> None:
    proxy = await world.start()
    world.vipu.by_hand(ID, 4)
    is_being_removed(world)
    repair = Repair(proxy.store, proxy.fleet, lambda: world.now)
    stranger = UntrackedPartition("v1:8090", "vipu-ctrl=v1", ID, 4)
    with pytest.raises(UnknownPartition, match=f"v1:8090 is removing {ID}"):
        await repair.adopt(stranger, Claim("uid-job", "default", "job", 0, 0))
    assert world.entries() == []


async def test_a_late_partition_that_is_being_removed_is_not_removed_again(world: World) -> None:
    proxy = await world.start()
    tomb = entry(phase=Phase.RELEASED, released_at=world.now, may_come=True, **OURS)
    await proxy.store.write(lambda draft: draft.put(tomb))
    world.vipu.by_hand(ID, 4)
    is_being_removed(world)
    await proxy.sweep.once()
    assert world.vipu.removes == 0
    world.vipu.partitions[ID].operation = OperationState.IDLE
    await proxy.sweep.once()
    assert world.vipu.removes == 1


async def test_a_controller_that_does_not_say_whether_it_removes_is_named(world: World) -> None:
    world.answer_seconds = 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    await is_active(world)
    status = world.vipu.partition_status

    async def silent(_: str) -> VipuStatus:
        raise Unavailable("no answer in 5 s")

    world.vipu.partition_status = silent  # type: ignore[method-assign]
    await proxy.service.ensure(request(attempt=1))
    await eventually(lambda: world.entry().reason == "ControllerUnavailable")
    world.vipu.partition_status = status  # type: ignore[method-assign]
    await is_active(world)


async def test_a_removal_is_told_again_once_a_silent_controller_answers(world: World) -> None:
    world.vipu.removes_slowly = True
    await release(world)
    await eventually(lambda: world.entry().reason == "PartitionRemoving")
    status = world.vipu.partition_status

    async def silent(_: str) -> VipuStatus:
        raise Unavailable("no answer in 5 s")

    world.vipu.partition_status = silent  # type: ignore[method-assign]
    await eventually(lambda: world.entry().reason == "ControllerUnavailable")
    world.vipu.partition_status = status  # type: ignore[method-assign]
    await eventually(lambda: world.entry().reason == "PartitionRemoving")
