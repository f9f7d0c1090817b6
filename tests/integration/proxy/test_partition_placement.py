"""The choice of a controller for a partition, and the message to a job without room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipuhub.partition import Phase
from partitions.errors import UnknownPartition
from partitions.proxy.controllers import PlacementRule
from partitions.vipu.errors import NoAnswer, NoCapacity, Unavailable
from tests.integration.proxy.conftest import START, TWO, request

if TYPE_CHECKING:
    from tests.integration.proxy.conftest import World


async def test_create_without_an_answer_is_resolved_by_status(world: World) -> None:
    world.add_vipu("v2:8090")
    world.listed = TWO
    world.vipu.create_lost = [Unavailable("deadline")]
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert (record.phase, record.controller) == ("active", "v1:8090")
    assert world.vipu.created == [record.id]
    assert world.vipus["v2:8090"].created == []


async def test_create_that_never_arrived_is_sent_again_to_the_same_controller(
    world: World,
) -> None:
    world.add_vipu("v2:8090")
    world.listed = TWO
    world.vipu.create_refused = [Unavailable("deadline")]
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert (record.phase, record.controller) == ("active", "v1:8090")
    assert world.vipus["v2:8090"].created == []


async def test_a_controller_that_is_full_after_all_sends_the_job_to_the_next(
    world: World,
) -> None:
    world.add_vipu("v2:8090")
    world.listed = TWO
    world.vipu.create_refused = [NoCapacity("full")]
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert (record.controller, record.node_selector) == ("v2:8090", {"vipu-ctrl": "v2"})
    assert world.entry().controller == "v2:8090"
    assert world.vipu.partitions == {}


async def test_no_room_anywhere_waits_with_needed_and_free_and_stores_nothing(
    world: World,
) -> None:
    world.vipu.by_hand("mine", 16)
    proxy = await world.start()
    record = await proxy.service.ensure(request(size=32))
    assert (record.phase, record.reason) == ("waiting", "NoCapacity")
    assert (record.needed, record.free) == (32, 16)
    assert (
        record.message == "32 IPUs in one block are needed and not free now; blocks have up to 32"
    )
    assert world.entries() == []
    with pytest.raises(UnknownPartition):
        await proxy.service.release("uid-job", 0)


async def test_room_lost_between_choice_and_create_waits_and_stores_nothing(
    world: World,
) -> None:
    world.vipu.create_refused = [NoCapacity("full")]
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert (record.phase, record.reason, record.needed) == ("waiting", "NoCapacity", 4)
    assert world.entries() == []
    world.later(60)  # a controller that does not say where its IPUs stand is believed for so long
    assert (await proxy.service.ensure(request())).phase == "active"


async def test_a_used_up_job_that_finds_no_room_again_keeps_its_ipu_seconds(
    world: World,
) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.vipu.partitions.clear()
    world.vipu.by_hand("mine", 32)
    world.later(60)
    assert (await proxy.service.ensure(request(attempt=1))).phase == "waiting"
    tomb = world.entry()
    assert (tomb.phase, tomb.active_at, tomb.released_at) == (Phase.RELEASED, START, world.now)


async def test_first_fit_goes_through_the_list_in_order(world: World) -> None:
    world.add_vipu("v2:8090", machines=1)
    world.listed = TWO
    proxy = await world.start()
    assert (await proxy.service.ensure(request())).controller == "v1:8090"


async def test_best_fit_takes_the_controller_with_the_smallest_block(world: World) -> None:
    world.add_vipu("v2:8090", machines=1)
    world.listed = TWO
    world.rule = PlacementRule.BEST_FIT
    proxy = await world.start()
    assert (await proxy.service.ensure(request())).controller == "v2:8090"


async def test_an_unreachable_controller_is_skipped_and_marked(world: World) -> None:
    world.add_vipu("v2:8090")
    world.listed = TWO
    world.vipu.down = NoAnswer("v1:8090: refused")
    proxy = await world.start()
    assert (await proxy.service.ensure(request())).controller == "v2:8090"
    views = {view.spec.address: view for view in await proxy.fleet.views()}
    assert views["v1:8090"].problem.startswith("v1:8090: refused")
    assert proxy.fleet.problem == ""


async def test_no_reachable_controller_waits_and_goes_on_when_one_is_back(world: World) -> None:
    world.vipu.down = NoAnswer("v1:8090: refused")
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert (record.phase, record.reason) == ("waiting", "ControllerUnavailable")
    assert (record.needed, record.free) == (4, 0)
    assert "refused" in proxy.fleet.problem
    world.vipu.down = None
    world.later(60)
    assert (await proxy.service.ensure(request())).phase == "active"
    assert proxy.fleet.problem == ""


async def test_without_controllers_a_job_waits_with_a_sentence(world: World) -> None:
    world.listed = ""
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert (record.phase, record.reason) == ("waiting", "NoControllers")
    assert "host:port:label=value" in record.message


async def test_a_label_on_no_node_holds_no_partition(world: World) -> None:
    world.unlabelled = {"vipu-ctrl=v1"}
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert (record.phase, record.reason) == ("waiting", "NoLabelledNode")
    assert "vipu-ctrl=v1" in record.message
    world.unlabelled = set()
    assert (await proxy.service.ensure(request())).phase == "active"


async def test_a_controller_off_the_list_drains(world: World) -> None:
    world.add_vipu("v2:8090")
    world.listed = TWO
    proxy = await world.start()
    await proxy.service.ensure(request("old"))
    world.listed = "v2:8090:vipu-ctrl=v2"
    proxy.fleet.reload()
    assert (await proxy.service.ensure(request("new"))).controller == "v2:8090"
    assert (await proxy.service.release("uid-old", 0)).phase == "released"
    assert world.vipu.partitions == {}


async def test_a_reservation_on_a_controller_that_drains_goes_elsewhere(world: World) -> None:
    world.add_vipu("v2:8090")
    world.listed = TWO
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.vipu.partitions.clear()
    world.listed = "v2:8090:vipu-ctrl=v2"
    proxy.fleet.reload()
    assert (await proxy.service.ensure(request(attempt=1))).controller == "v2:8090"
    assert world.vipu.partitions == {}


async def test_an_invalid_edit_of_the_list_keeps_the_last_good_one(world: World) -> None:
    proxy = await world.start()
    world.listed = "v1:8090"
    proxy.fleet.reload()
    assert "v1:8090" in proxy.fleet.list_problem
    assert (await proxy.service.ensure(request())).phase == "active"
    world.listed = TWO
    world.add_vipu("v2:8090")
    proxy.fleet.reload()
    assert proxy.fleet.list_problem == ""
    assert len(proxy.fleet.specs) == 2
