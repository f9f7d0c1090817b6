"""The sweep: partitions that it marks, finishes, removes, and those that it never touches."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog.testing

from ipuhub.concurrency import end_tasks
from ipuhub.partition import Phase
from partitions.proxy.fleet import FleetOptions
from partitions.proxy.sweep import SweepOptions
from partitions.proxy.tracker import encode_entry
from partitions.vipu.errors import InvalidRequest, NoAnswer
from partitions.vipu.types import OperationState, ReadyState
from tests.fakes.configmaps import unreachable
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import START, lose_patience, request, run_other_tasks

if TYPE_CHECKING:
    from tests.integration.proxy.conftest import World

NAME = "ipu-partitions-tracker"


async def test_partitions_that_the_tracker_does_not_know_are_reported_and_left_alone(
    world: World,
) -> None:
    world.vipu.by_hand("a-persons", 4)
    world.vipu.by_hand("p-job-default-0", 2)
    proxy = await world.start()
    await proxy.service.ensure(request("mine"))
    drift = await proxy.sweep.once()
    assert drift.untracked == (("v1:8090", "a-persons"), ("v1:8090", "p-job-default-0"))
    assert proxy.sweep.drift.untracked_by_controller == {"v1:8090": 2}
    assert {"a-persons", "p-job-default-0"} <= set(world.vipu.partitions)
    assert world.vipu.partitions["a-persons"].resets == 0


async def test_a_partition_that_vanished_is_an_error_that_says_so(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.vipu.partitions.clear()
    drift = await proxy.sweep.once()
    assert [entry.id for entry in drift.lost] == ["p-job-default-0"]
    entry = world.entry()
    assert (entry.phase, entry.reason) == (Phase.ERROR, "PartitionLost")
    assert entry.message == "v1:8090 no longer knows partition p-job-default-0"


async def test_a_partition_that_left_with_its_drained_machine_says_so(world: World) -> None:
    world.fleet_options = FleetOptions(topology_seconds=3600)  # read before the cordon
    proxy = await world.start()
    await proxy.service.ensure(request())
    watching = asyncio.create_task(proxy.sweep.watch())
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    await eventually(proxy.fleet.views, lambda _: bool(proxy.sweep._places))
    await end_tasks(watching)
    world.vipu.cordons["ag0"] = "new cables on Monday"
    world.vipu.partitions.clear()
    await proxy.sweep.once()
    outage = "" if world.published_only else "; ag0 is cordoned: new cables on Monday"
    assert world.entry().message == f"v1:8090 no longer knows partition p-job-default-0{outage}"
    assert proxy.sweep._places.keys() == {("v1:8090", "p-job-default-0")}
    await proxy.service.release("uid-job", 0)
    await eventually(lambda: world.entry().phase is Phase.RELEASED)
    await proxy.sweep.once()
    assert not proxy.sweep._places


async def test_a_silent_controller_proves_nothing(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.vipu.down = NoAnswer("refused")
    drift = await proxy.sweep.once()
    assert drift.lost == ()
    assert world.entry().phase is Phase.ACTIVE


async def test_partitions_on_a_controller_off_the_list_are_watched_too(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.add_vipu("v2:8090")
    world.listed = "v2:8090:vipu-ctrl=v2"
    proxy.fleet.reload()
    world.vipu.partitions.clear()
    await proxy.sweep.once()
    assert world.entry().reason == "PartitionLost"


async def test_a_partition_that_a_stranger_replaced_is_lost_and_left_alone(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request(size=4))
    world.vipu.partitions.clear()
    world.vipu.by_hand("p-job-default-0", 8)
    world.later(60)
    await proxy.sweep.once()
    found, lost_at = world.entry(), world.now
    assert (found.phase, found.reason, found.lost_at) == (Phase.ERROR, "PartitionLost", lost_at)
    assert found.message == "p-job-default-0 has 8 IPUs, not 4: it is not this job's"
    assert proxy.service.find("uid-job", 0).lost_at == lost_at
    world.later(60)
    assert (await proxy.service.ensure(request(attempt=1))).phase == "released"
    assert world.entry().released_at == lost_at  # what a recorder counts
    record = await proxy.service.ensure(request(attempt=1))
    assert (record.phase, record.id != found.id) == ("active", True)
    assert record.active_at == world.now
    assert world.vipu.removes == 0


async def test_a_list_that_somebody_else_asks_for_shows_what_was_replaced_or_broke(
    world: World,
) -> None:
    world.sweep_options = SweepOptions(overhear_seconds=0)
    proxy = await world.start()
    for name in ("sound", "replaced", "broken", "gone"):
        await proxy.service.ensure(request(name, size=2))
    del world.vipu.partitions["p-replaced-default-0"]
    del world.vipu.partitions["p-gone-default-0"]
    world.vipu.by_hand("p-replaced-default-0", 4)
    world.vipu.partitions["p-broken-default-0"].ready = ReadyState.ERROR
    before = world.vipu.lists
    heard = asyncio.create_task(proxy.sweep.overhear())
    await run_other_tasks()
    assert world.vipu.lists == before  # it asks nobody itself
    await proxy.service.ensure(request("new", size=2))
    await heard
    assert world.vipu.lists == before + 1
    reasons = {entry.name: entry.reason for entry in world.entries()}
    assert reasons == {
        "sound": "",
        "replaced": "PartitionLost",
        "broken": "PartitionError",
        "gone": "",  # what a list lacks is the sweep's to judge
        "new": "",
    }


async def test_a_partition_that_works_again_is_active_and_one_that_is_not_clean_is_not(
    world: World,
) -> None:
    world.sweep_options = SweepOptions(overhear_seconds=0)
    proxy = await world.start()
    for name in ("healed", "resetting", "failed", "refused"):
        await proxy.service.ensure(request(name, size=2))
    broken = ("healed", "resetting", "failed")
    parts = {name: world.vipu.partitions[f"p-{name}-default-0"] for name in broken}
    for part in parts.values():
        part.ready, part.errors = ReadyState.ERROR, ("a cable is loose",)
    await proxy.sweep.once()
    world.vipu.reset_refused = [InvalidRequest("not now")]
    assert (await proxy.service.ensure(request("refused", size=2, attempt=1))).phase == "error"
    first = {entry.name: entry for entry in world.entries()}
    assert {entry.phase for entry in first.values()} == {Phase.ERROR}
    for part in parts.values():
        part.ready, part.errors = ReadyState.ACTIVE, ()
    parts["resetting"].operation = OperationState.RESETTING
    parts["failed"].operation = OperationState.FAILED  # ACTIVE, as before its reset
    world.later(60)
    heard = asyncio.create_task(proxy.sweep.overhear())
    await run_other_tasks()
    await proxy.fleet.views()
    await heard
    assert {entry.phase for entry in world.entries()} == {Phase.ERROR}  # once a sweep, not at once
    with structlog.testing.capture_logs() as lines:
        await proxy.sweep.once()
    phases = {entry.name: entry.phase for entry in world.entries()}
    others = dict.fromkeys(("resetting", "failed", "refused"), "error")
    assert phases == {"healed": "active"} | others
    jobs = [line["job"] for line in lines if line["event"] == "partition works again"]
    assert jobs == ["default/healed"]
    parts["resetting"].operation = OperationState.IDLE
    await proxy.sweep.once()
    found = {entry.name: entry for entry in world.entries()}
    assert (found["resetting"].phase, found["resetting"].message) == (Phase.ACTIVE, "")
    assert found["healed"].active_at == first["healed"].active_at  # it was held all the time
    assert found["refused"] == first["refused"]
    assert world.vipu.partitions["p-healed-default-0"].resets == 0
    assert (await proxy.service.ensure(request("healed", size=2, attempt=1))).phase == "active"
    assert world.vipu.partitions["p-healed-default-0"].resets == 1


async def test_a_list_older_than_the_entry_denies_nothing(world: World) -> None:
    world.sweep_options = SweepOptions(overhear_seconds=0)
    proxy = await world.start()
    world.vipu.by_hand("p-job-default-0", 8)
    await proxy.fleet.views()  # it shows the id while it is a stranger's
    world.vipu.partitions.clear()
    await proxy.service.ensure(request())
    heard = asyncio.create_task(proxy.sweep.overhear())
    await run_other_tasks()
    assert not heard.done()
    await proxy.fleet.views()
    await heard
    assert world.entry().phase is Phase.ACTIVE


async def test_what_is_seen_while_the_tracker_is_away_is_marked_later(world: World) -> None:
    world.sweep_options = SweepOptions(overhear_seconds=0)
    proxy = await world.start()
    await proxy.service.ensure(request())
    lose_patience(proxy)
    world.vipu.partitions.clear()
    world.vipu.by_hand("p-job-default-0", 8)
    watch = asyncio.create_task(proxy.sweep.watch())
    world.maps.down = unreachable()
    for _ in range(3):
        await proxy.fleet.views()
        await run_other_tasks()
    assert world.entry().phase is Phase.ACTIVE
    world.maps.down = None

    async def is_lost() -> bool:
        await proxy.fleet.views()
        return world.entry().reason == "PartitionLost"

    await eventually(is_lost)
    watch.cancel()


async def test_a_tracker_that_was_never_read_is_waited_for(world: World) -> None:
    world.sweep_options = SweepOptions(overhear_seconds=0)
    proxy = world.build()
    world.running.append(proxy)
    watch = asyncio.create_task(proxy.sweep.watch())
    await run_other_tasks()  # the others go on
    await proxy.store.refresh()
    await proxy.service.ensure(request())
    world.vipu.partitions["p-job-default-0"].ready = ReadyState.ERROR

    async def is_broken() -> bool:
        await proxy.fleet.views()
        return world.entry().reason == "PartitionError"

    await eventually(is_broken)
    watch.cancel()


async def test_a_sweep_of_a_world_in_order_writes_nothing(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    before = world.maps.version
    await proxy.sweep.once()
    assert world.maps.version == before


async def test_an_edit_by_hand_is_seen_by_the_next_sweep(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    edited = replace(world.entry(), phase=Phase.RELEASING)
    world.maps.edit(NAME, **{edited.key: encode_entry(edited)})
    await proxy.sweep.once()
    assert world.vipu.partitions == {}
    assert (world.entry().phase, world.entry().released_at) == (Phase.RELEASED, START)


async def test_a_sweep_without_api_server_is_put_off_and_not_the_end(world: World) -> None:
    proxy = await world.start()
    lose_patience(proxy)
    world.maps.down = unreachable()
    task = asyncio.create_task(proxy.sweep.run())
    await asyncio.sleep(0.05)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_sweep_asks_each_controller_once_and_none_off_the_list_for_a_tombstone(
    world: World,
) -> None:
    world.add_vipu("v2:8090")
    world.listed = "v2:8090:vipu-ctrl=v2"
    proxy = await world.start()
    await proxy.service.ensure(request("gone"))
    await proxy.service.release("uid-gone", 0)
    world.listed = "v1:8090:vipu-ctrl=v1"
    proxy.fleet.reload()
    await proxy.service.ensure(request("here"))
    first, second = world.vipu.lists, world.vipus["v2:8090"].lists
    await proxy.sweep.once()
    assert (world.vipu.lists, world.vipus["v2:8090"].lists) == (first + 1, second)
