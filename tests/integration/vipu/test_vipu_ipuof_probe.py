"""Probes of the IPUoF ports of a machine that is known by a name, also while its name does not
resolve."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from partitions.vipu.agent.ipuof import IpuofPorts
from partitions.vipu.agent.simulated import SimulatedMachine
from partitions.vipu.ipuofprobe import IpuofProbes
from partitions.vipu.server.machines import Hardware
from tests.builders.fleets import fleet_of_machines
from tests.fakes.waiting import eventually
from tests.unit.partitions.vipu.test_agentfleet import NOON, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY = ("p", "1")
NAME = "machine.example"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A name server: counts `look_ups`, waits for `answers`, raises `error` if it has one."""
    server = SimpleNamespace(look_ups=0, answers=threading.Event(), error=None)
    look_up = socket.getaddrinfo

    def answer(host: str, port: object, *more: Any, **named: Any) -> Any:
        if host != NAME or named.get("flags", 0) & socket.AI_NUMERICHOST:
            return look_up(host, port, *more, **named)
        server.look_ups += 1
        server.answers.wait()
        if server.error:
            raise server.error
        return [look_up(at, port, *more, **named)[0] for at in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    yield server
    server.answers.set()


@pytest.fixture
async def ports() -> Iterator[IpuofPorts]:
    ports = IpuofPorts.reserve("127.0.0.1", 0, 4)
    ports.follow(range(4))
    yield ports
    ports.close()


@pytest.fixture
def closed(ports: IpuofPorts) -> Callable[[], Any]:
    """closed() -> the partitions whose ports do not all answer, of a partition on all IPUs."""
    machine = SimulatedMachine("ag0", NOON, ipuof_ports=ports.ports)
    facts = Hardware({"ag0": machine.inventory}, {"ag0": NAME})
    fleet: Any = SimpleNamespace(topology=fleet_of_machines(1, cluster="c", allocation="a"))
    begun = {KEY: record(0, 1, 2, 3)}
    return lambda: IpuofProbes().closed("ag0", begun, fleet, facts)


async def test_a_machine_with_a_name_is_looked_up_once_and_asked_at_each_address(
    names: SimpleNamespace, ports: IpuofPorts, closed: Callable[[], Any]
) -> None:
    names.answers.set()
    assert await closed() == set()
    assert names.look_ups == 1
    ports.follow((0, 1, 2))
    assert await closed() == {KEY}
    names.error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    ports.follow(range(4))
    assert await closed() == {KEY}


async def test_a_silent_name_server_holds_no_thread_that_changes_the_state(
    names: SimpleNamespace, closed: Callable[[], Any]
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    probe = asyncio.create_task(closed())
    try:
        await eventually(lambda: names.look_ups)
        async with asyncio.timeout(60):
            await asyncio.to_thread(lambda: None)  # as AgentLinks confirms
        assert await probe == {KEY}
        assert names.look_ups == 1
    finally:
        names.answers.set()
