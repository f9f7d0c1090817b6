"""A V-IPU controller that answers reads and no writes, beside a working controller."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from ipuhub.partition import Phase
from partitions.proxy import metrics
from partitions.proxy.capacity import TOTAL, query, stats, stats_in_detail
from partitions.proxy.circuit import Calls, CircuitOptions, CircuitState
from partitions.proxy.drift import Drift
from partitions.proxy.fleet import FleetOptions
from partitions.proxy.fleetmap import fleet_to_json
from partitions.vipu.client import VipuClient
from partitions.vipu.errors import NoAnswer, NotStored
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.options import ServerOptions
from partitions.vipu.types import CreateRequest
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually
from tests.integration.proxy.conftest import TWO, World, request, run_other_tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from partitions.vipu.server.records import PartitionRecord
    from partitions.vipu.server.users import Caller
    from tests.integration.proxy.conftest import Service
from tests.integration.proxy.test_circuit_breaker import HEALTHY


class Halting:
    """The creations of a real vipu-server, which wait until they may go on."""

    def __init__(self, server: VipuServer) -> None:
        self.creations: list[str] = []
        self.go_on = threading.Event()
        self._create = server.controller.create
        server.controller.create = self.create  # type: ignore[method-assign]

    def create(self, wanted: CreateRequest, caller: Caller) -> PartitionRecord:
        self.creations.append(wanted.id)
        assert self.go_on.wait(60)
        return self._create(wanted, caller)


@asynccontextmanager
async def creating_nothing(
    folder: Path, port: int
) -> AsyncIterator[tuple[World, Service, Halting]]:
    """A controller that answers lists and no creations, before another controller in the list."""
    async with before_a_healthy(folder, port) as (world, proxy, server):
        halting = Halting(server)
        try:
            yield world, proxy, halting
        finally:
            halting.go_on.set()


@asynccontextmanager
async def before_a_healthy(
    folder: Path, port: int
) -> AsyncIterator[tuple[World, Service, VipuServer]]:
    """A real controller before another in the list."""
    server = VipuServer(
        ServerOptions(storage=folder / "vipu.json", port=port, create_latency_seconds=0)
    )
    await asyncio.to_thread(server.start)
    hung = f"127.0.0.1:{port}"
    world = World(circuit=CircuitOptions())
    world.vipus[hung] = VipuClient(hung, deadline_seconds=0.5)  # type: ignore[assignment]
    world.fleet_options = FleetOptions(topology_seconds=0, view_seconds=20)
    world.listed = f"{hung}:vipu-ctrl=hung,{HEALTHY}:vipu-ctrl=v1"
    try:
        async with world.process() as proxy:
            yield world, proxy, server
    finally:
        await asyncio.to_thread(server.stop)


async def test_a_controller_that_answers_lists_and_no_creations_holds_up_no_job(
    tmp_path: Path,
) -> None:
    port = free_port()
    hung = f"127.0.0.1:{port}"
    async with creating_nothing(tmp_path, port) as (world, proxy, halting):
        fleet, service = proxy.fleet, proxy.service
        names = ("a", "b", "c")
        await asyncio.gather(*(service.ensure(request(name)) for name in names))

        def where() -> dict[str, str]:
            live = [one for one in world.entries() if one.phase is Phase.ACTIVE]
            return {one.name: one.controller for one in live}

        await eventually(lambda: where() == dict.fromkeys(names, HEALTHY))
        # The clock stands, so that none tries: the next jobs do not even ask it.
        assert len(halting.creations) == 3
        assert (await service.ensure(request("d"))).controller == HEALTHY
        waits = await service.ensure(request("large", size=32))
        assert (waits.phase, waits.reason) == ("waiting", "NoCapacity")
        assert f"out of service: 32 IPUs of {hung} (no answer to creations)" in waits.message
        assert len(halting.creations) == 3

        circuit = fleet.circuits()[hung]
        assert (circuit.state, circuit.of(Calls.CREATE).state) == (
            CircuitState.CLOSED,
            CircuitState.OPEN,
        )
        views, _ = await fleet.recent_views()
        found = query(views, 4)
        assert found["numOfPartitions"] == 4
        assert "no answer to creations: no creations since 2026-11-21T08:00:00Z" in found["message"]
        (first, _) = stats_in_detail({TOTAL: stats([], views)[TOTAL]}, views, Drift())[
            "controllers"
        ]
        assert (first["reachable"], first["message"]) == (True, circuit.held_orders)
        (there, _) = fleet_to_json(views, world.entries(), [])["controllers"]
        assert (there["message"], there["unansweredOrders"]) == ("", circuit.held_orders)
        (order,) = first["circuit"]["orders"]
        assert (order["calls"], order["state"]) == ("create", "open")
        metrics.fill_circuits(fleet.circuits())
        line = f'ipuhub_vipu_circuit_state{{calls="create",controller="{hung}",state="open"}} 1'
        assert line in metrics.PROXY.render().decode()

        # What lands late is nobody's: its tombstone has it removed.
        halting.go_on.set()

        async def landed() -> bool:
            return len(await fleet.listed(hung)) == 3

        await eventually(landed)
        await proxy.sweep.once()

        async def is_empty() -> bool:
            return not await fleet.listed(hung)

        await eventually(is_empty)
        # A job that fits nowhere else tries, and its answer lets all through again.
        world.later(world.circuit.order_pause.max_seconds)
        await service.ensure(request("large", size=32))
        await eventually(lambda: where().get("large") == hung)
        assert fleet.circuits()[hung].orders == ()


async def test_a_job_alone_goes_on_after_the_first_creation_without_an_answer(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with creating_nothing(tmp_path, port) as (world, proxy, halting):
        await proxy.service.ensure(request())

        def live() -> list[str]:
            return [one.controller for one in world.entries() if one.phase is Phase.ACTIVE]

        await eventually(lambda: live() == [HEALTHY])
        assert len(halting.creations) == 1
        assert proxy.fleet.circuits()[f"127.0.0.1:{port}"].orders == ()
        halting.go_on.set()

        async def listed() -> int:
            return len(await proxy.fleet.listed(f"127.0.0.1:{port}"))

        await eventually(listed)
        await proxy.sweep.once()
        assert (await listed(), live()) == (0, [HEALTHY])


async def test_a_job_alone_goes_on_after_the_first_creation_that_could_not_be_stored(
    world: World,
) -> None:
    second = world.add_vipu("v2:8090")
    world.listed, world.circuit = TWO, CircuitOptions()
    proxy = await world.start()
    world.vipu.create_refused = [NotStored("the controller cannot write its state file")]
    record = await proxy.service.ensure(request())
    assert (record.phase, record.controller) == ("active", "v2:8090")
    assert (world.vipu.created, second.created) == ([], [record.id])


async def test_slow_controllers_do_not_send_a_job_back_and_forth(world: World) -> None:
    """Each makes the partition after the deadline: the second is waited for."""
    second, _ = world.add_vipu("v2:8090"), world.add_vipu("v3:8090")
    world.listed, world.circuit = f"{TWO},v3:8090:vipu-ctrl=v3", CircuitOptions()
    creations = dict.fromkeys(world.vipus, 0)
    for at, vipu in world.vipus.items():
        vipu.create_refused = [NoAnswer(f"{at}: no answer")] * 2
        vipu.before_create = lambda _, at=at: creations.update({at: creations[at] + 1})  # type: ignore[misc]
    proxy = await world.start()
    record = await proxy.service.ensure(request())
    assert (record.phase, record.controller) == ("active", "v2:8090")
    assert creations == {HEALTHY: 1, "v2:8090": 3, "v3:8090": 0}
    assert (world.vipu.created, second.created) == ([], [record.id])


async def test_a_job_does_not_go_on_to_a_controller_that_left_the_last_creation_unanswered(
    world: World,
) -> None:
    second = world.add_vipu("v2:8090")
    world.listed, world.circuit = TWO, CircuitOptions()
    proxy = await world.start()
    second.create_refused = [NoAnswer("v2:8090: no answer")]
    with pytest.raises(NoAnswer):
        await proxy.fleet.api("v2:8090").create_partition(CreateRequest("p", 4))
    world.vipu.create_refused = [NoAnswer("v1:8090: no answer")]
    record = await proxy.service.ensure(request())
    assert (record.phase, record.controller) == ("active", HEALTHY)
    assert second.created == []


async def test_a_job_keeps_its_place_where_the_room_elsewhere_is_reserved(world: World) -> None:
    second = world.add_vipu("v2:8090", machines=1)
    second.polls, world.answer_seconds = 10**6, 0.01
    world.listed, world.circuit = "v2:8090:vipu-ctrl=v2", CircuitOptions()
    proxy = await world.start()

    async def never(request: CreateRequest) -> str:
        return request.id  # accepted, and not listed yet

    second.create_partition = never  # type: ignore[method-assign]
    await proxy.service.ensure(request("first"))
    world.listed = TWO
    proxy.fleet.reload()
    world.vipu.create_refused = [NoAnswer("v1:8090: no answer")]
    await proxy.service.ensure(request("second"))
    await eventually(lambda: proxy.service.find("uid-second", 0).phase == "active")
    assert proxy.service.find("uid-second", 0).controller == HEALTHY
    assert [waiter.holder for waiter, _ in proxy.service.in_turn()] == []


async def test_a_job_leaves_a_controller_that_falls_silent_under_its_creation(
    world: World,
) -> None:
    world.add_vipu("v2:8090")
    world.listed, world.circuit = TWO, CircuitOptions()

    async def fall_silent() -> None:
        world.vipu.down = NoAnswer("v1:8090: no answer")
        raise world.vipu.down

    world.vipu.on_write = fall_silent  # it is made, and nothing is answered from then on
    proxy = await world.start()
    assert (await proxy.service.ensure(request())).controller == "v2:8090"
    world.vipu.down = world.vipu.on_write = None
    world.later(60)
    await eventually(lambda: proxy.service.find("uid-job", 0).phase == "active")
    await proxy.sweep.once()
    assert world.vipu.partitions == {}
    assert len(world.vipus["v2:8090"].partitions) == 1


async def test_a_job_that_fits_nowhere_else_keeps_its_place_and_is_the_one_that_tries(
    tmp_path: Path,
) -> None:
    port = free_port()
    async with creating_nothing(tmp_path, port) as (world, proxy, halting):
        world.vipu.by_hand("full", 32)
        world.answer_seconds = 0.01
        await proxy.service.ensure(request())
        sentence = "does not answer creations, and no other V-IPU controller fits"
        await eventually(lambda: sentence in world.entry().message)
        assert (world.entry().reason, len(halting.creations)) == ("ControllerUnavailable", 3)
        halting.go_on.set()
        world.later(world.circuit.order_pause.max_seconds)
        await eventually(lambda: world.entry().phase is Phase.ACTIVE)
        assert list(await proxy.fleet.listed(world.entry().controller)) == [world.entry().id]


async def test_what_a_dead_proxy_may_have_asked_for_has_a_tombstone_where_it_may_come(
    world: World,
) -> None:
    world.add_vipu("v2:8090")
    world.listed, world.circuit = TWO, CircuitOptions()

    async def hang() -> None:
        await asyncio.Event().wait()

    world.vipu.on_write = hang  # it is made, and the answer does not come
    async with world.process() as dead:
        asking = asyncio.create_task(dead.service.ensure(request()))
        await eventually(lambda: bool(world.vipu.created))
    asking.cancel()
    world.vipu.partitions.clear()
    proxy = await world.start()
    world.vipu.create_refused = [NoAnswer("v1:8090: no answer")] * 3
    for _ in range(3):
        with pytest.raises(NoAnswer):
            await proxy.fleet.api(HEALTHY).create_partition(CreateRequest("p", 4))
    await proxy.service.resume(("uid-job", 0))
    first, second = sorted(world.entries(), key=lambda one: one.serial)
    assert (first.controller, first.phase, first.may_come) == (HEALTHY, Phase.RELEASED, True)
    assert (second.controller, second.phase) == ("v2:8090", Phase.ACTIVE)


async def test_a_controller_that_answers_all_but_removals_gets_everything_else(
    world: World,
) -> None:
    world.circuit = CircuitOptions()
    world.answer_seconds = 0.01
    proxy = await world.start()
    await proxy.service.ensure(request())
    await eventually(lambda: world.entry().phase is Phase.ACTIVE)
    world.vipu.remove_refused = [NoAnswer("v1:8090: no answer")] * 9
    await proxy.service.release("uid-job", 0)
    await eventually(lambda: bool(proxy.fleet.circuits()[HEALTHY].orders))
    await run_other_tasks()
    assert world.vipu.removes == 3
    other = await proxy.service.ensure(request("other"))
    await eventually(lambda: proxy.service.find("uid-other", 0).phase == "active")
    assert other.controller == HEALTHY
    world.vipu.remove_refused = []
    world.later(world.circuit.order_pause.max_seconds)
    await eventually(lambda: proxy.service.find("uid-job", 0).phase == "released")
    assert proxy.fleet.circuits()[HEALTHY].orders == ()


async def test_a_controller_that_cannot_write_its_state_holds_up_no_job(tmp_path: Path) -> None:
    port, folder = free_port(), tmp_path / "full"
    folder.mkdir()
    async with before_a_healthy(folder, port) as (world, proxy, _):
        folder.rename(tmp_path / "gone")
        names = ("a", "b", "c", "d")
        await asyncio.gather(*(proxy.service.ensure(request(name)) for name in names))

        def where() -> dict[str, str]:
            live = [one for one in world.entries() if one.phase is Phase.ACTIVE]
            return {one.name: one.controller for one in live}

        await eventually(lambda: where() == dict.fromkeys(names, HEALTHY))
        facts = proxy.fleet.circuits()[f"127.0.0.1:{port}"]
        states = facts.state, facts.of(Calls.CREATE).state
        assert states == (CircuitState.CLOSED, CircuitState.OPEN)
        views, _ = await proxy.fleet.recent_views()
        found = query(views, 4)
        assert found["numOfPartitions"] == 4
        message = f"creations fail: 127.0.0.1:{port}: the controller cannot write its state file"
        assert message in found["message"]

        (tmp_path / "gone").rename(folder)
        world.later(world.circuit.order_pause.max_seconds)
        await proxy.service.ensure(request("large", size=32))
        await eventually(lambda: where().get("large") == f"127.0.0.1:{port}")
        assert proxy.fleet.circuits()[f"127.0.0.1:{port}"].orders == ()
