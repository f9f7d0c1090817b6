"""Agents and controller, killed with kill -9 while partitions come and go."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import grpc
import pytest

from partitions.vipu.agent.client import AgentClient
from partitions.vipu.agent.machine import Fault, FaultKind, PartitionState
from partitions.vipu.client import CreateRequest, OperationState, ReadyState, VipuClient
from partitions.vipu.errors import NoCapacity
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually
from tests.integration.vipu.agentmachines import state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.vipu.agentmachines import Machine


class ServerProcess:
    """A vipu-server process over these machines, that can be killed and started again."""

    def __init__(self, storage: Path, machines: list[Machine]) -> None:
        self.port = free_port()
        self._command = [sys.executable, "-m", "partitions.vipu.server.main"]
        self._command += ["--port", str(self.port), "--storage", str(storage)]
        self._command += ["--agents", ",".join(each.address for each in machines)]
        self._command += ["--agent-lost-seconds", "80"]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL)
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=90)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def server_process(
    tmp_path: Path, machines: Callable[..., list[Machine]]
) -> Iterator[tuple[ServerProcess, list[Machine]]]:
    both = machines(2)
    process = ServerProcess(tmp_path / "killed.json", both)
    yield process, both
    process.kill()


async def test_agents_and_controller_killed_at_work_agree_in_the_end(
    server_process: tuple[ServerProcess, list[Machine]],
) -> None:
    process, both = server_process
    async with VipuClient(f"127.0.0.1:{process.port}", deadline_seconds=60) as vipu:
        for number in range(12):
            await vipu.create_partition(CreateRequest(f"p{number}", 1))
            if number % 4 == 3:
                both[number % 8 // 4].kill()
                both[number % 8 // 4].start()
            if number % 3:
                await vipu.remove_partition(f"p{number}")
            if number % 5 == 4:
                process.kill()
                await asyncio.to_thread(process.start)
        left = {"p0", "p3", "p6", "p9"}

        async def listed() -> set[str]:
            return {each.id for each in await vipu.list_partitions()}

        await eventually(listed, lambda found: found == left)
        for name in left:
            await eventually(
                lambda name=name: state_of(vipu, name), lambda state: state is ReadyState.ACTIVE
            )

    async def names() -> list[str]:
        return sorted([name for each in both for name in await each.names()])

    await eventually(names, lambda found: found == sorted(left))


async def test_a_removal_goes_on_in_a_controller_that_was_killed_in_the_middle_of_it(
    server_process: tuple[ServerProcess, list[Machine]],
) -> None:
    process, both = server_process
    slow = both[1]
    async with (
        VipuClient(f"127.0.0.1:{process.port}", deadline_seconds=60) as vipu,
        AgentClient(slow.address, deadline_seconds=60) as agent,
    ):
        await vipu.create_partition(CreateRequest("p", 8))
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ACTIVE)
        await agent.inject(Fault(FaultKind.SLOW_RESET, seconds=80_000))
        await vipu.remove_partition("p")
        await eventually(slow.states, lambda states: states == [PartitionState.RELEASING])
        process.kill()
        await asyncio.to_thread(process.start)
        status = await vipu.partition_status("p")
        assert status.ready_state is ReadyState.PENDING
        assert status.operation_state is OperationState.REMOVING
        await eventually(both[0].names, lambda names: names == [])
        assert await refused(vipu, CreateRequest("q", 8))  # its IPUs are not free
        slow.kill()  # what it began is over with the power
        slow.start()
        await eventually(vipu.list_partitions, lambda found: found == [])
        await vipu.create_partition(CreateRequest("q", 8))
        await eventually(lambda: state_of(vipu, "q"), lambda state: state is ReadyState.ACTIVE)


async def refused(vipu: VipuClient, request: CreateRequest) -> bool:
    try:
        await vipu.create_partition(request)
    except NoCapacity:
        return True
    return False
