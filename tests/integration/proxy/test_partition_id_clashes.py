"""Ids that jobs, people or other clusters use already are left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partitions.vipu.errors import NoCapacity
from tests.integration.proxy.conftest import TWO, request

if TYPE_CHECKING:
    from partitions.vipu.types import CreateRequest
    from tests.integration.proxy.conftest import World


async def test_jobs_whose_readable_ids_collide_get_different_partitions(world: World) -> None:
    proxy = await world.start()
    one = await proxy.service.ensure(request("a-b", namespace="c"))
    other = await proxy.service.ensure(request("a", namespace="b-c"))
    assert one.id == "p-a-b-c-0"
    assert other.id != one.id
    assert other.id.startswith("p-a-")
    assert set(world.vipu.partitions) == {one.id, other.id}


async def test_a_job_made_again_under_its_name_does_not_touch_the_old_ones_partition(
    world: World,
) -> None:
    proxy = await world.start()
    old = await proxy.service.ensure(request(uid="old"))
    new = await proxy.service.ensure(request(uid="new"))
    assert new.id != old.id
    await proxy.service.release("old", 0)
    assert list(world.vipu.partitions) == [new.id]


async def test_an_id_that_a_person_uses_is_avoided(world: World) -> None:
    world.vipu.by_hand("p-job-default-0", 2)
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert record.id != "p-job-default-0"
    await proxy.service.release("uid-job", 0)
    assert list(world.vipu.partitions) == ["p-job-default-0"]
    assert world.vipu.partitions["p-job-default-0"].resets == 0


async def test_an_id_that_another_cluster_takes_meanwhile_is_not_ours(world: World) -> None:
    def snatch(_: object) -> None:
        world.vipu.before_create = None
        world.vipu.by_hand("p-job-default-0", 2)

    world.vipu.before_create = snatch
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert record.phase == "active"
    assert record.id != "p-job-default-0"
    assert world.vipu.partitions["p-job-default-0"].resets == 0


async def test_an_id_taken_between_reservation_and_create_is_not_ours(world: World) -> None:
    proxy = await world.start()

    async def snatch() -> None:
        world.maps.on_write = None
        world.vipu.by_hand("p-job-default-0", 2)

    world.maps.on_write = snatch
    record = await proxy.service.ensure(request())
    assert record.phase == "active"
    assert record.id != "p-job-default-0"
    assert world.vipu.partitions["p-job-default-0"].resets == 0


async def test_one_id_is_used_once_on_all_controllers(world: World) -> None:
    world.add_vipu("v2:8090")
    world.listed = TWO
    proxy = await world.start()
    one = await proxy.service.ensure(request("a-b", namespace="c", size=32))
    other = await proxy.service.ensure(request("a", namespace="b-c"))
    assert (one.controller, other.controller) == ("v1:8090", "v2:8090")
    assert one.id == "p-a-b-c-0"
    assert other.id != one.id


async def test_a_job_that_is_sent_to_the_next_controller_keeps_its_readable_id(
    world: World,
) -> None:
    world.add_vipu("v2:8090")
    world.listed = TWO
    world.vipu.create_refused = [NoCapacity("full")]
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert (record.controller, record.id) == ("v2:8090", "p-job-default-0")


async def test_an_id_taken_on_the_way_to_the_next_controller_is_not_ours(world: World) -> None:
    second = world.add_vipu("v2:8090")
    world.listed = TWO
    proxy = await world.start()
    await proxy.service.ensure(request())
    world.vipu.partitions.clear()
    world.vipu.create_refused = [NoCapacity("full")]

    def snatch(_: CreateRequest) -> None:
        second.before_create = None
        second.by_hand("p-job-default-0", 2)

    second.before_create = snatch
    record = await proxy.service.ensure(request(attempt=1))
    assert (record.phase, record.controller) == ("active", "v2:8090")
    assert record.id != "p-job-default-0"
    assert second.partitions["p-job-default-0"].resets == 0
