"""Reserve, create, activate, reset, release: the resulting state of tracker and V-IPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ipuhub.partition import Phase
from partitions.errors import Contradiction, StaleAttempt, UnknownPartition
from partitions.vipu.errors import InvalidRequest
from partitions.vipu.types import ReadyState
from tests.integration.proxy.conftest import START, request

if TYPE_CHECKING:
    from tests.integration.proxy.conftest import World


async def test_a_request_ends_in_an_active_partition_that_the_tracker_knows(world: World) -> None:
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert (record.phase, record.id, record.controller) == ("active", "p-job-default-0", "v1:8090")
    assert record.node_selector == {"vipu-ctrl": "v1"}
    assert (record.reserved_at, record.active_at, record.released_at) == (START, START, None)
    assert (record.needed, record.free) == (None, None)
    assert list(world.vipu.partitions) == ["p-job-default-0"]
    entry = world.entry()
    assert (entry.uid, entry.instance, entry.attempt, entry.phase) == (
        "uid-job",
        0,
        0,
        Phase.ACTIVE,
    )


async def test_partitions_are_made_without_auto_reset_and_relocation(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    made = world.vipu.partitions["p-job-default-0"].request
    assert (made.auto_reset, made.relocatable) == (False, False)


async def test_partitions_are_made_with_the_settings_of_their_controller(world: World) -> None:
    world.listed = "v1:8090:vipu-ctrl=v1;cluster=c;allocation=a;gcds=2;replicas=4;reconfigurable=on"
    proxy = await world.start()
    await proxy.service.ensure(request())
    made = world.vipu.partitions["p-job-default-0"].request
    assert (made.cluster_id, made.allocation_id) == ("c", "a")
    assert (made.num_gcds, made.num_replicas, made.reconfigurable) == (2, 4, True)


async def test_gcds_of_the_request_go_before_those_of_the_controller(world: World) -> None:
    world.listed = "v1:8090:vipu-ctrl=v1;gcds=2"
    proxy = await world.start()
    await proxy.service.ensure(request(num_gcds=4, num_replicas=4))
    made = world.vipu.partitions["p-job-default-0"].request
    assert (made.num_gcds, made.num_replicas) == (4, 4)


async def test_the_same_attempt_again_leaves_an_active_partition_alone(world: World) -> None:
    proxy = await world.start()
    first = await proxy.service.ensure(request())
    writes = len(world.maps.patches)
    assert await proxy.service.ensure(request()) == first
    assert world.vipu.partitions[first.id].resets == 0
    assert len(world.maps.patches) == writes


async def test_a_higher_attempt_resets_the_partition_and_keeps_its_id(world: World) -> None:
    proxy = await world.start()
    first = await proxy.service.ensure(request())
    world.later(60)
    again = await proxy.service.ensure(request(attempt=1))
    assert (again.id, again.attempt, again.phase) == (first.id, 1, "active")
    assert again.active_at == START
    assert world.vipu.partitions[first.id].resets == 1


async def test_a_higher_attempt_makes_a_partition_again_that_is_gone(world: World) -> None:
    proxy = await world.start()
    first = await proxy.service.ensure(request())
    world.vipu.partitions.clear()
    again = await proxy.service.ensure(request(attempt=1))
    assert (again.id, again.phase) == (first.id, "active")
    assert list(world.vipu.partitions) == [first.id]


async def test_a_lower_attempt_is_stale(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request(attempt=2))
    with pytest.raises(StaleAttempt, match="attempt 2"):
        await proxy.service.ensure(request(attempt=1))
    with pytest.raises(StaleAttempt):
        await proxy.service.reset("uid-job", 0, 1)
    assert world.entry().attempt == 2


async def test_another_size_in_the_same_attempt_is_a_contradiction(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request(size=4))
    with pytest.raises(Contradiction, match="holds 4 IPUs"):
        await proxy.service.ensure(request(size=8))


async def test_another_size_in_a_new_attempt_releases_first_and_then_reserves(
    world: World,
) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request(size=4))
    assert (await proxy.service.ensure(request(size=8, attempt=1))).phase == "released"
    assert (await proxy.service.ensure(request(size=8, attempt=1))).size == 8
    assert [one.request.size for one in world.vipu.partitions.values()] == [8]


async def test_a_uid_belongs_to_one_job(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    with pytest.raises(Contradiction, match="default/job"):
        await proxy.service.ensure(request(namespace="other"))


async def test_reset_makes_the_partition_clean_once_per_attempt(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    for _ in range(2):
        record = await proxy.service.reset("uid-job", 0, 1)
        assert (record.attempt, record.phase) == (1, "active")
    assert world.vipu.partitions["p-job-default-0"].resets == 1


async def test_reset_and_release_of_what_nobody_knows_say_so(world: World) -> None:
    proxy = await world.start()
    with pytest.raises(UnknownPartition):
        await proxy.service.reset("uid-job", 0, 1)
    with pytest.raises(UnknownPartition):
        await proxy.service.release("uid-job", 0)
    with pytest.raises(UnknownPartition):
        proxy.service.find("uid-job", 0)


async def test_what_is_being_released_is_not_reset(world: World) -> None:
    world.answer_seconds = 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.vipu.removes_slowly = True
    assert (await proxy.service.release("uid-job", 0)).phase == "releasing"
    with pytest.raises(UnknownPartition, match="holds no partition"):
        await proxy.service.reset("uid-job", 0, 1)


async def test_release_removes_the_partition_and_leaves_a_tombstone(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.later(90)
    record = await proxy.service.release("uid-job", 0)
    assert record.phase == "released"
    assert (record.reserved_at, record.active_at, record.released_at) == (START, START, world.now)
    assert world.vipu.partitions == {}
    assert world.entry().phase is Phase.RELEASED
    assert await proxy.service.release("uid-job", 0) == record


async def test_release_of_a_partition_that_is_gone_is_success(world: World) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.vipu.partitions.clear()
    assert (await proxy.service.release("uid-job", 0)).phase == "released"


async def test_a_job_that_comes_back_gets_a_new_partition_beside_its_tombstone(
    world: World,
) -> None:
    proxy = await world.start()
    await proxy.service.ensure(request())
    await proxy.service.release("uid-job", 0)
    world.later(5)
    record = await proxy.service.ensure(request(attempt=1))
    assert record.phase == "active"
    assert [entry.phase for entry in sorted(world.entries(), key=lambda e: e.serial)] == [
        Phase.RELEASED,
        Phase.ACTIVE,
    ]
    # Who reads the list in order sees the present one last.
    assert [one.phase for one in proxy.service.records()] == ["released", "active"]


async def test_a_partition_in_error_says_why_and_a_new_attempt_resets_it(world: World) -> None:
    proxy = await world.start()

    def fault(_: object) -> None:
        world.vipu.polls = 0

    world.vipu.before_create = fault
    world.answer_seconds = 0.01
    world.vipu.polls = 0
    await proxy.service.ensure(request())
    made = world.vipu.partitions["p-job-default-0"]
    made.ready, made.errors = ReadyState.ERROR, ("IPU 3 lost its link",)
    await proxy.sweep.once()
    record = proxy.service.find("uid-job", 0)
    assert (record.phase, record.reason) == ("error", "PartitionError")
    assert record.message == "IPU 3 lost its link"
    assert (await proxy.service.ensure(request())).phase == "error"
    assert (await proxy.service.ensure(request(attempt=1))).phase == "active"


async def test_a_refused_create_is_an_error_with_the_controllers_words(world: World) -> None:
    world.vipu.create_refused = [InvalidRequest("cluster 'x' does not exist")]
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert (record.phase, record.reason) == ("error", "CreateRefused")
    assert record.message == "cluster 'x' does not exist"
    assert (await proxy.service.release("uid-job", 0)).phase == "released"


async def test_instances_of_one_job_hold_separate_partitions(world: World) -> None:
    proxy = await world.start()
    for instance in (0, 1):
        await proxy.service.ensure(request(instance=instance))
    await proxy.service.release("uid-job", 0)
    assert list(world.vipu.partitions) == ["p-job-default-1"]
