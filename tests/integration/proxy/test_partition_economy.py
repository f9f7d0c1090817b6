"""Calls per partition to the API server and the controllers: few patches, few requests."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from partitions.vipu.types import OperationState, ReadyState, VipuStatus

from .conftest import START, request, run_other_tasks
from .test_tracker_store import entry

if TYPE_CHECKING:
    from .conftest import World

CREATION_SECONDS = 0.4


async def test_what_is_written_soon_after_a_write_goes_out_together(world: World) -> None:
    world.gather_seconds = 2.0
    proxy = await world.start()
    await proxy.store.write(lambda draft: draft.put(entry(0)))
    before = len(world.maps.patches)
    writes = []
    for number in range(1, 6):
        change = entry(number)
        task = asyncio.create_task(proxy.store.write(lambda draft, one=change: draft.put(one)))  # type: ignore[misc]
        writes.append(task)
        await run_other_tasks()  # without gathering, each would be on its way now
    assert len(world.maps.patches) == before
    await asyncio.gather(*writes)
    (patch,) = world.maps.patches[before:]
    assert set(patch["data"]) == {f"uid-{n}.0.0" for n in range(1, 6)}


async def test_what_comes_after_a_quiet_moment_is_written_at_once(world: World) -> None:
    world.gather_seconds = 3600
    proxy = await world.start()
    async with asyncio.timeout(60):
        await proxy.store.write(lambda draft: draft.put(entry(0)))
    assert set(world.maps.texts()) == {"uid-0.0.0"}


async def test_a_single_partition_waits_for_no_company(world: World) -> None:
    world.gather_seconds, world.at_once = 3600, 3
    proxy = await world.start()
    world.vipu.polls = 1
    async with asyncio.timeout(60):
        record = await proxy.service.ensure(request("single"))
    assert record.phase == "active"
    assert world.entry().phase == "active"


async def test_reading_the_tracker_again_does_not_wait_for_company(world: World) -> None:
    world.gather_seconds = 3600
    proxy = await world.start()
    await proxy.store.write(lambda draft: draft.put(entry(0)))
    lists = world.maps.lists
    async with asyncio.timeout(60):
        await proxy.store.refresh()
    assert world.maps.lists == lists + 1


async def test_a_controller_is_not_asked_before_its_partitions_are_usually_ready(
    world: World,
) -> None:
    proxy = await world.start()
    loop, accepted, looks = asyncio.get_running_loop(), dict[str, float](), dict[str, int]()
    create = world.vipu.create_partition

    async def creates(wanted: object) -> str:
        made = await create(wanted)  # type: ignore[arg-type]
        accepted[made] = loop.time()
        return made

    async def status(partition_id: str) -> VipuStatus:
        looks[partition_id] = looks.get(partition_id, 0) + 1
        is_ready = loop.time() >= accepted[partition_id] + CREATION_SECONDS
        state = ReadyState.ACTIVE if is_ready else ReadyState.PENDING
        return VipuStatus(partition_id, state, OperationState.IDLE)

    world.vipu.create_partition = creates  # type: ignore[method-assign,assignment]
    world.vipu.partition_status = status  # type: ignore[method-assign]
    for number in range(8):
        record = await proxy.service.ensure(request(f"job-{number}", size=1))
        assert record.phase == "active"
        assert record.active_at == START
    # The pauses between looks are of a few milliseconds here: who has learned nothing takes dozens.
    assert looks["p-job-0-default-0"] > 10
    assert sum(looks[f"p-job-{n}-default-0"] for n in range(4, 8)) < looks["p-job-0-default-0"]


async def test_a_partition_is_asked_for_with_one_patch_for_each_thing_to_know(
    world: World,
) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request("first"))
    before = len(world.maps.patches)
    await proxy.service.ensure(request("second"))
    phases = [patch["data"] for patch in world.maps.patches[before:]]
    assert len(phases) == 2  # reserving, and active, as the first look says


async def test_a_partition_that_is_not_ready_at_once_is_written_as_being_made(
    world: World,
) -> None:
    world.vipu.polls = 1
    proxy = await world.start()
    await proxy.service.ensure(request("first"))
    await proxy.service.ensure(request("second"))
    written = [one for patch in world.maps.patches for one in patch["data"].items()]
    phases = [json.loads(text)["phase"] for key, text in written if key.startswith("uid-second")]
    assert phases == ["reserving", "creating", "active"]
