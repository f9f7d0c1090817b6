"""A foreign partition that took our id while ours was missing is neither reset nor removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipuhub.partition import Phase
from partitions.proxy.controllers import PartitionSettings
from partitions.proxy.drift import scope_of_settings
from partitions.vipu.errors import Unavailable, VipuError
from tests.builders.trackerentries import entry
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import request

if TYPE_CHECKING:
    from collections.abc import Callable

    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.vipu.types import CreateRequest
    from tests.fakes.vipu import FakeVipu
    from tests.integration.proxy.conftest import World

    Comes = Callable[[FakeVipu], None]

ID = "p-job-default-0"
# Ours are asked for in allocation "a".
LISTED = "v1:8090:vipu-ctrl=v1;allocation=a"
SCOPE = scope_of_settings(PartitionSettings(allocation_id="a"))

strangers = pytest.mark.parametrize(
    "stranger",
    [lambda vipu: vipu.by_hand(ID, 2), lambda vipu: vipu.by_hand(ID, 4, "b")],
    ids=["another size", "another allocation"],
)


def reserving(**given: object) -> TrackerEntry:
    """A job's entry as a proxy left it that died before V-IPU answered."""
    fields = {"uid": "uid-job", "id": ID, "scope": SCOPE, "controller": "v1:8090"} | given
    return entry(phase=Phase.RESERVING, **fields)


def is_untouched(world: World) -> bool:
    return world.vipu.partitions[ID].resets == 0 and world.vipu.removes == 0


@strangers
async def test_one_that_came_while_our_creates_answer_was_lost_is_left_alone(
    world: World, stranger: Comes
) -> None:
    def snatch(_: CreateRequest) -> None:
        world.vipu.before_create = None
        stranger(world.vipu)

    world.listed = LISTED
    world.vipu.before_create = snatch
    world.vipu.create_refused = [Unavailable("deadline")]
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert (record.phase, record.id != ID) == ("active", True)
    assert is_untouched(world)


@strangers
async def test_one_that_came_while_no_proxy_ran_is_left_alone(
    world: World, stranger: Comes
) -> None:
    world.listed = LISTED
    first = await world.start()
    await first.store.write(lambda draft: draft.put(reserving()))
    stranger(world.vipu)
    second = await world.start()
    await second.sweep.once()
    assert world.entry().phase is Phase.ACTIVE
    assert set(world.vipu.partitions) == {ID, world.entry().id}
    assert is_untouched(world)


@pytest.mark.parametrize("now_listed", [LISTED, "v1:8090:vipu-ctrl=v1;allocation=elsewhere"])
async def test_our_own_is_found_again_whatever_the_settings_are_by_now(
    world: World, now_listed: str
) -> None:
    world.listed = LISTED
    first = await world.start()
    await first.store.write(lambda draft: draft.put(reserving()))
    world.vipu.by_hand(ID, 4, "a")
    world.listed = now_listed
    second = await world.start()
    await second.sweep.once()
    assert (world.entry().phase, world.entry().id) == (Phase.ACTIVE, ID)
    assert set(world.vipu.partitions) == {ID}
    assert world.vipu.partitions[ID].resets == 1


async def test_what_was_not_made_yet_is_asked_for_as_the_settings_are_by_now(world: World) -> None:
    world.listed = LISTED
    first = await world.start()
    await first.store.write(lambda draft: draft.put(reserving(scope="")))
    second = await world.start()
    await second.sweep.once()
    assert world.vipu.partitions[ID].request.allocation_id == "a"
    assert (world.entry().phase, world.entry().scope) == (Phase.ACTIVE, SCOPE)


@strangers
async def test_a_new_attempt_leaves_one_alone_that_took_the_place_of_ours(
    world: World, stranger: Comes
) -> None:
    world.listed = LISTED
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.vipu.partitions.clear()
    stranger(world.vipu)
    record = await proxy.service.ensure(request(attempt=1))
    assert (record.phase, record.id != ID) == ("active", True)
    assert is_untouched(world)


@strangers
async def test_a_release_leaves_one_alone_and_says_so(world: World, stranger: Comes) -> None:
    world.listed = LISTED
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.vipu.partitions.clear()
    stranger(world.vipu)
    record = await proxy.service.release("uid-job", 0)
    assert (record.phase, record.reason) == ("released", "PartitionLost")
    assert "it is not this job's" in record.message
    assert is_untouched(world)
    assert (await proxy.service.ensure(request(attempt=1))).id != ID


async def test_a_list_that_cannot_be_had_is_waited_for_before_anything_is_done(
    world: World,
) -> None:
    world.answer_seconds = 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    world.vipu.down = VipuError("internal")
    await proxy.service.ensure(request(attempt=1))
    await eventually(lambda: world.entry().reason == "ControllerUnavailable")
    assert world.entry().phase is Phase.RESERVING
    world.vipu.down = None
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    assert world.vipu.partitions[ID].resets == 1
