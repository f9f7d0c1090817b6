"""vipu-server over real vipu-agents: partitions on machines, silence, faults, restarts."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from dashboard.components import of_agents
from devcluster.security.certificates import Authority
from partitions.proxy.controllers import ControllerView, parse_controllers
from partitions.proxy.fleetmap import fleet_to_json
from partitions.vipu.agent.client import AgentClient
from partitions.vipu.agent.machine import (
    Configuration,
    Configure,
    Device,
    Fault,
    FaultKind,
    PartitionState,
)
from partitions.vipu.client import CreateRequest, OperationState, ReadyState, VipuClient
from partitions.vipu.errors import NoCapacity
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.options import ServerOptions
from partitions.vipu.types import IpuLinkRouting, SyncType
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually
from tests.integration.vipu.agentmachines import order, state_of
from tests.integration.vipu.test_vipu_tls import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dashboard.components import Component
    from tests.integration.vipu.agentmachines import Machine

LOST_SECONDS = 3.0  # in the tests that wait for it; a busy machine must not lose agents elsewhere


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., VipuServer]]:
    """start(machines, **options) -> a vipu-server over them; stopped at the end."""
    servers: list[VipuServer] = []

    def start(machines: list[Machine], **options: object) -> VipuServer:
        defaults = {
            "storage": tmp_path / "vipu-server.json",
            "port": free_port(),
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


async def active(vipu: VipuClient, name: str, size: int, **more: object) -> None:
    await vipu.create_partition(CreateRequest(name, size, **more))
    await eventually(lambda: state_of(vipu, name), lambda state: state is ReadyState.ACTIVE)


async def test_a_partition_is_set_up_on_all_its_machines_and_freed_again(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    both = machines(2)
    server = start(both)
    async with client(server) as vipu:
        assert len(await vipu.list_ipu_attributes()) == 8
        before = await eventually(
            lambda: vipu.heartbeat("ag1"), lambda heartbeat: heartbeat.heard_at is not None
        )
        idle = {sensors.clock_hertz for sensors in before.sensors.values()}
        await active(vipu, "p", 8, num_gcds=2)
        later = await eventually(
            lambda: vipu.heartbeat("ag1"),
            lambda heartbeat: {each.clock_hertz for each in heartbeat.sensors.values()} != idle,
        )
        assert later.heard_at > before.heard_at
        assert all(each.temperature_celsius and each.power_watts for each in later.sensors.values())
        gcds = (await vipu.ipuof_config("p")).gcds
        serials = [device.chip_id for gcd in gcds for device in gcd.devices]
        assert serials == [ipu.serial for each in both for ipu in (await each.inventory()).ipus]
        assert {device.ip for gcd in gcds for device in gcd.devices} == {"127.0.0.1"}
        first, second = [await each.partitions() for each in both]
        assert {each.state for each in (*first, *second)} == {PartitionState.READY}
        assert first[0].configuration.devices == tuple(Device(n, n, 0) for n in range(4))
        assert second[0].configuration.devices == tuple(Device(n, n + 4, 1) for n in range(4))
        await vipu.remove_partition("p")
        for each in both:
            await eventually(each.names, lambda names: names == [])


async def test_a_partition_is_pending_until_the_last_machine_has_confirmed(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    fast, slow = *machines(1), *machines(1, latency=3600.0)
    server = start([fast, slow])
    async with client(server) as vipu:
        await vipu.create_partition(CreateRequest("p", 8))
        await eventually(
            fast.partitions, lambda found: [one.state for one in found] == [PartitionState.READY]
        )
        await eventually(slow.names, lambda names: names == ["p"])
        links = server._links
        assert links is not None
        link = links._links["ag0"]
        await eventually(lambda: link.ready)
        heard = link.heard_at  # the heartbeat that found it ready is over with the next heartbeat
        await eventually(lambda: link.heard_at > heard)
        status = await vipu.partition_status("p")
        assert status.ready_state is ReadyState.PENDING
        assert status.operation_state is OperationState.CREATING
        slow.kill()
        slow.latency = 0.0
        slow.start()
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ACTIVE)


async def test_a_reset_is_done_by_the_machines(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    (machine,) = machines(1)
    async with client(start([machine])) as vipu:
        await active(vipu, "p", 2)
        (before,) = await machine.partitions()
        await vipu.reset_partition("p")
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ACTIVE)
        (after,) = await machine.partitions()
        assert after.configuration.generation != before.configuration.generation
        assert after.state is PartitionState.READY


@pytest.mark.parametrize("way", ["SIGKILL", "SIGSTOP", "hang"])
async def test_an_agent_that_stops_answering_is_lost_and_comes_back(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer], way: str
) -> None:
    healthy, sick = machines(2)
    async with client(start([healthy, sick], agent_lost_seconds=LOST_SECONDS)) as vipu:
        await active(vipu, "kept", 4)
        await active(vipu, "hit", 4)
        if way == "hang":
            async with AgentClient(sick.address, deadline_seconds=60) as agent:
                await agent.inject(Fault(FaultKind.HANG))
        else:
            sick.signal(signal.Signals[way])
        await eventually(lambda: state_of(vipu, "hit"), lambda state: state is ReadyState.ERROR)
        # No address and nothing of gRPC's: whoever waits for its IPUs reads it.
        (error,) = (await vipu.partition_status("hit")).errors
        assert re.fullmatch(r"ag1 has not answered since \d{4}-\d\d-\d\dT[\d:]{8}Z", error)
        assert await state_of(vipu, "kept") is ReadyState.ACTIVE
        with pytest.raises(NoCapacity):
            await vipu.create_partition(CreateRequest("new", 1))
        if way == "hang":
            async with AgentClient(sick.address, deadline_seconds=60) as agent:
                await agent.repair()
        elif way == "SIGSTOP":
            sick.signal(signal.SIGCONT)
        else:
            sick.kill()
            sick.start()
        await vipu.remove_partition("hit")
        await eventually(lambda: created(vipu, CreateRequest("new", 4)))
        await eventually(lambda: state_of(vipu, "new"), lambda state: state is ReadyState.ACTIVE)
        assert await sick.names() == ["new"]


async def test_a_relocatable_partition_moves_from_an_agent_that_stops_answering(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    sick, healthy = machines(2)
    server = start([sick, healthy], agent_lost_seconds=LOST_SECONDS)
    async with client(server) as vipu:
        await active(vipu, "p", 4, relocatable=True)
        assert await sick.names() == ["p"]
        sick.signal(signal.SIGSTOP)
        await eventually(healthy.names, lambda names: names == ["p"])
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ACTIVE)
        topology = server.controller.topology
        ipus = server.controller.get("p").ipus
        assert {topology.by_id[ipu].agent for ipu in ipus} == {"ag1"}
        assert (await vipu.partition_status("p")).errors == ()
        sick.signal(signal.SIGCONT)
        await eventually(sick.names, lambda names: names == [])
        assert await state_of(vipu, "p") is ReadyState.ACTIVE
        assert await healthy.names() == ["p"]


async def test_an_agent_that_is_stopped_is_named_among_the_components(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    healthy, sick = machines(2)
    (spec,) = parse_controllers("v1:8090:vipu-ctrl=v1")
    async with client(start([healthy, sick], agent_lost_seconds=LOST_SECONDS)) as vipu:

        async def agents() -> list[Component]:
            view = ControllerView(spec, await vipu.list_ipu_attributes())
            return of_agents(fleet_to_json([view], [], []))

        (found,) = await agents()
        assert (found.state, found.members, found.absent) == ("up", ("ag0", "ag1"), ())
        sick.signal(signal.SIGSTOP)
        (found,) = await eventually(agents, lambda found: found[0].state == "down")
        assert (found.name, found.absent) == ("V-IPU agents of v1:8090", ("ag1",))
        sick.signal(signal.SIGCONT)
        await eventually(agents, lambda found: found[0].state == "up")


async def created(vipu: VipuClient, request: CreateRequest) -> bool:
    try:
        await vipu.create_partition(request)
    except NoCapacity:
        return False
    return True


async def test_a_fault_of_an_ipu_is_one_of_its_partition_until_it_is_repaired(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    (machine,) = machines(1)
    async with (
        client(start([machine])) as vipu,
        AgentClient(machine.address, deadline_seconds=60) as agent,
    ):
        await active(vipu, "hit", 2)
        await active(vipu, "kept", 2)
        await agent.inject(Fault(FaultKind.LINK_DOWN, ipu=1, link=5))
        await eventually(lambda: state_of(vipu, "hit"), lambda state: state is ReadyState.ERROR)
        assert "IPU-Link 5 of IPU 1 is down" in (await vipu.partition_status("hit")).errors[0]
        assert await state_of(vipu, "kept") is ReadyState.ACTIVE
        await vipu.remove_partition("hit")
        with pytest.raises(NoCapacity):
            await vipu.create_partition(CreateRequest("new", 2))
        await agent.repair()
        await eventually(lambda: created(vipu, CreateRequest("new", 2)))
        await eventually(lambda: state_of(vipu, "new"), lambda state: state is ReadyState.ACTIVE)


async def test_a_restarted_controller_leaves_running_partitions_alone_and_mends_the_rest(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    both = machines(2)
    server = start(both)
    async with client(server) as vipu:
        await active(vipu, "p", 4)
    server.stop()
    before = await both[0].partitions()
    stranger = Configuration(
        "stranger", "", (Device(2, 0, 0),), IpuLinkRouting.DNC, SyncType.POD_NATIVE_DEFAULT
    )
    async with AgentClient(both[1].address, deadline_seconds=60) as agent:
        await order(agent, Configure(stranger))
    again = start(both)
    async with client(again) as vipu:
        assert await state_of(vipu, "p") is ReadyState.ACTIVE
        await eventually(both[1].names, lambda names: names == [])
        await active(vipu, "q", 4)
    assert await both[0].partitions() == before
    assert "agent lost" not in [event.what for event in again.controller.events.last()[0]]


async def test_a_fault_that_ends_while_the_controller_is_down_is_over(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    (machine,) = machines(1)
    server = start([machine])
    async with AgentClient(machine.address, deadline_seconds=60) as agent:
        await agent.inject(Fault(FaultKind.IPU_ERROR, ipu=0))
        async with client(server) as vipu:
            await eventually(lambda: refused(vipu, CreateRequest("p", 4)))
        server.stop()
        await agent.repair()
    async with client(start([machine])) as vipu:
        await eventually(lambda: created(vipu, CreateRequest("p", 4)))


async def test_a_partition_with_auto_reset_is_reset_once_its_lost_agent_is_back(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    (machine,) = machines(1)
    async with client(start([machine], agent_lost_seconds=LOST_SECONDS)) as vipu:
        await active(vipu, "p", 4, auto_reset=True)
        machine.signal(signal.SIGSTOP)
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ERROR)
        assert (await vipu.partition_status("p")).auto_resets == 0
        machine.signal(signal.SIGCONT)
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ACTIVE)
        assert (await vipu.partition_status("p")).auto_resets == 1


async def test_a_restarted_agent_is_set_up_again_and_its_partition_stays_active(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    (machine,) = machines(1)
    server = start([machine])
    async with client(server) as vipu:
        await active(vipu, "p", 4)
        before = await machine.partitions()
        machine.kill()
        machine.start()
        await eventually(machine.partitions, lambda found: found == before)
        assert await state_of(vipu, "p") is ReadyState.ACTIVE
    (event,) = [each for each in server.controller.events.last()[0] if "lost" in each.what]
    assert event.what == "machine had lost a partition, which is set up again"
    assert event.facts == {"agent": "ag0", "partition": "p"}


async def test_a_controller_starts_without_one_of_its_agents_and_takes_it_in_later(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    here, late = machines(2)
    late.kill()
    async with client(start([here, late], agent_lost_seconds=LOST_SECONDS)) as vipu:
        assert len(await vipu.list_ipu_attributes()) == 8
        await active(vipu, "p", 4)
        await eventually(lambda: refused(vipu, CreateRequest("early", 4)))
        late.start()
        await eventually(lambda: created(vipu, CreateRequest("q", 4)))
        await eventually(lambda: state_of(vipu, "q"), lambda state: state is ReadyState.ACTIVE)


async def test_a_machine_that_comes_with_other_ipus_is_lost_until_the_controller_is_restarted(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer]
) -> None:
    here, other = machines(2)
    other.kill()
    server = start([here, other], agent_lost_seconds=LOST_SECONDS)
    async with client(server) as vipu:
        await eventually(lambda: "ag1" in server.controller.machines)  # silent
        other.options = ("--ipus", "2")
        other.start()
        assert len((await other.inventory()).ipus) == 2
        await eventually(
            lambda: server.controller.machines.get("ag1"),
            lambda machine: (
                machine and machine.lost == "ag1 has 2 IPUs, not 4: restart vipu-server"
            ),
        )
        await active(vipu, "p", 4)
        assert await refused(vipu, CreateRequest("q", 1))
    server.stop()
    async with client(start([here, other])) as vipu:
        assert len(await vipu.list_ipu_attributes()) == 6
        await active(vipu, "q", 2)


async def test_agents_with_tls_are_driven_by_a_controller_with_a_certificate(
    machines: Callable[..., list[Machine]], start: Callable[..., VipuServer], tmp_path: Path
) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    certificate, key = write(first, tmp_path / "server", ("127.0.0.1",))
    ours, ours_key = write(second, tmp_path / "ours")
    files = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    (machine,) = machines(1, *files, "--client-ca", str(second.ca_file))
    known = {"agent_ca": first.ca_file, "agent_certificate": ours, "agent_key": ours_key}
    server = start([machine], **known)
    async with client(server) as vipu:
        await active(vipu, "p", 4)
    server.stop()
    without = start([machine], agent_ca=first.ca_file, agent_lost_seconds=LOST_SECONDS)
    async with client(without) as vipu:
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ERROR)


async def refused(vipu: VipuClient, request: CreateRequest) -> bool:
    if await created(vipu, request):
        await vipu.remove_partition(request.id, force=True)  # its machine may be away
        return False
    return True


def test_agents_that_cannot_be_are_refused_in_words(
    tmp_path: Path, start: Callable[..., VipuServer]
) -> None:
    for agents, want in (
        ("ag0", "write host:port"),
        ("a:1,a:1", "names an address twice"),
        ("a:99999", "write host:port"),
    ):
        with pytest.raises(ValueError, match=want):
            start([], agents=agents)
    with pytest.raises(ValueError, match="need --agent-ca"):
        start([], agents="127.0.0.1:1", agent_key=tmp_path / "key")
