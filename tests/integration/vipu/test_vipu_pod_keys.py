"""The key of a pod: it reads and resets its own partition, and nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from partitions.vipu.client import CreateRequest, VipuClient
from partitions.vipu.errors import NotFound, NotReady, Refused, Unauthenticated
from partitions.vipu.types import OperationState
from tests.fakes.vipu import let_ipu_fail

if TYPE_CHECKING:
    from collections.abc import Callable

    from partitions.vipu.server.main import VipuServer
    from tests.integration.vipu.conftest import Clock
    from tests.integration.vipu.securesite import Site

    Start = Callable[..., tuple[VipuServer, int]]


@pytest.fixture
def published_only() -> bool:
    return False


async def test_a_pods_key_ends_with_its_partition(site: Site) -> None:
    async with site.vipu(site.alice) as alice, site.vipu(site.pod) as pod:
        assert (await pod.ipuof_config("p1")).gcds
        newer = await alice.create_partition_key("p1")
        assert newer is not None
        with pytest.raises(Unauthenticated):
            await pod.partition_status("p1")
        await alice.remove_partition("p1")
        await alice.create_partition(CreateRequest("p1", 1))
        async with site.vipu(newer) as late:
            with pytest.raises(Unauthenticated):
                await late.partition_status("p1")


async def test_a_pod_may_reset_its_own_partition_and_goes_on_with_its_key(
    site: Site, clock: Clock
) -> None:
    async with site.vipu(site.pod) as pod:
        await pod.reset_partition("p1")
        assert (await pod.partition_status("p1")).operation_state is OperationState.RESETTING
        clock.forward(60)
        assert (await pod.partition_status("p1")).is_usable
        with pytest.raises(NotFound):
            await pod.reset_partition("p0")  # of the same user
        with pytest.raises(Refused, match="reads and resets the partition p1 and nothing else"):
            await pod.remove_partition("p1")


async def test_a_pod_moves_its_partition_to_no_other_ipus(site: Site, clock: Clock) -> None:
    controller = site.server.controller
    ipu = let_ipu_fail(controller, "p1", "hot")
    before = controller.get("p1").ipus
    async with site.vipu(site.pod) as pod:
        with pytest.raises(
            NotReady, match="cannot be reset: ag0: hot. End this attempt"
        ) as refusal:
            await pod.reset_partition("p1")
        assert not re.search("Remove|--relocatable", str(refusal.value))  # a pod may do neither
        with pytest.raises(Refused, match="reads and resets the partition p1 and nothing else"):
            await pod.reset_partition("p1", relocatable=True)
        assert controller.get("p1").ipus == before
        controller.heal_ipu(ipu.agent, ipu.index)
        await pod.reset_partition("p1", relocatable=True)  # has no effect where nothing is broken
        clock.forward(60)
        assert (await pod.partition_status("p1")).is_usable
    assert controller.get("p1").ipus == before
    let_ipu_fail(controller, "p1", "hot")
    async with site.vipu(site.alice) as alice:
        await alice.reset_partition("p1", relocatable=True)
    assert set(before).isdisjoint(controller.get("p1").ipus)


async def test_a_pod_moves_no_relocatable_partition_either(site: Site) -> None:
    controller = site.server.controller
    async with site.vipu(site.alice) as alice:
        await alice.create_partition(CreateRequest("r", 1, allocation_id="a", relocatable=True))
        key = await alice.create_partition_key("r")
        controller.cordon("ag1", "")  # the other machine is full
        let_ipu_fail(controller, "r", "hot")
        async with site.vipu(key) as pod:
            with pytest.raises(NotReady, match="r cannot be reset: ag1: hot. End this attempt"):
                await pod.reset_partition("r")
        with pytest.raises(NotReady, match="r cannot be reset: ag1: hot. It cannot move"):
            await alice.reset_partition("r")


async def test_an_insecure_server_has_no_keys_for_pods(start_server: Start) -> None:
    _, port = start_server()
    async with VipuClient(f"127.0.0.1:{port}") as client:
        await client.create_partition(CreateRequest("p1", 1))
        with capture_logs() as entries:
            assert await client.create_partition_key("p1") is None
            assert await client.create_partition_key("p1") is None
    assert [line["controller"] for line in entries] == [f"127.0.0.1:{port}"]
