"""`vipu-admin drain agent`: partitions that are moved, waited for, or ended."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.agent.client import AgentClient
from partitions.vipu.agent.machine import Fault, FaultKind
from partitions.vipu.cli import admin, draincommand
from partitions.vipu.client import AdminClient, CreateRequest, VipuClient
from partitions.vipu.errors import NotReady
from partitions.vipu.protos import vipu_admin_pb2 as pb
from partitions.vipu.server.drain import FREEING, DrainOrder
from partitions.vipu.types import ReadyState
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually, wait_until
from tests.integration.vipu.agentmachines import state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from partitions.vipu.server.controller import Controller
    from partitions.vipu.server.main import VipuServer
    from tests.integration.vipu.agentmachines import Machine

    Start = Callable[..., tuple[VipuServer, int]]
    Said = pytest.CaptureFixture[str]

STAYS = "it is not relocatable: it leaves when its owner removes it, or with --force"


@pytest.fixture
def published_only() -> bool:
    return False


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command asks again at once."""
    monkeypatch.setattr(draincommand, "POLL_SECONDS", 0.02)


@pytest.fixture
def four(start_server: Start) -> VipuServer:
    """A server of four machines, at once done."""
    return start_server(machines=4, admin_port=0, create_latency_seconds=0)[0]


async def serve(start: Start, *run: Machine, lost_seconds: float) -> tuple[VipuServer, int]:
    """Start a server of these machines' agents; return it and its port."""
    agents = ",".join(each.address for each in run)
    options = {"agents": agents, "admin_port": 0, "agent_lost_seconds": lost_seconds}
    return await asyncio.to_thread(start, **options)


class Command:
    """`vipu-admin drain agent ag0` on a thread."""

    def __init__(self, server: VipuServer, *words: str) -> None:
        self.code: int | None = None
        where = ("-H", "127.0.0.1", "--api-port", str(server.admin_port))
        command = ["drain", "agent", "ag0", *words, *where]
        self._thread = threading.Thread(target=self._run, args=(command,), daemon=True)
        self._thread.start()

    def _run(self, command: list[str]) -> None:
        self.code = admin.main(command)

    def end(self) -> int | None:
        """Its exit code."""
        self._thread.join(60)
        return self.code


def drained(server: VipuServer, *words: str) -> int | None:
    return Command(server, *words).end()


def agents_of(controller: Controller, name: str) -> set[str]:
    by_id = controller.topology.by_id
    return {by_id[ipu].agent for ipu in controller.get(name).ipus}


def events(controller: Controller) -> list[tuple[str, dict[str, str]]]:
    return [(one.what, dict(one.facts)) for one in controller.events.last()[0]]


def test_what_is_relocatable_moves_and_the_rest_is_waited_for_by_name(
    four: VipuServer, capsys: Said
) -> None:
    controller = four.controller
    controller.create(CreateRequest("stays", 1))
    controller.create(CreateRequest("moves", 2, relocatable=True))
    controller.create(CreateRequest("elsewhere", 4))
    capsys.readouterr()
    command = Command(four, "--reason", "new cables")
    wait_until(lambda: agents_of(controller, "moves") == {"ag2"}, "it moves")
    seen: list[str] = []

    def waits() -> bool:
        seen.append(capsys.readouterr().err)
        return "waiting for" in "".join(seen)

    wait_until(waits, "the other one is named")
    assert controller.get("moves").ready_state(controller.clock()) is ReadyState.ACTIVE
    assert controller.get("stays").errors == ()  # it may end in peace
    assert (controller.machines["ag0"].cordon, command.code) == ("new cables", None)
    controller.remove("stays")
    assert command.end() == 0
    out, err = capsys.readouterr()
    assert "".join([*seen, err]).splitlines() == [
        "ag0 is cordoned",
        "partition moves has moved to ag2",
        f"waiting for partition stays: {STAYS}",
        "partition stays is gone",
    ]
    assert out.endswith("drain agent (ag0): success.\n")
    facts = {"partition": "moves", "agent": "ag0", "to": "ag2"}
    assert ("partition moved by a drain", facts) in events(controller)
    assert agents_of(controller, "elsewhere") == {"ag1"}
    cordons = [what for what, _ in events(controller)].count("machine cordoned")
    assert cordons == 1  # however often it has been asked


