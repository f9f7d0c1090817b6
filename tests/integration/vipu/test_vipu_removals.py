"""A removal over real vipu-agents: PENDING and REMOVING until the machines have freed the IPUs."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.agent.client import AgentClient
from partitions.vipu.agent.machine import Fault, FaultKind, PartitionState
from partitions.vipu.cli import admin
from partitions.vipu.cli.main import main as vipu_main
from partitions.vipu.client import CreateRequest, OperationState, ReadyState, VipuClient
from partitions.vipu.errors import NoCapacity, NotFound
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.options import ServerOptions
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually
from tests.integration.vipu.agentmachines import state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.integration.vipu.agentmachines import Machine

SLOW = Fault(FaultKind.SLOW_RESET, seconds=80_000)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., VipuServer]]:
    """start(machines, **options) -> a vipu-server over them; stopped at the end."""
    servers: list[VipuServer] = []

    def start(machines: list[Machine], **options: object) -> VipuServer:
        defaults = {
            "storage": tmp_path / "vipu-server.json",
            "port": free_port(),
            "admin_port": 0,
            "agents": ",".join(each.address for each in machines),
            "agent_lost_seconds": 80.0,
        }
        server = VipuServer(ServerOptions(**{**defaults, **options}))
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.stop()


def client(server: VipuServer) -> VipuClient:
    return VipuClient(f"127.0.0.1:{server._options.port}", deadline_seconds=60)


async def active(vipu: VipuClient, name: str, size: int) -> None:
    await vipu.create_partition(CreateRequest(name, size))
    await eventually(lambda: state_of(vipu, name), lambda state: state is ReadyState.ACTIVE)


def command(capsys: pytest.CaptureFixture[str], program: str, port: int, *words: str) -> str:
    run = vipu_main if program == "vipu" else admin.main
    assert run([*words, "-H", "127.0.0.1", "--api-port", str(port)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


async def test_a_partition_whose_machine_resets_slowly_shows_that_it_is_being_removed(
    machines: Callable[..., list[Machine]],
    start: Callable[..., VipuServer],
    capsys: pytest.CaptureFixture[str],
) -> None:
    fast, slow = machines(2)
    server = start([fast, slow])
    port, admin_port = server._options.port, server.admin_port
    assert admin_port is not None
    async with client(server) as vipu, AgentClient(slow.address, deadline_seconds=60) as agent:
        await active(vipu, "p", 8)
        await agent.inject(SLOW)
        await vipu.remove_partition("p")
        await eventually(slow.states, lambda states: states == [PartitionState.RELEASING])
        await eventually(fast.names, lambda names: names == [])

        status = await vipu.partition_status("p")
        assert status.ready_state is ReadyState.PENDING
        assert status.operation_state is OperationState.REMOVING
        assert not status.is_faulty
        (listed,) = await vipu.list_partitions()
        assert listed.ready_state is ReadyState.PENDING
        with pytest.raises(NoCapacity):
            await vipu.create_partition(CreateRequest("q", 1))
        capsys.readouterr()

        def ask(program: str, port: int, *words: str) -> str:
            return command(capsys, program, port, *words)

        wide = await asyncio.to_thread(ask, "vipu", port, "list", "partitions", "-o", "wide")
        (row,) = [line for line in wide.splitlines() if line.startswith(" p ")]
        assert row.endswith("| REMOVING")
        text = await asyncio.to_thread(ask, "vipu", port, "list", "partitions", "-o", "json")
        (one,) = json.loads(text[text.index("[\n") :])
        assert one["partition"]["ready_state"] == "PS_PENDING"
        assert one["status"]["operation_state"] == "POS_REMOVING"
        output = await asyncio.to_thread(ask, "vipu", port, "get", "partition", "p")
        assert "| REMOVING" in output
        seen = await asyncio.to_thread(
            ask, "vipu-admin", admin_port, "list", "partitions", "-o", "wide"
        )
        assert "| PENDING | REMOVING " in seen
        events = await asyncio.to_thread(ask, "vipu-admin", admin_port, "list", "events")
        assert "partition is being removed" in events
        assert "partition removed" not in events

        slow.kill()
        slow.start()
        await eventually(vipu.list_partitions, lambda found: found == [])
        with pytest.raises(NotFound):
            await vipu.partition_status("p")
        assert [one.what for one in server.controller.events.last()[0]].count(
            "partition removed"
        ) == 1


async def test_vipu_remove_waits_for_the_machines_unless_it_is_told_not_to(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    (machine,) = machines(1)
    server = start([machine])
    words = ["remove", "partition", "p", "-H", "127.0.0.1", "--api-port"]
    words.append(str(server._options.port))
    async with client(server) as vipu:
        await active(vipu, "p", 4)
        assert await asyncio.to_thread(vipu_main, words) == 0
        assert await vipu.list_partitions() == []
        async with AgentClient(machine.address, deadline_seconds=60) as agent:
            await active(vipu, "p", 4)
            await agent.inject(SLOW)
        assert await asyncio.to_thread(vipu_main, [*words, "--no-wait"]) == 0
        status = await vipu.partition_status("p")
        assert status.operation_state is OperationState.REMOVING
        assert await asyncio.to_thread(vipu_main, [*words, "--force"]) == 0
        assert await vipu.list_partitions() == []


async def test_nobody_waits_for_a_lost_agent_which_frees_its_ipus_once_it_is_back(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    healthy, hung = machines(2)
    for each in (healthy, hung):  # a busy machine must not lose them before
        assert await each.names() == []
    async with client(start([healthy, hung], agent_lost_seconds=4.0)) as vipu:
        await active(vipu, "p", 8)
        async with AgentClient(hung.address, deadline_seconds=60) as agent:
            await agent.inject(Fault(FaultKind.HANG))
            await vipu.remove_partition("p")
            assert (await vipu.partition_status("p")).operation_state is OperationState.REMOVING
            await eventually(vipu.list_partitions, lambda found: found == [])
            await agent.repair()
        await eventually(hung.names, lambda names: names == [])


async def test_without_agents_a_restarted_server_ends_what_they_were_to_confirm(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    (machine,) = machines(1)
    server = start([machine])
    async with client(server) as vipu, AgentClient(machine.address, deadline_seconds=60) as agent:
        await active(vipu, "p", 2)
        await agent.inject(SLOW)
        await vipu.remove_partition("p")
        await agent.inject(Fault(FaultKind.HANG))
        await vipu.create_partition(CreateRequest("q", 2))
    server.stop()
    again = start([], agents="")
    async with client(again) as vipu:
        (left,) = await vipu.list_partitions()
        assert (left.id, left.ready_state) == ("q", ReadyState.ACTIVE)
