"""A vipu-agent as a process that tests kill, stop and start again."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from partitions.vipu.agent.client import AgentClient
from tests.fakes.forked import forked
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    import signal
    from multiprocessing.context import ForkServerProcess

    from partitions.vipu.agent.machine import Inventory, MachinePartition, Order, PartitionState
    from partitions.vipu.client import ReadyState, VipuClient


class Machine:
    """One vipu-agent process, that can be killed, stopped and started again."""

    def __init__(self, latency: float, *options: str) -> None:
        self.port, self.exporter_port, self.latency = free_port(), free_port(), latency
        self.options = options
        self.process: ForkServerProcess | None = None
        self.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        command = ["-m", "partitions.vipu.agent.main", "--port", str(self.port)]
        command += ["--exporter-port", str(self.exporter_port), "--agent", f"m{self.port}"]
        for what in ("configure", "reset"):
            command += [f"--{what}-latency-seconds", str(self.latency)]
        nowhere = Path(os.devnull)
        self.process = forked([*command, *self.options], Path.cwd(), os.environ, nowhere)

    def listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.join()

    async def partitions(self) -> tuple[MachinePartition, ...]:
        async with AgentClient(self.address, deadline_seconds=60) as agent:
            return (await agent.health()).partitions

    async def inventory(self) -> Inventory:
        async with AgentClient(self.address, deadline_seconds=60) as agent:
            return await agent.inventory()

    async def states(self) -> list[PartitionState]:
        return [each.state for each in await self.partitions()]

    async def names(self) -> list[str]:
        return [each.configuration.partition for each in await self.partitions()]


async def state_of(vipu: VipuClient, name: str) -> ReadyState:
    return (await vipu.partition_status(name)).ready_state


async def order(agent: AgentClient, wanted: Order) -> None:
    """Have a machine begin this order; raises what it says against it."""
    for refusal in (await agent.follow(wanted)).refusals.values():
        raise refusal
