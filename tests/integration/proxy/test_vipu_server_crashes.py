"""vipu-server dies before or after any write of its state file while the proxy keeps running: no
partition is lost, doubled or orphaned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import pytest

from partitions.vipu.errors import NoAnswer, Unavailable
from partitions.vipu.server.controller import Controller, Latencies
from partitions.vipu.server.statefile import StateFile
from partitions.vipu.topology import topology_from_attributes
from partitions.vipu.types import VipuPartition, VipuStatus
from tests.builders.fleets import fleet_of_machines
from tests.fakes.vipu import FakeVipu
from tests.integration.proxy.conftest import World, request
from tests.integration.proxy.test_partition_crashes import (
    check_nothing_leaks,
    come_and_go,
    come_back,
    reserve,
    restart,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from partitions.proxy.service import PartitionService
    from partitions.vipu.server.records import PartitionRecord
    from partitions.vipu.server.state import State, Stored
    from partitions.vipu.topology import Topology
    from partitions.vipu.types import CreateRequest

_Answer = TypeVar("_Answer")
AT_ONCE = Latencies(create=timedelta(), reset=timedelta())


@dataclass
class Death:
    """Comes at write number `at` of the state file: before it, or between it and the answer."""

    at: int
    is_written: bool
    writes: int = 0
    came: bool = False


class MortalStateFile(StateFile):
    """A state file whose process dies."""

    def __init__(self, path: Path, death: Death) -> None:
        super().__init__(path)
        self._death = death

    def save(self, changes: Sequence[Stored], state: State) -> None:
        death = self._death
        death.writes += 1
        dies = death.writes == death.at
        if not dies or death.is_written:
            super().save(changes, state)
        if dies:
            death.came = True
            raise OSError("the process is dead")


class MortalVipu(FakeVipu):
    """A vipu-server that restarts from its state file after its death."""

    def __init__(self, path: Path, death: Death, world: World) -> None:
        super().__init__()
        self._path, self._death, self._world = path, death, world
        self._start()

    def _start(self) -> None:
        fleet = fleet_of_machines(8, cluster="c", allocation="a")
        file = MortalStateFile(self._path, self._death)
        self.controller = Controller(fleet, file, AT_ONCE, lambda: self._world.now)

    async def _ask(self, call: Callable[[Controller], _Answer]) -> _Answer:
        await self._arrive()
        try:
            return call(self.controller)
        except Unavailable as error:
            self._start()
            raise NoAnswer("the server is gone") from error

    @property
    def records(self) -> Mapping[str, PartitionRecord]:
        return self.controller.state.partitions

    async def list_partitions(self) -> list[VipuPartition]:
        now = self._world.now
        return [
            VipuPartition(
                one.id,
                len(one.ipus),
                one.ipus,
                one.ready_state(now),
                cluster_id=one.cluster,
                allocation_id=one.allocation,
            )
            for one in await self._ask(lambda controller: controller.list())
        ]

    async def list_ipu_attributes(self) -> Topology:
        attributes = await self._ask(
            lambda controller: controller.attributes([], published_only=False)
        )
        return topology_from_attributes(attributes)

    async def create_partition(self, request: CreateRequest) -> str:
        return (await self._ask(lambda controller: controller.create(request))).id

    async def partition_status(self, partition_id: str) -> VipuStatus:
        one, now = await self._ask(lambda controller: controller.get(partition_id)), self._world.now
        return VipuStatus(one.id, one.ready_state(now), one.operation_state(now), one.errors)

    async def reset_partition(self, partition_id: str) -> None:
        await self._ask(lambda controller: controller.reset(partition_id))

    async def remove_partition(self, partition_id: str, *, force: bool = False) -> None:
        await self._ask(lambda controller: controller.remove(partition_id, force=force))


@pytest.mark.parametrize("is_written", [False, True], ids=["before the write", "after it"])
@pytest.mark.parametrize("story", [reserve, restart, come_and_go, come_back])
async def test_a_server_that_dies_at_any_write_of_its_state_leaves_nothing_behind(
    story: Callable[[PartitionService], Awaitable[None]], tmp_path: Path, is_written: bool
) -> None:
    for number in range(1, 20):
        death, world = Death(number, is_written), World()
        server = MortalVipu(tmp_path / f"{number}.json", death, world)
        world.vipus["v1:8090"] = server
        async with world.process() as proxy:
            await story(proxy.service)
            if not death.came:
                break
            await proxy.sweep.once()
            server.partitions = dict(server.records)  # type: ignore[arg-type]
            check_nothing_leaks(world)
            assert all(entry.phase.is_settled for entry in world.entries()), number
            record = await proxy.service.ensure(request(attempt=5))
            assert record.phase == "active", (number, record)
            assert list(server.records) == [record.id]
            await proxy.service.release("uid-job", 0)
            assert dict(server.records) == {}
    else:
        pytest.fail("the story writes more often than it was let die")
    assert number > 1
