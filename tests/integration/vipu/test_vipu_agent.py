"""vipu-agent over real sockets: the agent API, faults on command, metrics."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from devcluster.security.certificates import Authority
from partitions.vipu.agent.client import AgentClient
from partitions.vipu.agent.machine import (
    Configuration,
    Configure,
    Device,
    Fault,
    FaultKind,
    MachineTest,
    PartitionState,
    Release,
    Reset,
)
from partitions.vipu.agent.main import AgentOptions, VipuAgent
from partitions.vipu.agent.simulatedinventory import CLOCK_HERTZ
from partitions.vipu.errors import (
    InvalidRequest,
    NoAnswer,
    NotFound,
    NotReady,
    Unavailable,
)
from partitions.vipu.protos import vipu_agent_pb2 as pb
from partitions.vipu.tlsfiles import ClientTls
from partitions.vipu.types import IpuLinkRouting, SyncType
from tests.fakes.waiting import PATIENCE_SECONDS
from tests.integration.vipu.agentmachines import order
from tests.integration.vipu.test_vipu_tls import write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from partitions.vipu.agent.main import Ports
    from tests.integration.vipu.conftest import Clock

SERVICE = "ipuhub.vipu.agent.v1.AgentService"
PAIR = Configuration(
    "p1",
    "first",
    (Device(1, 0, 0), Device(2, 1, 1)),
    IpuLinkRouting.RINGSWNC,
    SyncType.POD_NATIVE_DEFAULT,
    num_gcds=2,
    num_replicas=4,
    reconfigurable=True,
)
Starter = "Callable[..., Awaitable[list[Ports]]]"


@pytest.fixture
async def start(clock: Clock) -> AsyncIterator[Callable[..., Awaitable[list[Ports]]]]:
    """start(**options) -> the ports of the agents; all are stopped at the end."""
    running: list[VipuAgent] = []

    async def start(**options: object) -> list[Ports]:
        defaults = {"port": 0, "exporter_port": 0}
        agent = VipuAgent(AgentOptions(**{**defaults, **options}), clock)
        ports = await agent.start()
        running.append(agent)
        return ports

    yield start
    for agent in running:
        await agent.stop()


@pytest.fixture
async def ports(start: Starter) -> Ports:
    return (await start())[0]


@pytest.fixture
async def client(ports: Ports) -> AsyncIterator[AgentClient]:
    async with AgentClient(f"127.0.0.1:{ports.api}", deadline_seconds=20) as client:
        yield client


async def scrape(port: int) -> dict[str, float]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = (await answer.text()).splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


async def test_a_partition_is_configured_reset_and_released(
    client: AgentClient, clock: Clock
) -> None:
    assert len((await client.inventory()).ipus) == 4
    assert (await client.health()).partitions == ()
    await order(client, Configure(PAIR))
    (partition,) = (await client.health()).partitions
    assert (partition.configuration, partition.state) == (PAIR, PartitionState.CONFIGURING)
    clock.forward(0.5)
    assert (await client.health()).partitions[0].state is PartitionState.READY
    await order(client, Reset("p1", "second"))
    (partition,) = (await client.health()).partitions
    assert partition.configuration.generation == "second"
    assert partition.state is PartitionState.CONFIGURING
    await order(client, Release("p1"))
    await order(client, Release("p1"))
    assert (await client.health()).partitions == ()


async def test_what_cannot_be_is_refused_with_its_reason(client: AgentClient) -> None:
    await order(client, Configure(PAIR))
    with pytest.raises(NotReady, match="IPU 1 belongs to partition p1"):
        await order(client, Configure(replace(PAIR, partition="p2")))
    with pytest.raises(InvalidRequest, match="IPUs 0 to 3"):
        await order(client, Configure(replace(PAIR, partition="p3", devices=(Device(9, 0, 0),))))
    with pytest.raises(NotFound, match="configure it"):
        await order(client, Reset("p4", "x"))


@pytest.mark.parametrize(
    ("method", "request_", "want"),
    [
        ("InjectFault", pb.InjectFaultRequest(), "kind 0: use one of"),
        (
            "InjectFault",
            pb.InjectFaultRequest(kind=1, duration={"seconds": 315_576_000_000}),
            "duration is too long",
        ),
        ("InjectFault", pb.InjectFaultRequest(kind=4, latency={"seconds": -5}), "latency: write 0"),
        ("InjectFault", pb.InjectFaultRequest(kind=1, ipu=2**32 - 1), "IPUs 0 to 3"),
    ],
)
async def test_an_odd_message_is_an_invalid_argument(
    ports: Ports, method: str, request_: object, want: str
) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.api}") as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/{method}", lambda one: one.SerializeToString(), lambda raw: raw
        )
        with pytest.raises(grpc.aio.AioRpcError, match=want) as caught:
            await call(request_, timeout=20)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_odd_order_is_refused_by_its_number_and_the_others_are_begun(
    client: AgentClient,
) -> None:
    odd = replace(PAIR, routing="roundabout")  # type: ignore[arg-type]
    outcome = await client.follow(
        Configure(PAIR), Configure(odd), Reset("p4", "x"), Reset("p1", "second")
    )
    assert {number: type(error) for number, error in outcome.refusals.items()} == {
        1: InvalidRequest,
        2: NotFound,
    }
    assert str(outcome.refusals[1]).startswith("routing 'roundabout': use one of ")
    assert [each.configuration.generation for each in outcome.health.partitions] == ["second"]
    outcome = await client.follow(Release("p1"), Configure(replace(PAIR, partition="p2")))
    assert (outcome.refusals, len(outcome.health.partitions)) == ({}, 1)


async def test_an_agent_that_stops_waits_for_no_controller(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partitions.vipu.agent.main._STOP_SECONDS", 10 * PATIENCE_SECONDS)
    agent = VipuAgent(AgentOptions(port=0, exporter_port=0), clock)
    (ports,) = await agent.start()
    async with AgentClient(f"127.0.0.1:{ports.api}", deadline_seconds=20) as client:
        assert (await client.health()).faults == {}
        async with asyncio.timeout(PATIENCE_SECONDS):
            await agent.stop()
        with pytest.raises(NoAnswer):
            await client.follow()


async def test_prometheus_sees_use_and_faults_by_agent_and_ipu(
    client: AgentClient, ports: Ports, clock: Clock
) -> None:
    await order(client, Configure(PAIR))
    clock.forward(3600)
    await client.inject(Fault(FaultKind.LINK_DOWN, ipu=2, link=7))
    seen = await scrape(ports.exporter)

    def of(name: str) -> list[float]:
        return [seen[f'ipuhub_ipu_{name}{{agent="ag0",ipu="{ipu}"}}'] for ipu in range(4)]

    assert of("in_use") == [0, 1, 1, 0]
    assert of("links_up") == [10, 10, 9, 10]
    assert of("tiles") == [1472] * 4
    assert of("link_uncorrected_errors_total") == [0, 0, 1, 0]
    assert of("memory_errors_total") == of("resets_total") == [0] * 4
    for name in ("temperature_celsius", "power_watts", "clock_hertz"):
        idle, busy, *_ = of(name)
        assert busy > idle + 20
    assert of("clock_hertz")[1] == CLOCK_HERTZ
    growing = ("host_received_bytes_total", "host_sent_bytes_total", "link_corrected_errors_total")
    before = {name: of(name) for name in growing}
    for idle, busy, *_ in before.values():
        assert busy > idle == 0
    clock.forward(24 * 3600)
    await client.inject(Fault(FaultKind.IPU_ERROR, ipu=3))
    await order(client, Reset("p1", "second"))
    seen = await scrape(ports.exporter)
    assert all(of(name)[1] > before[name][1] for name in growing)
    assert of("memory_errors_total") == [0, 0, 0, 1]
    assert of("resets_total") == [0, 1, 1, 0]


async def test_a_partition_has_metrics_until_it_is_released(
    ports: Ports, client: AgentClient, clock: Clock
) -> None:
    await order(client, Configure(PAIR))
    clock.forward(10)
    of = '{agent="ag0",partition="p1"}'
    metrics = await scrape(ports.exporter)
    assert metrics[f"ipuhub_partition_ipus{of}"] == 2
    assert metrics[f"ipuhub_partition_seconds_total{of}"] == 10
    assert metrics[f"ipuhub_partition_host_received_bytes_total{of}"] == sum(
        metrics[f'ipuhub_ipu_host_received_bytes_total{{agent="ag0",ipu="{ipu}"}}']
        for ipu in range(4)
    )
    await order(client, Reset("p1", "second"))  # the application goes on
    clock.forward(5)
    assert (await scrape(ports.exporter))[f"ipuhub_partition_seconds_total{of}"] == 15
    await order(client, Release("p1"))
    assert not [name for name in await scrape(ports.exporter) if 'partition="p1"' in name]


async def test_each_machine_of_a_process_has_its_name_ports_and_metrics(start: Starter) -> None:
    ports = await start(machines=3, agent="rack7-ag9")
    assert len({port for each in ports for port in (each.api, each.exporter)}) == 6
    async with AgentClient(f"127.0.0.1:{ports[1].api}", deadline_seconds=20) as client:
        await order(client, Configure(PAIR))
    partitions = [
        (await scrape(each.exporter))[f'ipuhub_ipu_in_use{{agent="{name}",ipu="1"}}']
        for each, name in zip(ports, ("rack7-ag9", "rack7-ag10", "rack7-ag11"), strict=True)
    ]
    assert partitions == [0, 1, 0]


async def test_a_hung_agent_answers_only_who_repairs_it(ports: Ports, client: AgentClient) -> None:
    await client.inject(Fault(FaultKind.HANG))
    async with AgentClient(f"127.0.0.1:{ports.api}", deadline_seconds=0.3) as hasty:
        with pytest.raises(Unavailable, match="did not answer within 0.3 s"):
            await hasty.health()
    page = asyncio.create_task(scrape(ports.exporter))
    heartbeat = asyncio.create_task(client.health())
    done, _ = await asyncio.wait((page, heartbeat), timeout=0.3)
    assert not done
    await client.repair()
    assert (await heartbeat).partitions == ()
    assert await page


async def test_a_step_of_a_test_may_take_longer_than_a_heartbeat(
    ports: Ports, client: AgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partitions.vipu.agent.client.TEST_SECONDS", PATIENCE_SECONDS)
    await client.inject(Fault(FaultKind.HANG))
    async with AgentClient(f"127.0.0.1:{ports.api}", deadline_seconds=0.1) as hasty:
        step = asyncio.create_task(hasty.test(MachineTest.IPU_SELF_TEST, 0))
        for _ in range(2):
            with pytest.raises(Unavailable):
                await hasty.health()
        assert not step.done()
        await client.repair()
        assert await step == ""


async def test_a_hang_ends_at_its_time(client: AgentClient, clock: Clock) -> None:
    await client.inject(Fault(FaultKind.HANG), timedelta(seconds=30))
    heartbeat = asyncio.create_task(client.health())
    done, _ = await asyncio.wait((heartbeat,), timeout=0.3)
    assert not done
    clock.forward(30)
    assert (await heartbeat).faults == {}


async def test_health_and_reflection_are_those_of_any_grpc_server(ports: Ports) -> None:
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.api}") as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        for name in ("", SERVICE):
            answer = await check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        answers = [answer async for answer in call(iter([question]))]
    names = {one.name for one in answers[0].list_services_response.service}
    assert {SERVICE, "grpc.health.v1.Health"} <= names


async def test_with_tls_only_a_client_with_a_certificate_is_answered(
    tmp_path: Path, start: Starter
) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    certificate, key = write(first, tmp_path / "server", ("127.0.0.1",))
    ours, strange = write(second, tmp_path / "ours"), write(first, tmp_path / "strange")
    (ports,) = await start(tls_certificate=certificate, tls_key=key, client_ca=second.ca_file)
    address = f"127.0.0.1:{ports.api}"
    tls = ClientTls(first.ca_file, *ours)
    async with AgentClient(address, deadline_seconds=20, tls=tls) as client:
        assert (await client.health()).faults == {}
    files = [tls()]
    async with AgentClient(address, deadline_seconds=20, tls=lambda: files[0]) as client:
        await client.inject(Fault(FaultKind.HANG))
        heartbeat = asyncio.create_task(client.health())
        await asyncio.wait({heartbeat}, timeout=0.2)
        files[0] = replace(files[0])
        await client.repair()
        with pytest.raises(Unavailable, match="the connection was closed; try again"):
            await heartbeat  # which does not end who asks, as a vipu-server that follows the agent
        assert (await client.health()).faults == {}
    for refused in (None, ClientTls(first.ca_file), ClientTls(first.ca_file, *strange)):
        async with AgentClient(address, deadline_seconds=0.5, tls=refused) as client:
            with pytest.raises(Unavailable):
                await client.health()
