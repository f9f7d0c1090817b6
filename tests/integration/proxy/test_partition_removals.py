"""A partition is released when its controller no longer has it, and not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipuhub.partition import Phase
from partitions.vipu.types import OperationState, ReadyState
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import request

if TYPE_CHECKING:
    from partitions.vipu.types import VipuStatus
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
    ask, asked = world.vipu.partition_status, []

    async def status(partition_id: str) -> VipuStatus:
        if world.vipu.removes:
            asked.append(partition_id)
        if len(asked) == 3:
            world.vipu.partitions.clear()
        return await ask(partition_id)

    world.vipu.partition_status = status  # type: ignore[method-assign]
    await release(world)
    await eventually(lambda: world.entry().phase is Phase.RELEASED)
    assert (world.vipu.removes, len(asked)) == (1, 3)


async def test_a_partition_that_is_only_remembered_is_released(world: World) -> None:
    world.vipu.removals_end = [(ReadyState.REMOVED, OperationState.IDLE)] * FOR_EVER
    await release(world)
    await eventually(lambda: world.entry().phase is Phase.RELEASED)
    assert world.vipu.removes == 1