def test_what_remains_is_exit_code_1_at_once_or_after_a_time(
    four: VipuServer, capsys: Said
) -> None:
    four.controller.create(CreateRequest("p", 4))
    assert drained(four, "--no-wait") == 1
    output = capsys.readouterr().err
    assert f"drain agent (ag0): failed: not empty: p: {STAYS}. The machine stays cor" in output
    assert drained(four, "--timeout", "0.1") == 1
    assert f"failed: not empty after 0.1 s: p: {STAYS}. " in capsys.readouterr().err
    assert four.controller.get("p").ready_state(four.controller.clock()) is ReadyState.ACTIVE
    assert four.controller.machines["ag0"].cordon == ""
    four.controller.remove("p")
    assert drained(four, "--no-wait") == 0


def test_force_ends_what_cannot_move_and_nothing_else(four: VipuServer, capsys: Said) -> None:
    controller = four.controller
    for agent in ("ag2", "ag3"):
        controller.cordon(agent, "")
    for name, size in (("small", 1), ("large", 2)):
        controller.create(CreateRequest(name, size, relocatable=True))
    controller.create(CreateRequest("taken", 2))
    controller.create(CreateRequest("job", 1))
    capsys.readouterr()
    # Two IPUs of ag1 are free: the larger one gets them, though the smaller one was there first.
    assert agents_of(controller, "taken") == {"ag1"}
    done = controller.drain(DrainOrder(agent="ag0"))
    assert done.moved == {"large": ("ag1",)}
    assert done.remaining == {
        "small": "no block of 1 IPU is free in allocation default to move it to: it moves when one "
        "is, or is removed by its owner or with --force",
        "job": STAYS,
    }
    capsys.readouterr()
    assert drained(four, "--force") == 0
    assert sorted(one.id for one in controller.list()) == ["large", "taken"]
    assert "partition job has been ended" in capsys.readouterr().err
    ended = {facts["partition"] for what, facts in events(controller) if "ended by" in what}
    assert ended == {"small", "job"}


