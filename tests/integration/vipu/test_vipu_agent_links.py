"""The links to agents: none ends unasked, none holds up a stop, none takes old proof."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from ipuhub.concurrency import end_tasks
from partitions.vipu.agent import client as agent_client
from partitions.vipu.agent.client import AgentClient
from partitions.vipu.agent.machine import Configure, Fault, FaultKind, PartitionState, Release
from partitions.vipu.client import CreateRequest
from partitions.vipu.errors import Refused, Unavailable
from partitions.vipu.protos import vipu_admin_pb2 as admin_pb
from partitions.vipu.protos import vipu_agent_pb2 as agent_pb
from partitions.vipu.protos import vipu_fleet_pb2 as pb
from partitions.vipu.protos.vipu_admin_pb2_grpc import AdminServiceStub
from partitions.vipu.protos.vipu_agent_pb2_grpc import (
    AgentServiceServicer,
    add_AgentServiceServicer_to_server,
)
from partitions.vipu.protos.vipu_fleet_pb2_grpc import FleetServiceStub
from partitions.vipu.server.agents.fleet import LinkTiming
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.options import ServerOptions
from tests.fakes.freeport import free_port
from tests.fakes.waiting import PATIENCE_SECONDS, eventually
from tests.integration.vipu.test_vipu_removals import SLOW, active, client, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from partitions.vipu.agent.machine import Order, Outcome
    from tests.integration.vipu.agentmachines import Machine

__all__ = ["start"]


@pytest.fixture
def blackhole() -> Iterator[socket.socket]:
    """Return an agent's address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_SECONDS)
        yield listener


def create_agent(
    channel: grpc.Channel, where: socket.socket, name: str
) -> grpc.Future[pb.CreateAgentReply]:
    host, port = where.getsockname()
    request = pb.CreateAgentRequest(agent_id=name, host=host, port=port)
    return FleetServiceStub(channel).CreateAgent.future(
        request, timeout=PATIENCE_SECONDS, wait_for_ready=True
    )


def end_beside_main_thread(process: int) -> None:
    """Send SIGTERM so that it interrupts no call of the main thread, as one that comes just before
    the call."""
    threads = (int(task.name) for task in Path(f"/proc/{process}/task").iterdir())
    others = [thread for thread in threads if thread != process]
    send = ctypes.CDLL(None).tgkill
    assert any(send(process, other, signal.SIGTERM) == 0 for other in others)  # some may have ended


async def have_beaten(server: VipuServer, agent: str, machine: Machine) -> None:
    """A whole heartbeat of this agent has begun and ended since."""

    def has_fault() -> bool:
        return agent in server.controller.machines

    async with AgentClient(machine.address, deadline_seconds=60) as simulator:
        await simulator.inject(Fault(FaultKind.IPU_ERROR, ipu=0))
        await eventually(has_fault)
        await simulator.repair(0)
        await eventually(lambda: not has_fault())


