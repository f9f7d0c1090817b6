"""The IPUoF ports of simulated machines: open while a partition has them, asked before ACTIVE."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from partitions.vipu.agent.client import AgentClient
from partitions.vipu.agent.ipuof import IpuofPorts
from partitions.vipu.agent.machine import Fault, FaultKind
from partitions.vipu.cli.admin import main as vipu_admin
from partitions.vipu.client import CreateRequest, OperationState, ReadyState
from partitions.vipu.serving import ListenError
from tests.fakes.waiting import eventually
from tests.integration.vipu.agentmachines import state_of
from tests.integration.vipu.test_vipu_removals import active, client, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from partitions.vipu.client import VipuClient
    from partitions.vipu.server.main import VipuServer
    from tests.integration.vipu.agentmachines import Machine

__all__ = ["start"]


async def is_open(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except ConnectionResetError:
        return True  # accepted, and already over
    except OSError:
        return False
    writer.close()
    return True


async def devices(vipu: VipuClient, name: str) -> list[tuple[str, int]]:
    config = await vipu.ipuof_config(name)
    return [(device.ip, device.server_port) for gcd in config.gcds for device in gcd.devices]


async def test_each_device_of_an_active_partition_answers_where_its_configuration_says(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    both = machines(2)
    async with client(start(both)) as vipu:
        await active(vipu, "p", 8)
        found = await devices(vipu, "p")
        assert len(set(found)) == 8  # two machines on one address
        assert [await is_open(*each) for each in found] == [True] * 8
        await vipu.remove_partition("p")
        await eventually(vipu.list_partitions, lambda listed: listed == [])
        assert [await is_open(*each) for each in found] == [False] * 8


async def test_a_port_that_does_not_answer_keeps_a_partition_from_active_and_is_named(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    both = machines(2)
    server = start(both)
    async with client(server) as vipu:
        await active(vipu, "before", 8)
        where = dict(zip(range(8), await devices(vipu, "before"), strict=True))
        await vipu.remove_partition("before")
        await eventually(vipu.list_partitions, lambda listed: listed == [])
        words = ["provoke", "fault", "ag1", "--ipu", "2", "--ipuof-port"]
        words += ["-H", "127.0.0.1", "--api-port", str(server.admin_port)]
        assert await asyncio.to_thread(vipu_admin, words) == 0

        await vipu.create_partition(CreateRequest("p", 8))
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ERROR)
        status = await vipu.partition_status("p")
        host, port = where[6]
        assert status.operation_state is OperationState.FAILED
        assert status.errors == (
            f"ag1: the IPUoF port {host}:{port} of IPU 2 does not answer: Connection refused",
        )
        events = [one for one in server.controller.events.last()[0] if "failed" in one.what]
        assert [one.facts["problem"] for one in events] == list(status.errors)
        # Only that IPU: a partition without it is as good as ever.
        await vipu.remove_partition("p")
        await eventually(vipu.list_partitions, lambda listed: listed == [])
        await active(vipu, "other", 4)

        await vipu.create_partition(CreateRequest("q", 4))
        await eventually(lambda: state_of(vipu, "q"), lambda state: state is ReadyState.ERROR)
        async with AgentClient(both[1].address, deadline_seconds=60) as agent:
            await agent.repair()
        await vipu.reset_partition("q")
        await eventually(lambda: state_of(vipu, "q"), lambda state: state is ReadyState.ACTIVE)


async def test_a_partition_with_auto_reset_is_tried_again_three_times_and_no_more(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    (machine,) = machines(1)
    async with client(start([machine])) as vipu:
        async with AgentClient(machine.address, deadline_seconds=60) as agent:
            await agent.inject(Fault(FaultKind.IPUOF_CLOSED, ipu=3))
        await vipu.create_partition(CreateRequest("p", 4, auto_reset=True))
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ERROR)
        assert (await vipu.partition_status("p")).auto_resets == 3


async def close_port(machine: Machine, ipu: int) -> None:
    async with AgentClient(machine.address, deadline_seconds=60) as agent:
        await agent.inject(Fault(FaultKind.IPUOF_CLOSED, ipu=ipu))


async def open_ports(machine: Machine) -> None:
    async with AgentClient(machine.address, deadline_seconds=60) as agent:
        await agent.repair()


async def test_a_port_that_closes_under_an_active_partition_puts_it_in_error_alone(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    both = machines(2)
    server = start(both)
    async with client(server) as vipu:
        for name in ("p", "other"):
            await active(vipu, name, 4)
        await close_port(both[0], 2)
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ERROR)
        status = await vipu.partition_status("p")
        assert status.errors == ("ag0: the IPUoF port of IPU 2 is closed",)
        assert await state_of(vipu, "other") is ReadyState.ACTIVE
        events = [one for one in server.controller.events.last()[0] if "failed" in one.what]
        assert [one.facts["problem"] for one in events] == list(status.errors)

        await open_ports(both[0])
        await vipu.reset_partition("p")
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ACTIVE)


async def test_a_partition_with_auto_reset_whose_port_closes_comes_back_with_the_port(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    (machine,) = machines(1)
    async with client(start([machine])) as vipu:
        await vipu.create_partition(CreateRequest("p", 4, auto_reset=True))
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ACTIVE)
        await close_port(machine, 3)
        await eventually(lambda: resets_of(vipu, "p"), lambda count: count == 1)
        await open_ports(machine)
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ACTIVE)
        assert 1 <= await resets_of(vipu, "p") <= 3


async def resets_of(vipu: VipuClient, name: str) -> int:
    return (await vipu.partition_status(name)).auto_resets


async def test_a_restarted_controller_finds_the_port_that_closed_meanwhile(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    (machine,) = machines(1)
    server = start([machine])
    async with client(server) as vipu:
        await active(vipu, "p", 4)
    await asyncio.to_thread(server.stop)
    await close_port(machine, 0)
    async with client(start([machine])) as vipu:
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ERROR)


async def test_a_controller_that_simulates_its_machines_itself_has_no_ports_to_close(
    start: Callable[..., VipuServer], capsys: pytest.CaptureFixture[str]
) -> None:
    server = start([], agents="")
    where = ["-H", "127.0.0.1", "--api-port", str(server.admin_port)]
    words = ["provoke", "fault", "ag0", *where, "--ipuof-port"]
    assert await asyncio.to_thread(vipu_admin, words) == 1
    assert "name the IPU whose IPUoF port is to be closed" in capsys.readouterr().err
    assert await asyncio.to_thread(vipu_admin, [*words, "--ipu", "1"]) == 1
    assert "ag0 is simulated without an agent and has no IPUoF ports" in capsys.readouterr().err


async def test_a_port_is_the_machines_own_and_opens_again() -> None:
    first = IpuofPorts.reserve("127.0.0.1", 0, 2)
    port = first.ports[0]
    for devices in ((0, 1), (1,), (0,)):
        first.follow(devices)
        assert await is_open("127.0.0.1", port) is (0 in devices)
    with pytest.raises(ListenError, match=f"from 127.0.0.1:{port} on: .*--ipuof-port"):
        IpuofPorts.reserve("127.0.0.1", port, 1)
    first.follow(())
    with pytest.raises(ListenError):  # while nobody listens there, too
        IpuofPorts.reserve("127.0.0.1", port, 1)
    first.close()
    assert not await is_open("127.0.0.1", port)
    counted = IpuofPorts.reserve("127.0.0.1", port, 1)
    assert counted.ports == {0: port}
    counted.close()


async def test_a_port_stays_the_machines_own_after_a_connection_that_it_ended() -> None:
    ports = IpuofPorts.reserve("127.0.0.1", 0, 1)
    ports.follow((0,))
    with socket.create_connection(("127.0.0.1", ports.ports[0])) as connection:
        connection.setblocking(False)
        with pytest.raises(ConnectionResetError):
            await asyncio.get_running_loop().sock_recv(connection, 1)
    ports.follow(())
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", ports.ports[0]))
    ports.follow((0,))
    assert await is_open("127.0.0.1", ports.ports[0])
    ports.close()


@asynccontextmanager
async def waiting_connection(ports: IpuofPorts) -> AsyncIterator[socket.socket]:
    """A client of the first port, which has no file left for the connection within the block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as connection, ExitStack() as taken:
        connection.setblocking(False)
        taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
        with suppress(OSError):
            while True:
                taken.callback(os.close, os.dup(0))
        address = ("127.0.0.1", ports.ports[0])
        await asyncio.get_running_loop().sock_connect(connection, address)
        yield connection
        taken.close()
        with pytest.raises(ConnectionResetError):  # accepted in the end, or closed
            await asyncio.get_running_loop().sock_recv(connection, 1)