def test_a_running_drain_leaves_the_cordons_reason_to_whoever_gave_the_last(
    four: VipuServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = four.controller
    controller.create(CreateRequest("p", 4))
    controller.cordon("ag0", "new cables")
    since = controller.machines["ag0"]
    controller.drain(DrainOrder(agent="ag0"))
    assert controller.machines["ag0"] == since
    controller.drain(DrainOrder(agent="ag0", reason="more cables", resume=True))
    assert controller.machines["ag0"] == since
    drain, orders = controller.drain, list[DrainOrder]()
    monkeypatch.setattr(controller, "drain", lambda order: orders.append(order) or drain(order))
    commands = []
    for reason in ("more cables", "cables of Monday"):
        commands.append(Command(four, "--reason", reason))
        wait_until(lambda: controller.machines["ag0"].cordon == reason, reason)  # noqa: B023
    controller.cordon("ag0", "a new board")
    seen = len(orders)
    wait_until(lambda: len(orders) > seen + 6, "both ask again")
    assert controller.machines["ag0"].cordon == "a new board"
    cordons = [what for what, _ in events(controller)].count("machine cordoned")
    assert {one.reason for one in orders if one.resume} == {None}
    assert cordons == 4  # one for each reason, however often it was asked
    controller.uncordon("ag0")
    assert [command.end() for command in commands] == [1, 1]
    assert "ag0" not in controller.machines  # nobody cordons it again
    with pytest.raises(NotReady, match="ag0 is no longer cordoned"):
        controller.drain(DrainOrder(agent="ag0", resume=True))


def test_a_controller_that_restarts_does_not_end_a_drain(start_server: Start, capsys: Said) -> None:
    options = {"machines": 4, "admin_port": free_port(), "create_latency_seconds": 0}
    first, _ = start_server(**options)
    first.controller.create(CreateRequest("p", 4))
    command = Command(first)
    wait_until(lambda: "ag0" in first.controller.machines, "it is cordoned")
    first.stop()
    wait_until(lambda: "Trying again until Ctrl-C" in capsys.readouterr().err, "it says so")
    second, _ = start_server(**options)
    assert command.code is None
    second.controller.remove("p")
    assert command.end() == 0


async def test_machines_give_up_what_is_moved_and_what_is_ended(
    start_server: Start, machines: Callable[..., list[Machine]]
) -> None:
    old, new = machines(2)
    server, port = await serve(start_server, old, new, lost_seconds=80)
    async with (
        VipuClient(f"127.0.0.1:{port}", deadline_seconds=60) as vipu,
        AdminClient(f"127.0.0.1:{server.admin_port}", deadline_seconds=60) as administrator,
    ):
        for name, relocatable in (("moves", True), ("job", False)):
            await vipu.create_partition(CreateRequest(name, 2, relocatable=relocatable))
            await eventually(lambda name=name: is_active(vipu, name))  # type: ignore[misc]
        assert sorted(await old.names()) == ["job", "moves"]
        order = pb.DrainAgentRequest(agent_id="ag0", force=True)
        first = await administrator.ask("DrainAgent", order)
        assert [(one.partition_id, list(one.agent_ids)) for one in first.moved] == [
            ("moves", ["ag1"])
        ]
        assert list(first.ended) == ["job"]
        reasons = {one.partition_id: one.why for one in first.remaining}
        assert reasons.pop("job") == "it is being removed"
        assert reasons in ({}, {"moves": FREEING})  # the machine may have been fast
        await eventually(lambda: is_active(vipu, "moves"))
        await eventually(old.names, lambda names: names == [])
        assert await new.names() == ["moves"]

        async def remaining() -> int:
            return len((await administrator.ask("DrainAgent", order)).remaining)

        await eventually(remaining, lambda number: number == 0)
        assert [one.id for one in await vipu.list_partitions()] == ["moves"]


async def test_what_has_moved_remains_until_the_old_machine_has_freed_it(
    start_server: Start, machines: Callable[..., list[Machine]], capsys: Said
) -> None:
    old, new = machines(2)
    server, port = await serve(start_server, old, new, lost_seconds=80)
    async with (
        VipuClient(f"127.0.0.1:{port}", deadline_seconds=60) as vipu,
        AgentClient(old.address, deadline_seconds=60) as agent,
    ):
        await vipu.create_partition(CreateRequest("moves", 2, relocatable=True))
        await eventually(lambda: is_active(vipu, "moves"))
        await agent.inject(Fault(FaultKind.HANG))
        command = Command(server)
        await eventually(lambda: agents_of(server.controller, "moves") == {"ag1"})
        await eventually(lambda: is_active(vipu, "moves"))
        assert await asyncio.to_thread(drained, server, "--no-wait") == 1
        assert f"not empty: moves: {FREEING}. The machine stays" in capsys.readouterr().err
        assert command.code is None
        # A server that has just been started does not know yet what the machine has.
        assert server._links is not None
        server._links._links["ag0"].held = None
        assert await asyncio.to_thread(drained, server, "--no-wait") == 1
        unheard = "ag0 has not answered since vipu-server was started"
        outputs = [capsys.readouterr().err]
        assert f"failed: not empty: {unheard}. The machine" in outputs[0]
        patient = Command(server)

        def times() -> int:
            outputs.append(capsys.readouterr().err)
            return "".join(outputs).count(
                "waiting for ag0: it has not answered since vipu-server was"
            )

        await eventually(lambda: times() >= 3)  # by each of the commands
        assert "ag0 no longer holds" not in "".join(outputs)
        assert patient.code is None
        await agent.repair()
        assert await asyncio.to_thread(command.end) == 0
        assert await asyncio.to_thread(patient.end) == 0
        assert await old.names() == []
    assert "ag0 no longer holds partition moves\n" in capsys.readouterr().err


async def test_nobody_waits_for_a_lost_machine_to_free_what_has_moved(
    start_server: Start, machines: Callable[..., list[Machine]]
) -> None:
    old, new = machines(2)
    server, port = await serve(start_server, old, new, lost_seconds=3)
    async with VipuClient(f"127.0.0.1:{port}", deadline_seconds=60) as vipu:
        await vipu.create_partition(CreateRequest("moves", 2, relocatable=True))
        await eventually(lambda: is_active(vipu, "moves"))
        old.kill()
        await eventually(lambda: "ag0" in server.controller.machines)
        assert await asyncio.to_thread(drained, server) == 0


async def is_active(vipu: VipuClient, name: str) -> bool:
    return await state_of(vipu, name) is ReadyState.ACTIVE
