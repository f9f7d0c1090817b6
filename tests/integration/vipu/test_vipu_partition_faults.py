"""Partitions in ERROR and a full disk, through the client and a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from partitions.vipu.errors import NotStored
from partitions.vipu.types import CreateRequest
from tests.fakes.vipu import let_ipu_fail

if TYPE_CHECKING:
    from pathlib import Path

    from partitions.vipu.client import VipuClient
    from partitions.vipu.server.main import VipuServer


Started = tuple["VipuServer", int]


async def test_a_partition_in_error_can_be_removed(server: Started, client: VipuClient) -> None:
    await client.create_partition(CreateRequest("p", 4))
    let_ipu_fail(server[0].controller, "p", "link down")
    await client.remove_partition("p")
    assert await client.list_partitions() == []


async def test_nothing_is_created_when_the_state_file_cannot_be_written(
    client: VipuClient, storage: Path
) -> None:
    storage.parent.rename(storage.parent.with_name("gone"))
    with pytest.raises(NotStored, match="cannot write its state file"):
        await client.create_partition(CreateRequest("p", 4))
    assert await client.list_partitions() == []
    storage.parent.with_name("gone").rename(storage.parent)
    await client.create_partition(CreateRequest("p", 4))