async def test_a_port_without_a_file_for_a_connection_waits_and_does_not_spin() -> None:
    ports = IpuofPorts.reserve("127.0.0.1", 0, 1)
    ports.follow((0,))
    with capture_logs() as entries:
        async with waiting_connection(ports):
            for _ in range(100):  # turns of the loop, in each of which the port is readable
                await asyncio.sleep(0)
            assert [(one["event"], one["problem"]) for one in entries] == [
                ("IPUoF port takes no connection", os.strerror(errno.EMFILE))
            ]
    ports.close()


async def test_a_port_that_waits_for_a_file_can_be_closed_and_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("partitions.vipu.agent.ipuof._PAUSE_SECONDS", 0.01)
    ports, its_pause_is_over = IpuofPorts.reserve("127.0.0.1", 0, 1), asyncio.Event()
    ports.follow((0,))
    with capture_logs() as entries:
        async with waiting_connection(ports):
            while not entries:
                await asyncio.sleep(0)
            ports.follow(())
            logged = len(entries)
    with capture_logs() as entries:
        asyncio.get_running_loop().call_later(0.01, its_pause_is_over.set)
        await its_pause_is_over.wait()
        for _ in range(3):
            await asyncio.sleep(0)
    assert (logged, entries) == (1, [])
    ports.follow((0,))
    assert await is_open("127.0.0.1", ports.ports[0])
    ports.close()