class Forwarder:
    """A way to an agent that can fall silent for the connections that it has; new ones pass."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._ways: list[asyncio.Task[None]] = []
        self._ends: list[asyncio.StreamWriter] = []

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._ends += [writer, back]
        for source, sink in ((reader, back), (there, writer)):
            self._ways.append(asyncio.create_task(self._carry(source, sink)))

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)

    async def fall_silent(self) -> None:
        ways, self._ways = self._ways, []
        await end_tasks(*ways)

    async def close(self) -> None:
        await self.fall_silent()
        for end in self._ends:
            end.close()


async def test_an_order_takes_one_message(
    machines: Callable[..., list[Machine]],
    start: Callable[..., VipuServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (machine,) = machines(1, latency=0.0)
    server = start([machine], agent_heartbeat_seconds=36_000.0)
    links, follow_of = server._links, AgentClient.follow
    assert links is not None
    link = links._links["ag0"]
    assert link.around.timing == LinkTiming(heartbeat_seconds=36_000, lost_seconds=80)
    await eventually(lambda: bool(link.boot_id))
    received: list[tuple[Order, ...]] = []

    async def follow(agent: AgentClient, *orders: Order) -> Outcome:
        received.append(orders)
        return await follow_of(agent, *orders)

    async with client(server) as vipu:
        await active(vipu, "first", 1)  # from now on it pauses as long as it is told
        monkeypatch.setattr(AgentClient, "follow", follow)
        await active(vipu, "p", 2)
        await vipu.remove_partition("p")
        await eventually(lambda: len(server.controller.list()) == 1)
    assert [[type(order) for order in orders] for orders in received] == [[Configure], [Release]]


class _Refusing(AgentServiceServicer):
    """An agent that answers once, and refuses its controller from `end` on."""

    def __init__(self) -> None:
        self.end, self.ended = threading.Event(), threading.Event()

    def Follow(  # noqa: N802  # gRPC's name
        self, request_iterator: Iterator[agent_pb.Orders], context: grpc.ServicerContext
    ) -> Iterator[agent_pb.FollowReply]:
        if not self.end.is_set():
            context.add_callback(self.ended.set)
            next(request_iterator)
            yield agent_pb.FollowReply()
            self.end.wait(PATIENCE_SECONDS)
        context.abort(grpc.StatusCode.PERMISSION_DENIED, "another controller has it")


async def test_an_agent_that_ends_the_call_while_it_is_written_to_says_its_reason() -> None:
    agent, server = _Refusing(), grpc.server(ThreadPoolExecutor(2))
    add_AgentServiceServicer_to_server(agent, server)  # type: ignore[no-untyped-call]
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        async with AgentClient(address, deadline_seconds=PATIENCE_SECONDS) as link:
            await link.follow()
            agent.end.set()
            agent.ended.wait(PATIENCE_SECONDS)  # without a turn of the loop: it knows nothing yet
            with pytest.raises(Refused, match="another controller has it"):
                await link.follow(Release("p1"))
    finally:
        server.stop(None)


async def test_an_agent_that_vanished_without_a_word_is_found_on_a_new_connection(
    machines: Callable[..., list[Machine]], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [
        (name, 300 if name.startswith("grpc.keepalive_t") else value)
        for name, value in agent_client._OPTIONS
    ]
    monkeypatch.setattr(agent_client, "_OPTIONS", tuple(options))
    (machine,) = machines(1)
    forwarder = Forwarder(machine.port)
    server = await asyncio.start_server(forwarder.connect, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()

    async def answers() -> bool:
        with suppress(Unavailable):
            return bool((await agent.health()).boot_id)
        return False

    async with AgentClient(f"{host}:{port}", deadline_seconds=1) as agent:
        await eventually(answers)
        await forwarder.fall_silent()
        assert not await answers()
        await eventually(answers)
    await forwarder.close()
    server.close()


async def test_an_agent_that_speaks_of_an_ipu_that_it_does_not_have_is_asked_again(
    machines: Callable[..., list[Machine]],
    start: Callable[..., VipuServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (machine,) = machines(1)
    server = start([machine])
    addresses, follow_of = list[str](), AgentClient.follow

    async def follow(agent: AgentClient, *orders: Order) -> Outcome:
        addresses.append(agent.address)
        outcome = await follow_of(agent, *orders)
        return replace(outcome, health=replace(outcome.health, faults={9: "IPU 9 is hot"}))

    with monkeypatch.context() as patch:
        patch.setattr(AgentClient, "follow", follow)
        await eventually(lambda: len(addresses) > 2)
    await have_beaten(server, "ag0", machine)
    async with client(server) as vipu:
        await active(vipu, "p", 4)


async def test_time_that_passes_for_the_server_alone_loses_no_agent(
    machines: Callable[..., list[Machine]],
    start: Callable[..., VipuServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that stood still for a minute has missed one answer, not a minute of them."""
    (machine,) = machines(1)
    server = start([machine])
    links, follow_of = server._links, AgentClient.follow
    assert links is not None
    link = links._links["ag0"]
    await eventually(lambda: bool(link.boot_id))
    answers = [False, False, True, False, False, True]

    async def follow(agent: AgentClient, *orders: Order) -> Outcome:
        if answers and answers.pop(0):
            return await follow_of(agent, *orders)
        link.heard_at -= 3600
        raise Unavailable("no answer")

    def is_lost() -> bool:
        machine = server.controller.machines.get("ag0")
        return bool(machine and machine.lost)

    lost = list[bool]()
    with monkeypatch.context() as patch:
        patch.setattr(AgentClient, "follow", follow)
        await eventually(lambda: lost.append(is_lost()) or not answers)
        assert not any(lost)
        await eventually(is_lost)
    await eventually(lambda: not is_lost())


