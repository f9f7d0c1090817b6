"""Partitions through the client and a real server: create, wait, reset, remove, refuse."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.errors import (
    AlreadyExists,
    InvalidRequest,
    NoCapacity,
    NotFound,
    NotReady,
)
from partitions.vipu.places import with_places
from partitions.vipu.topology import (
    Hardware,
    IpuId,
    count_fitting,
    free_blocks,
    is_buddy_block,
)
from partitions.vipu.types import (
    CreateRequest,
    IpuLinkRouting,
    OperationState,
    ReadyState,
    SyncType,
)
from tests.builders.fleets import fleet_of_machines

if TYPE_CHECKING:
    from collections.abc import Callable

    from partitions.vipu.client import VipuClient
    from partitions.vipu.server.main import VipuServer

    from .conftest import Clock


Started = tuple["VipuServer", int]


async def states(client: VipuClient, partition: str) -> tuple[ReadyState, OperationState]:
    status = await client.partition_status(partition)
    return status.ready_state, status.operation_state


async def test_a_partition_is_pending_until_the_creation_latency_is_over(
    client: VipuClient, clock: Clock
) -> None:
    assert await client.create_partition(CreateRequest("p", 4)) == "p"
    assert await states(client, "p") == (ReadyState.PENDING, OperationState.CREATING)
    clock.forward(0.49)
    assert await states(client, "p") == (ReadyState.PENDING, OperationState.CREATING)
    clock.forward(0.01)
    assert await states(client, "p") == (ReadyState.ACTIVE, OperationState.IDLE)
    (listed,) = await client.list_partitions()
    assert (listed.id, listed.size, listed.ready_state) == ("p", 4, ReadyState.ACTIVE)
    assert (listed.cluster_id, listed.allocation_id) == ("default", "default")
    assert (listed.num_gcds, listed.num_replicas, listed.reconfigurable) == (1, 1, False)


async def test_a_clock_that_was_set_back_does_not_hold_a_partition_up(
    client: VipuClient, clock: Clock
) -> None:
    await client.create_partition(CreateRequest("p", 4))
    clock.forward(-3600)
    assert await states(client, "p") == (ReadyState.ACTIVE, OperationState.IDLE)


async def test_a_reset_keeps_the_ipus_and_ends_after_its_latency(
    client: VipuClient, clock: Clock
) -> None:
    await client.create_partition(CreateRequest("p", 8))
    clock.forward(1)
    before = await client.list_partitions()
    await client.reset_partition("p")
    assert await states(client, "p") == (ReadyState.PENDING, OperationState.RESETTING)
    clock.forward(0.2)
    assert await states(client, "p") == (ReadyState.ACTIVE, OperationState.IDLE)
    assert await client.list_partitions() == before


async def test_a_reset_during_creation_does_not_prolong_it(
    client: VipuClient, clock: Clock
) -> None:
    await client.create_partition(CreateRequest("p", 8))
    clock.forward(0.4)
    await client.reset_partition("p")
    assert await states(client, "p") == (ReadyState.PENDING, OperationState.CREATING)
    clock.forward(0.1)
    assert await states(client, "p") == (ReadyState.ACTIVE, OperationState.IDLE)


@pytest.mark.parametrize("force", [False, True])
async def test_a_removed_partition_is_gone_and_its_ipus_are_free(
    client: VipuClient, force: bool
) -> None:
    await client.create_partition(CreateRequest("p", 32))
    await client.remove_partition("p", force=force)
    assert await client.list_partitions() == []
    with pytest.raises(NotFound, match="no partition 'p'"):
        await client.partition_status("p")
    await client.create_partition(CreateRequest("q", 32))


@pytest.mark.parametrize("ask", ["partition_status", "reset_partition", "remove_partition"])
async def test_asking_about_an_unknown_partition_says_not_found(
    client: VipuClient, ask: str
) -> None:
    with pytest.raises(NotFound) as caught:
        await getattr(client, ask)("nobody")
    assert not caught.value.retryable


async def test_a_second_partition_of_the_same_id_is_refused_and_the_first_stays(
    client: VipuClient,
) -> None:
    await client.create_partition(CreateRequest("p", 4))
    with pytest.raises(AlreadyExists, match="p exists already"):
        await client.create_partition(CreateRequest("p", 8))
    assert [one.size for one in await client.list_partitions()] == [4]


async def test_no_capacity_says_how_much_was_needed_and_how_much_is_free(
    client: VipuClient,
) -> None:
    await client.create_partition(CreateRequest("a", 16))
    await client.create_partition(CreateRequest("b", 4))
    with pytest.raises(NoCapacity) as caught:
        await client.create_partition(CreateRequest("c", 16))
    assert "c needs 16 IPUs in one block; 12 of 32 are free" in str(caught.value)
    assert "largest free block has 8" in str(caught.value)
    assert caught.value.retryable
    assert len(await client.list_partitions()) == 2


REFUSED = [
    (CreateRequest("", 4), "partition id ''"),
    (CreateRequest("-p", 4), "letter or digit first"),
    (CreateRequest("p" * 64, 4), "1 to 63"),
    (CreateRequest("p q", 4), "1 to 63 letters"),
    (CreateRequest("p", 0), "at least 1"),
    (CreateRequest("p", 3), "2 or 4, not 3"),
    (CreateRequest("p", 128), "at most 64"),
    (CreateRequest("p", 64, num_ipulink_segments=2), "one IPU-Link domain"),
    (CreateRequest("p", 4, num_gcds=3), "num_gcds 3 does not divide"),
    (CreateRequest("p", 4, num_gcds=8), "num_gcds 8 does not divide"),
    (CreateRequest("p", 4, num_gcds=2, num_replicas=3), "num_replicas 3"),
    (CreateRequest("p", 4, num_replicas=8), "at most one for each of its 4"),
    (
        CreateRequest("p", 4, sync_type=SyncType.GS2_INDEPENDENT_RAILS),
        "RAILS is not supported; use",
    ),
    (
        CreateRequest("p", 4, reconfigurable=True, sync_type=SyncType.POD_NATIVE_DEFAULT),
        "reconfigurable",
    ),
    (CreateRequest("p", 4, cluster_id="other"), "cluster 'other' does not exist"),
    (CreateRequest("p", 4, allocation_id="other"), "allocation 'other' does not exist"),
    (CreateRequest("p", 2, ipus=(IpuId(0, 0), IpuId(0, 1))), "need a cluster_id"),
    (CreateRequest("p", 4, cluster_id="default", ipus=(IpuId(0, 0),)), "but 1 ipus"),
    (CreateRequest("p", 1, cluster_id="default", ipus=(IpuId(7, 0),)), "no IPU 0 in"),
    (
        CreateRequest("p", 2, cluster_id="default", ipus=(IpuId(0, 1), IpuId(0, 2))),
        "multiple of 2",
    ),
]


@pytest.mark.parametrize(("request_", "want"), REFUSED, ids=[want for _, want in REFUSED])
async def test_a_request_that_can_never_work_is_refused_in_words_and_takes_nothing(
    client: VipuClient, request_: CreateRequest, want: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await client.create_partition(request_)
    assert want in str(caught.value)
    assert not caught.value.retryable
    assert await client.list_partitions() == []


async def test_explicit_ipus_are_taken_in_the_order_of_their_routing_ids(
    client: VipuClient,
) -> None:
    ipus = (IpuId(0, 5, "default"), IpuId(0, 4, "default"))
    await client.create_partition(CreateRequest("p", 2, cluster_id="default", ipus=ipus))
    (listed,) = await client.list_partitions()
    assert listed.ipus == ipus
    with pytest.raises(NoCapacity, match="held by p"):
        await client.create_partition(
            CreateRequest("q", 1, cluster_id="default", ipus=(IpuId(0, 4),))
        )


async def test_gcds_replicas_and_reconfigurable_are_kept(client: VipuClient) -> None:
    await client.create_partition(
        CreateRequest(
            "p",
            8,
            num_gcds=2,
            num_replicas=4,
            reconfigurable=True,
            cluster_id="default",
            allocation_id="default",
        )
    )
    (listed,) = await client.list_partitions()
    assert (listed.num_gcds, listed.num_replicas, listed.reconfigurable) == (2, 4, True)


async def test_partitions_of_an_unknown_allocation_cannot_be_listed(client: VipuClient) -> None:
    await client.create_partition(CreateRequest("p", 1))
    assert len(await client.list_partitions("default")) == 1
    with pytest.raises(InvalidRequest, match="does not exist"):
        await client.list_partitions("other")


async def test_the_fleet_of_the_client_is_the_fleet_of_the_server(
    client: VipuClient, published_only: bool
) -> None:
    known = await client.list_ipu_attributes()
    assert {ipu.hardware.board_type for ipu in known.ipus} == {"M2000"}
    fleet = replace(known, ipus=tuple(replace(ipu, hardware=Hardware()) for ipu in known.ipus))
    if published_only:
        assert fleet == replace(fleet_of_machines(8), is_guess=True)
        await client.create_partition(CreateRequest("all", 32))
        fleet = replace(with_places(fleet, await client.list_partitions()), is_guess=False)
    assert fleet == fleet_of_machines(8, cluster="default", allocation="default")


async def test_two_clusters_number_their_domains_each_from_0(
    start_server: Callable[..., Started],
) -> None:
    from partitions.vipu.client import VipuClient

    _, port = start_server(machines=4, cluster="one,two", allocation="a,b")
    async with VipuClient(f"127.0.0.1:{port}") as client:
        for name in ("p", "q"):
            await client.create_partition(CreateRequest(name, 16))
        first, second = await client.list_partitions()
        assert (first.cluster_id, first.allocation_id) == ("one", "a")
        assert (second.cluster_id, second.allocation_id) == ("two", "b")
        assert {(ipu.domain, ipu.position) for ipu in first.ipus} == {
            (ipu.domain, ipu.position) for ipu in second.ipus
        }
        fleet = with_places(await client.list_ipu_attributes(), [first, second])
        assert free_blocks(fleet, {*first.ipus, *second.ipus}) == ()
        with pytest.raises(NoCapacity):
            await client.create_partition(CreateRequest("r", 1))


@pytest.mark.parametrize(("clusters", "allocations"), [("a,b", "x"), ("a,b", "x,x"), ("a", "x,y")])
def test_a_cluster_is_named_for_each_allocation(
    start_server: Callable[..., Started], clusters: str, allocations: str
) -> None:
    with pytest.raises(ValueError, match="one cluster for each allocation"):
        start_server(cluster=clusters, allocation=allocations)


async def test_what_the_client_counts_as_fitting_is_what_can_be_created(
    client: VipuClient,
) -> None:
    await client.create_partition(CreateRequest("a", 2))
    await client.create_partition(CreateRequest("b", 8))
    fleet = with_places(await client.list_ipu_attributes(), await client.list_partitions())
    used = [ipu for one in await client.list_partitions() for ipu in one.ipus]
    fitting = count_fitting(free_blocks(fleet, used), 4)
    for number in range(fitting):
        await client.create_partition(CreateRequest(f"c{number}", 4))
    with pytest.raises(NoCapacity):
        await client.create_partition(CreateRequest("over", 4))


async def test_the_ipuof_configuration_lists_the_devices_of_each_gcd(
    client: VipuClient, clock: Clock
) -> None:
    await client.create_partition(CreateRequest("p", 8, num_gcds=2))
    with pytest.raises(NotReady, match="PENDING") as caught:
        await client.ipuof_config("p")
    assert caught.value.retryable
    clock.forward(1)
    config = await client.ipuof_config("p")
    assert [len(gcd.devices) for gcd in config.gcds] == [4, 4]
    devices = [device for gcd in config.gcds for device in gcd.devices]
    assert [device.routing_id for device in devices] == list(range(8))
    assert [device.device_id for device in devices] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert len({device.ip for device in devices}) == 2  # two IPU-Machines
    assert len({(device.ip, device.server_port) for device in devices}) == 8
    assert len({(device.ip, device.rdma_port) for device in devices}) == 8
    assert len({device.chip_id for device in devices}) == 8
    assert config.routing is IpuLinkRouting.DNC
    assert config.sync_type is SyncType.GS2_DEFAULT
    second = await client.ipuof_config("p", 1)
    assert second.gcds == config.gcds[1:]
    assert second.gcds[0].attributes["gcd id"] == "1"
    assert (await client.ipuof_config("p", 0)).gcds == config.gcds[:1]
    with pytest.raises(InvalidRequest, match="GCDs 0 to 1, not 2"):
        await client.ipuof_config("p", 2)


async def test_sixty_four_creates_at_once_share_the_fleet_without_overlap(
    start_server: Callable[..., Started], clock: Clock
) -> None:
    from partitions.vipu.client import VipuClient

    _, port = start_server(machines=32)  # 128 IPUs
    async with VipuClient(f"127.0.0.1:{port}") as client:
        requests = [CreateRequest(f"p{number}", 2) for number in range(64)]
        await asyncio.gather(*(client.create_partition(one) for one in requests))
        listed = await client.list_partitions()
        ipus = [ipu for one in listed for ipu in one.ipus]
        assert len(listed) == 64
        assert len(set(ipus)) == 128
        fleet = with_places(await client.list_ipu_attributes(), listed)
        assert all(is_buddy_block(fleet, one.ipus) for one in listed)


async def test_of_sixty_four_creates_of_one_id_exactly_one_wins(client: VipuClient) -> None:
    async def create() -> str:
        try:
            return await client.create_partition(CreateRequest("p", 1))
        except AlreadyExists:
            return ""

    won = await asyncio.gather(*(create() for _ in range(64)))
    assert won.count("p") == 1
    assert len(await client.list_partitions()) == 1


async def test_the_version_service_answers(client: VipuClient) -> None:
    from importlib.metadata import version

    assert await client.version() == version("ipuhub")


async def test_a_list_shows_each_change_since_the_list_before(
    client: VipuClient, clock: Clock
) -> None:
    async def listed() -> dict[str, tuple[int, ReadyState]]:
        return {p.id: (p.size, p.ready_state) for p in await client.list_partitions()}

    await client.create_partition(CreateRequest("p", 4))
    assert await listed() == {"p": (4, ReadyState.PENDING)}
    clock.forward(1)
    assert await listed() == {"p": (4, ReadyState.ACTIVE)}
    await client.reset_partition("p")
    assert await listed() == {"p": (4, ReadyState.PENDING)}
    clock.forward(1)
    assert await listed() == {"p": (4, ReadyState.ACTIVE)}
    await client.remove_partition("p")
    await client.create_partition(CreateRequest("p", 8))
    clock.forward(1)
    await client.create_partition(CreateRequest("q", 1))
    assert await listed() == {"p": (8, ReadyState.ACTIVE), "q": (1, ReadyState.PENDING)}
    assert await client.list_partitions(allocation_id="default") == await client.list_partitions()
