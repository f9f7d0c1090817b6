"""A V-IPU controller that accepts connections and never answers, beside a working controller."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ipuhub.partition import Phase
from partitions.proxy import metrics
from partitions.proxy.circuit import CircuitOpen, CircuitOptions, CircuitState
from partitions.proxy.fleet import FleetOptions
from partitions.vipu.client import VipuClient
from partitions.vipu.errors import NoAnswer, NoCapacity, NotFound, Unavailable, VipuError
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.options import ServerOptions
from partitions.vipu.types import CreateRequest
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import World, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from partitions.proxy.fleet import Fleet
    from tests.integration.proxy.conftest import Service

HEALTHY = "v1:8090"


@asynccontextmanager
async def hanging(port: int) -> AsyncIterator[None]:
    """A server that accepts and never says a word."""
    writers: list[asyncio.StreamWriter] = []

    def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()


def state(fleet: Fleet, address: str = HEALTHY) -> CircuitState:
    return fleet.circuits()[address].state


async def silence(fleet: Fleet, address: str = HEALTHY) -> None:
    """Ask a controller until the breaker opens, as the watch of the fleet does every 5 s."""
    spec = fleet.spec_of(address)
    assert spec is not None

    async def opened() -> bool:
        assert not (await fleet.view(spec)).is_reachable
        return state(fleet, address) is CircuitState.OPEN

    await eventually(opened)


async def test_a_controller_that_hangs_delays_nobody_else_and_is_used_again_when_it_answers(
    tmp_path: Path,
) -> None:
    port = free_port()
    hung = f"127.0.0.1:{port}"
    world = World(circuit=CircuitOptions(trial_seconds=20))
    world.vipus[hung] = VipuClient(hung, deadline_seconds=0.2)  # type: ignore[assignment]
    world.fleet_options = FleetOptions(topology_seconds=0, view_seconds=20)
    world.listed = f"{hung}:vipu-ctrl=hung,{HEALTHY}:vipu-ctrl=v1"
    world.answer_seconds = 0.01
    server = VipuServer(ServerOptions(storage=tmp_path / "vipu.json", port=port))
    async with world.process() as proxy:
        await run_beside_a_hanging_one(world, proxy, hung, server)
    await asyncio.to_thread(server.stop)


async def run_beside_a_hanging_one(
    world: World, proxy: Service, hung: str, server: VipuServer
) -> None:
    fleet = proxy.fleet
    async with hanging(int(hung.rpartition(":")[2])):
        await silence(fleet, hung)
        # The clock stands: nothing is sent to it from here on, so that nobody can wait for it.
        orders = (
            fleet.api(hung).create_partition(CreateRequest("p", 4)),
            fleet.api(hung).partition_status("p"),
            fleet.api(hung).reset_partition("p"),
            fleet.api(hung).remove_partition("p"),
            fleet.listed(hung),
        )
        for order in orders:
            with pytest.raises(CircuitOpen, match=f"{hung}.*no calls for a while"):
                await order
        await proxy.service.ensure(request("quick"))
        await eventually(lambda: world.entry().phase is Phase.ACTIVE)
        assert world.entry().controller == HEALTHY
        waits = await proxy.service.ensure(request("large", size=32))
        assert waits.phase == "waiting"
    server.start()
    world.later(world.circuit.pause.max_seconds)

    async def runs() -> bool:
        # gRPC itself connects again within 5 s.
        world.later(world.circuit.pause.max_seconds)
        answer = await proxy.service.ensure(request("large", size=32))
        return answer.phase == "active"

    await eventually(runs)
    assert state(fleet, hung) is CircuitState.CLOSED
    assert {entry.controller for entry in world.entries()} == {HEALTHY, hung}
    assert len(await fleet.listed(hung)) == 1


async def test_what_falls_silent_after_it_was_chosen_is_not_waited_for(world: World) -> None:
    """Nothing was sent, so that nothing can come: the proxy calls another controller, and no
    tombstone waits for a partition."""
    world.add_vipu("v2:8090")
    world.listed = "v1:8090:vipu-ctrl=v1,v2:8090:vipu-ctrl=v2"
    world.circuit = CircuitOptions()
    proxy = await world.start()
    views = await proxy.fleet.views()
    world.vipu.down = NoAnswer("v1:8090: no answer")
    for _ in range(3):
        with pytest.raises(NoAnswer):
            await proxy.fleet.api(HEALTHY).partition_status("p")
    answers = [views, [replace(views[0], topology=None), views[1]]]

    async def next_views() -> object:
        return answers.pop(0)

    proxy.fleet.views = next_views  # type: ignore[method-assign,assignment]
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    assert world.entry().controller == "v2:8090"
    assert world.vipus["v1:8090"].created == []


async def test_a_reset_or_release_goes_on_once_the_controller_answers(world: World) -> None:
    world.circuit = CircuitOptions()
    world.answer_seconds = 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    world.vipu.down = NoAnswer("v1:8090: no answer")
    await silence(proxy.fleet)
    await proxy.service.release("uid-job", 0)
    await eventually(lambda: world.entry().reason == "ControllerUnavailable")
    # Stored once, so it has no time that will be past.
    assert world.entry().message == "v1:8090: no answer; no calls for a while"
    world.vipu.down = None
    removals = world.vipu.removes
    world.later(world.circuit.pause.max_seconds)
    await eventually(lambda: world.entry().phase is Phase.RELEASED)
    assert (removals, world.vipu.removes, world.vipu.partitions) == (0, 1, {})


@pytest.mark.parametrize(
    "error",
    [
        NotFound("no p"),
        NoCapacity("full"),
        VipuError("internal"),
        Unavailable("our certificate cannot be read"),
    ],
)
async def test_no_answer_counts_and_nothing_else_does(world: World, error: VipuError) -> None:
    proxy = await world.start()
    api = proxy.fleet.api(HEALTHY)
    world.vipu.down = NoAnswer("v1:8090: no answer")
    for _ in range(2):
        with pytest.raises(NoAnswer):
            await api.partition_status("p")
    world.vipu.down = error
    for _ in range(9):
        with pytest.raises(type(error)):
            await api.partition_status("p")
    assert state(proxy.fleet) is CircuitState.CLOSED


async def test_who_stops_waiting_for_the_trial_leaves_it_to_the_next(world: World) -> None:
    proxy = await world.start()
    world.vipu.down = NoAnswer("v1:8090: no answer")
    await silence(proxy.fleet)
    api, arrive, has_arrived = proxy.fleet.api(HEALTHY), world.vipu._arrive, asyncio.Event()

    async def hang() -> None:
        has_arrived.set()
        await asyncio.Event().wait()

    world.vipu._arrive = hang  # type: ignore[method-assign]
    trial = asyncio.create_task(api.partition_status("p"))
    await has_arrived.wait()
    assert "a trial is under way" in proxy.fleet.problem
    with pytest.raises(CircuitOpen, match="no calls for a while"):
        await api.partition_status("p")
    trial.cancel()
    await asyncio.gather(trial, return_exceptions=True)
    world.vipu._arrive, world.vipu.down = arrive, None  # type: ignore[method-assign]
    assert await api.list_partitions() == []
    assert state(proxy.fleet) is CircuitState.CLOSED


async def test_a_trial_has_a_short_limit_of_its_own(world: World) -> None:
    world.circuit = replace(world.circuit, trial_seconds=0.01)
    proxy = await world.start()
    world.vipu.down = NoAnswer("v1:8090: no answer")
    await silence(proxy.fleet)

    async def hang() -> None:
        await asyncio.Event().wait()

    world.vipu._arrive = hang  # type: ignore[method-assign]
    with pytest.raises(NoAnswer, match=r"v1:8090: no answer in 0.01 s"):
        await proxy.fleet.api(HEALTHY).partition_status("p")
    assert state(proxy.fleet) is CircuitState.OPEN


async def test_a_list_of_before_says_nothing_of_the_trial_that_is_under_way(world: World) -> None:
    world.circuit = replace(world.circuit, failures=1)
    world.fleet_options = replace(world.fleet_options, view_seconds=0.05)
    proxy = await world.start()
    api, arrive, has_arrived = proxy.fleet.api(HEALTHY), world.vipu._arrive, asyncio.Event()

    async def hang() -> None:
        has_arrived.set()
        await asyncio.Event().wait()

    world.vipu._arrive = hang  # type: ignore[method-assign]
    old = asyncio.create_task(proxy.fleet.listed(HEALTHY))
    await has_arrived.wait()
    world.vipu._arrive, world.vipu.down = arrive, NoAnswer("v1:8090: no answer")  # type: ignore[method-assign]
    with pytest.raises(NoAnswer):
        await api.partition_status("p")
    assert state(proxy.fleet) is CircuitState.OPEN
    world.vipu._arrive, world.vipu.down = hang, None  # type: ignore[method-assign]
    trial = asyncio.create_task(api.partition_status("p"))
    with pytest.raises(NoAnswer, match="no answer in 0.05 s"):
        await old
    assert state(proxy.fleet) is CircuitState.HALF_OPEN
    trial.cancel()


async def test_a_controller_that_was_taken_off_the_list_is_forgotten(world: World) -> None:
    world.add_vipu("v2:8090", down=NoAnswer("v2:8090: no answer"))
    world.listed = "v1:8090:vipu-ctrl=v1,v2:8090:vipu-ctrl=v2"
    proxy = await world.start()
    await silence(proxy.fleet, "v2:8090")
    world.listed = "v1:8090:vipu-ctrl=v1"
    proxy.fleet.reload()
    for _ in range(3):
        world.later(300)
        with pytest.raises(VipuError):
            await proxy.fleet.listed("v2:8090")  # something of ours is still there
        await proxy.fleet.forget_unused()
        assert state(proxy.fleet, "v2:8090") is CircuitState.OPEN
    world.later(600)
    await proxy.fleet.forget_unused()
    assert "v2:8090" not in proxy.fleet.circuits()


async def test_the_metrics_show_its_state_and_count_outages(world: World) -> None:
    def metric_value(text: str) -> float:
        line = next(line for line in metrics.PROXY.render().decode().splitlines() if text in line)
        return float(line.rpartition(" ")[2])

    proxy = await world.start()
    await proxy.fleet.views()
    trips = 'ipuhub_vipu_circuit_trips_total{calls="all",controller="v1:8090"}'
    before = metric_value(trips)
    world.vipu.down = NoAnswer("v1:8090: no answer")
    await silence(proxy.fleet)
    for _ in range(3):
        await proxy.fleet.views()  # each a trial that fails
    metrics.fill_circuits(proxy.fleet.circuits())
    assert metric_value(trips) == before + 1
    of_v1 = 'ipuhub_vipu_circuit_state{calls="all",controller="v1:8090",state='
    states = {each.value: metric_value(f'{of_v1}"{each}"}}') for each in CircuitState}
    assert states == {"open": 1, "half-open": 0, "closed": 0}