def test_who_waits_for_an_agent_is_told_that_the_server_stops(
    tmp_path: Path, blackhole: socket.socket
) -> None:
    options = ServerOptions(storage=tmp_path / "state.json", port=0, admin_port=0, machines=0)
    server = VipuServer(options)
    server.start()
    links = server._links
    assert links is not None
    with grpc.insecure_channel(f"127.0.0.1:{server.admin_port}") as channel:
        waiting = [create_agent(channel, blackhole, name) for name in ("first", "second")]
        with blackhole.accept()[0]:
            links.stop()
            for call in (*waiting, create_agent(channel, blackhole, "late")):
                error = call.exception(PATIENCE_SECONDS)
                assert isinstance(error, grpc.RpcError)
                assert error.code() is grpc.StatusCode.UNAVAILABLE
                assert error.details() == "vipu-server is being stopped"
    assert not server.controller.state.agents
    server.stop()


def test_agents_that_are_created_and_do_not_answer_hold_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partitions.vipu.server.agents.links._ONCE_SECONDS", PATIENCE_SECONDS)
    options = ServerOptions(storage=tmp_path / "state.json", port=0, admin_port=0, machines=0)
    server = VipuServer(options)
    server.start()
    with ExitStack() as opened:
        channel = opened.enter_context(grpc.insecure_channel(f"127.0.0.1:{server.admin_port}"))
        holes = [opened.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(5)]
        calls = [create_agent(channel, hole, f"a{at}") for at, hole in enumerate(holes)]
        for hole in holes:
            hole.settimeout(PATIENCE_SECONDS)
            opened.enter_context(hole.accept()[0])  # each is asked, though none answers
        list_agents = AdminServiceStub(channel).ListAgents
        assert not list_agents(admin_pb.ListAgentsRequest(), timeout=PATIENCE_SECONDS).agents
        assert not any(call.done() for call in calls)
        server.stop()


def test_an_agent_that_does_not_answer_keeps_no_server_from_its_end(
    tmp_path: Path, blackhole: socket.socket
) -> None:
    port = free_port()
    words = ["--machines", "0", "--port", str(free_port()), "--admin-port", str(port)]
    storage = str(tmp_path / "vipu-server.json")
    process = subprocess.Popen(
        [sys.executable, "-m", "partitions.vipu.server.main", *words, "--storage", storage],
        stderr=subprocess.DEVNULL,
    )
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            waiting = create_agent(channel, blackhole, "first")
            with blackhole.accept()[0]:
                end_beside_main_thread(process.pid)
                assert process.wait(PATIENCE_SECONDS) == 0
            assert isinstance(waiting.exception(PATIENCE_SECONDS), grpc.RpcError)
    finally:
        process.kill()
        process.wait()


async def test_what_a_machine_had_freed_before_is_no_proof_for_a_later_partition_of_that_name(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    quiet, slow = machines(2)
    server = start([quiet, slow])
    controller = server.controller
    async with client(server) as vipu:
        async with AgentClient(slow.address, deadline_seconds=60) as agent:
            await active(vipu, "p", 8)
            await agent.inject(SLOW)
        await vipu.remove_partition("p")
        await eventually(slow.states, lambda states: states == [PartitionState.RELEASING])
        await eventually(quiet.names, lambda names: names == [])
        await have_beaten(server, "ag0", quiet)
        async with AgentClient(quiet.address, deadline_seconds=60) as agent:
            await agent.inject(Fault(FaultKind.HANG))
            controller.remove("p", force=True)
            await asyncio.to_thread(controller.create, CreateRequest("p", 8))
            controller.remove("p")
            slow.kill()
            slow.start()
            await have_beaten(server, "ag1", slow)
            assert controller.get("p").is_removing
            await agent.repair()
        await eventually(vipu.list_partitions, lambda found: found == [])
