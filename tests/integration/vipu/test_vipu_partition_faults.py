"""Faults of partitions through the client and a real server: ERROR, auto-reset, a full disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from partitions.vipu.errors import VipuError
from partitions.vipu.types import CreateRequest, OperationState, ReadyState

if TYPE_CHECKING:
    from pathlib import Path

    from partitions.vipu.client import VipuClient
    from partitions.vipu.server.main import VipuServer

    from .conftest import Clock


Started = tuple["VipuServer", int]


async def states(client: VipuClient, partition: str) -> tuple[ReadyState, OperationState]:
    status = await client.partition_status(partition)
    return status.ready_state, status.operation_state


async def test_a_fault_puts_a_partition_in_error_until_it_is_reset(
    server: Started, client: VipuClient, clock: Clock
) -> None:
    await client.create_partition(CreateRequest("p", 4))
    clock.forward(1)
    server[0].controller.report_fault("p", "IPU 2 of ag0 does not answer")
    server[0].controller.report_fault("p", "IPU 2 of ag0 does not answer")
    status = await client.partition_status("p")
    assert (status.ready_state, status.operation_state) == (
        ReadyState.ERROR,
        OperationState.FAILED,
    )
    assert status.errors == ("IPU 2 of ag0 does not answer",)
    assert status.max_auto_resets == 0
    await client.reset_partition("p")
    clock.forward(1)
    assert await states(client, "p") == (ReadyState.ACTIVE, OperationState.IDLE)
    assert (await client.partition_status("p")).errors == ()


async def test_with_auto_reset_the_first_three_faults_reset_by_themselves(
    server: Started, client: VipuClient, clock: Clock
) -> None:
    await client.create_partition(CreateRequest("p", 4, auto_reset=True))
    for count in (1, 2, 3):
        clock.forward(1)
        server[0].controller.report_fault("p", "link down")
        status = await client.partition_status("p")
        assert status.operation_state is OperationState.RESETTING
        assert (status.auto_resets, status.max_auto_resets) == (count, 3)
        assert status.last_auto_reset == clock()
    clock.forward(1)
    server[0].controller.report_fault("p", "link down")
    assert await states(client, "p") == (ReadyState.ERROR, OperationState.FAILED)


async def test_a_partition_in_error_can_be_removed(server: Started, client: VipuClient) -> None:
    await client.create_partition(CreateRequest("p", 4))
    server[0].controller.report_fault("p", "link down")
    await client.remove_partition("p")
    assert await client.list_partitions() == []


async def test_nothing_is_created_when_the_state_file_cannot_be_written(
    client: VipuClient, storage: Path
) -> None:
    storage.parent.rename(storage.parent.with_name("gone"))
    with pytest.raises(VipuError, match="cannot write its state file") as caught:
        await client.create_partition(CreateRequest("p", 4))
    assert caught.value.retryable
    assert await client.list_partitions() == []
    storage.parent.with_name("gone").rename(storage.parent)
    await client.create_partition(CreateRequest("p", 4))
