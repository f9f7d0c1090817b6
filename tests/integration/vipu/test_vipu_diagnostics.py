"""`vipu-admin diagnostics` against a real vipu-server, with simulated machines and with agents."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING

import pytest

from partitions.vipu.agent.client import AgentClient
from partitions.vipu.agent.machine import Fault, FaultKind, MachineTest
from partitions.vipu.agent.main import AgentOptions, VipuAgent
from partitions.vipu.cli.admin import main
from partitions.vipu.cli.diagnosticcommands import bar
from partitions.vipu.client import AdminClient, CreateRequest
from partitions.vipu.errors import InvalidRequest, NotFound, NotReady
from partitions.vipu.protos import vipu_diagnostics_pb2 as pb
from partitions.vipu.protos import vipu_fleet_pb2 as fleet_pb
from partitions.vipu.server.diagnostics import KEPT, Diagnostics, DiagnosticState
from tests.fakes.waiting import PATIENCE_SECONDS, eventually, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from partitions.vipu.server.main import VipuServer
    from tests.integration.vipu.agentmachines import Machine

    Start = Callable[..., tuple[VipuServer, int]]
    Said = pytest.CaptureFixture[str]


@pytest.fixture
def published_only() -> bool:
    return False


@pytest.fixture
def start(start_server: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    """start(**options) -> as start_server; the environment names the admin port."""

    def begin(**options: object) -> tuple[VipuServer, int]:
        server, port = start_server(admin_port=0, create_latency_seconds=0, **options)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("VIPU_CLI_API_HOST", "127.0.0.1")
        monkeypatch.setenv("VIPU_CLI_ADMIN_PORT", str(server.admin_port))
        return server, port

    return begin


def outcomes(capsys: Said, *command: str) -> tuple[int, list[tuple[str, int | None, str, str]]]:
    """Exit code, and agent, IPU, outcome and message of each step."""
    capsys.readouterr()
    code = main(["diagnostics", *command, "--output", "json"])
    out = capsys.readouterr().out
    found = json.loads("\n".join(line for line in out.splitlines() if not line.startswith("20")))
    return code, [
        (
            one["agent_id"],
            one.get("ipu"),
            one["outcome"].removeprefix("OUTCOME_"),
            one["message"],
        )
        for one in found["results"]
    ]


def test_a_fault_fails_its_ipu_and_a_partition_is_not_disturbed(start: Start, capsys: Said) -> None:
    server, _ = start(machines=2, ipus_per_machine=2)
    server.controller.create(CreateRequest("p", 1))
    server.controller.fail_ipu("ag1", 1, "IPU 1 is hot")
    assert outcomes(capsys, "ipu-self-test") == (
        1,
        [
            ("ag0", 0, "SKIPPED", "partition p uses it; remove that first"),
            ("ag0", 1, "PASSED", ""),
            ("ag1", 0, "PASSED", ""),
            ("ag1", 1, "FAILED", "ag1: IPU 1 is hot"),
        ],
    )
    code, steps = outcomes(capsys, "sync", "--agents", "ag0")
    assert (code, [one[2] for one in steps]) == (0, ["SKIPPED"])
    assert main(["diagnostics", "get", "d2"]) == 0
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if "|" in line]
    assert [cell.strip() for cell in rows[1]][:6] == ["d2", "sync", "SKIPPED", "1/1", "0", "1"]
    assert [cell.strip() for cell in rows[3]][:3] == ["ag0", "-", "SKIPPED"]
    assert outcomes(capsys, "connectivity") == (
        0,
        [("ag0", None, "PASSED", ""), ("ag1", None, "PASSED", "")],
    )
    server.controller.lose_agent("ag0", "ag0 is away")
    code, steps = outcomes(capsys, "connectivity")
    assert (code, steps[0]) == (1, ("ag0", None, "FAILED", "ag0 is away"))
    assert main(["diagnostics", "list"]) == 0
    out = capsys.readouterr().out
    assert [line.split("|")[0].strip() for line in out.splitlines() if "|" in line][1:] == [
        *("d1", "d2", "d3", "d4"),
    ]
    assert main(["diagnostics", "sync", "--agents", "ag7"]) == 1
    assert "agent_ids: there is no agent 'ag7'" in capsys.readouterr().err
    assert main(["diagnostics", "get", "d9"]) == 1
    assert "no diagnostic 'd9'" in capsys.readouterr().err
    assert main(["diagnostics", "cancel", "d1"]) == 1
    assert "d1 has ended: FAILED" in capsys.readouterr().err


async def test_agents_test_their_machines(
    start: Start, machines: Callable[..., list[Machine]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partitions.vipu.agent.client.TEST_SECONDS", 1.0)
    first, second, third, fourth = machines(4)
    addresses = ",".join(one.address for one in (first, second, third, fourth))
    server, _ = await asyncio.to_thread(start, agents=addresses, agent_lost_seconds=60)
    async with AgentClient(first.address) as agent:
        await agent.inject(Fault(FaultKind.LINK_DOWN, ipu=1, link=3))
    async with AgentClient(second.address) as agent:
        await agent.inject(Fault(FaultKind.IPU_ERROR, ipu=2))
    third.kill()
    async with AgentClient(fourth.address) as agent:
        await agent.inject(Fault(FaultKind.HANG))
    async with AdminClient(f"127.0.0.1:{server.admin_port}") as admin:
        found = {kind: await ended(admin, kind) for kind in (1, 2, 3)}
    assert [(one.agent_id, one.outcome, one.message) for one in found[1].results[:2]] == [
        ("ag0", pb.OUTCOME_FAILED, "IPU-Link 3 of IPU 1 is down"),
        ("ag1", pb.OUTCOME_PASSED, ""),
    ]
    assert all("did not answer" in one.message for one in found[1].results[2:])
    bad = [(one.agent_id, one.ipu) for one in found[2].results if one.outcome == pb.OUTCOME_FAILED]
    assert bad == [("ag1", 2), ("ag2", 0), ("ag3", 0)]
    skipped = [one for one in found[2].results if one.outcome == pb.OUTCOME_SKIPPED]
    assert [(one.agent_id, one.ipu) for one in skipped] == [
        (agent, ipu) for agent in ("ag2", "ag3") for ipu in (1, 2, 3)
    ]
    assert {one.message for one in skipped} == {"the agent has not answered the step before"}
    assert [one.outcome for one in found[3].results] == [pb.OUTCOME_FAILED] * 4
    assert all(one.state == pb.DIAGNOSTIC_STATE_FAILED for one in found.values())
    assert [(one.done, one.steps) for one in found.values()] == [(4, 4), (16, 16), (4, 4)]


async def test_an_agent_that_is_removed_during_its_test_is_named_so(
    start: Start, machines: Callable[..., list[Machine]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partitions.vipu.agent.client.TEST_SECONDS", PATIENCE_SECONDS)
    (machine,) = machines(1)
    server, _ = await asyncio.to_thread(start, machines=0)
    async with (
        AgentClient(machine.address) as agent,
        AdminClient(f"127.0.0.1:{server.admin_port}", deadline_seconds=60) as admin,
    ):
        created = fleet_pb.CreateAgentRequest(agent_id="a1", host="127.0.0.1", port=machine.port)
        await admin.ask("CreateAgent", created)
        await agent.inject(Fault(FaultKind.HANG))
        begun = await admin.ask("StartDiagnostic", pb.StartDiagnosticRequest(kind=2))  # type: ignore[arg-type]
        await admin.ask("RemoveAgent", fleet_pb.RemoveAgentRequest(agent_id="a1"))
        question = pb.GetDiagnosticRequest(diagnostic_id=begun.id)
        found = await eventually(
            lambda: admin.ask("GetDiagnostic", question),
            lambda found: found.state != pb.DIAGNOSTIC_STATE_RUNNING,
        )
    outcomes = {(each.outcome, each.message) for each in found.results}
    assert outcomes == {(pb.OUTCOME_SKIPPED, "a1 was removed while it was tested")}
    assert len(found.results) == 4


async def ended(admin: AdminClient, kind: int) -> pb.Diagnostic:
    begun = await admin.ask("StartDiagnostic", pb.StartDiagnosticRequest(kind=kind))  # type: ignore[arg-type]
    async with asyncio.timeout(60):
        while True:
            question = pb.GetDiagnosticRequest(diagnostic_id=begun.id)
            found: pb.Diagnostic = await admin.ask("GetDiagnostic", question)
            if found.state != pb.DIAGNOSTIC_STATE_RUNNING:
                return found
            await asyncio.sleep(0.05)


@pytest.fixture
async def agent() -> AsyncIterator[AgentClient]:
    agent = VipuAgent(AgentOptions(port=0, exporter_port=0, configure_latency_seconds=0))
    ((port),) = [ports.api for ports in await agent.start()]
    async with AgentClient(f"127.0.0.1:{port}") as client:
        yield client
    await agent.stop()


async def test_an_agent_refuses_an_ipu_that_it_does_not_have(agent: AgentClient) -> None:
    with pytest.raises(InvalidRequest, match="ipu 4: the machine has the IPUs 0 to 3"):
        await agent.test(MachineTest.IPU_SELF_TEST, 4)
    assert await agent.test(MachineTest.IPU_SELF_TEST, 3) == ""


class Hanging:
    """Tests at once, but for ag1, which answers when it may; counts who is tested at a time."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self._counting = threading.Lock()
        self.now = self.most = 0
        self.meeting = threading.Barrier(3, timeout=60)

    def test(self, agent: str, kind: MachineTest, ipu: int | None) -> str:
        with self._counting:
            self.now += 1
            self.most = max(self.most, self.now)
        if ipu == 0 and agent in {"ag0", "ag1", "ag2"}:
            self.meeting.wait()
        if agent == "ag1":
            assert self.may_end.wait(60)
        with self._counting:
            self.now -= 1
        return "" if agent != "ag1" else "it was away"


def test_an_agent_that_hangs_delays_its_own_results_only(start: Start) -> None:
    server, _ = start(machines=9, ipus_per_machine=2)
    hanging = Hanging()
    diagnostics = Diagnostics(server.controller, hanging, at_once=3)
    running = diagnostics.start(MachineTest.IPU_SELF_TEST, ())
    wait_until(lambda: len(running.results) == 16, "all but two have answered")
    assert running.state is DiagnosticState.RUNNING
    assert "ag1" not in {one.step.agent for one in running.results}
    hanging.may_end.set()
    wait_until(lambda: running.state is DiagnosticState.FAILED, "the last ones, too")
    assert [one.step for one in running.results] == list(running.steps)
    assert [one.step.agent for one in running.results if one.message] == ["ag1", "ag1"]
    assert hanging.most == 3


class Slow:
    """Says of each step that it began, and ends it when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)

    def test(self, agent: str, kind: MachineTest, ipu: int | None) -> str:
        self.begun.release()
        assert self.may_end.acquire(timeout=60)
        if agent == "ag1":
            raise ValueError
        return ""


def test_one_test_runs_at_a_time_shows_its_progress_and_can_be_cancelled(start: Start) -> None:
    server, _ = start(machines=4)
    slow = Slow()
    diagnostics = Diagnostics(server.controller, slow, at_once=1)
    running = diagnostics.start(MachineTest.SYNC, ())
    slow.begun.acquire()
    slow.may_end.release()
    slow.begun.acquire()
    assert [one.outcome for one in diagnostics.get("d1").results] == ["PASSED"]
    with pytest.raises(NotReady, match=r"d1 runs \(1 of 4 steps\).*cancel d1"):
        diagnostics.start(MachineTest.SYNC, ())
    diagnostics.cancel("d1")
    slow.may_end.release()
    diagnostics.stop()
    assert running.state is DiagnosticState.CANCELLED
    assert [one.outcome for one in running.results] == ["PASSED", "FAILED"]
    assert "internal error" in running.results[1].message


def test_watching_a_test_ends_with_it(start: Start, capsys: Said) -> None:
    server, _ = start(machines=1)
    server.controller.fail_ipu("ag0", 1, "IPU 1 is hot")
    assert outcomes(capsys, "ipu-self-test", "--agents", "ag0", "--watch")[0] == 1
    assert outcomes(capsys, "get", "d1", "--watch")[0] == 1
    assert main(["diagnostics", "connectivity", "--no-wait", "--watch"]) == 0


def test_only_the_last_tests_are_kept(start: Start) -> None:
    server, _ = start(machines=1)
    slow = Slow()
    diagnostics = Diagnostics(server.controller, slow)
    for _ in range(KEPT + 3):
        slow.may_end.release()
        diagnostics.start(MachineTest.SYNC, ())
        diagnostics.stop()
    assert [one.id for one in diagnostics.list()] == [f"d{n}" for n in range(4, KEPT + 4)]
    with pytest.raises(NotFound, match="no diagnostic 'd1'; the last 20 are kept"):
        diagnostics.get("d1")


@pytest.mark.parametrize(("done", "want"), [(0, "." * 30), (10, "#" * 30)])
def test_the_bar_grows_with_the_steps(done: int, want: str) -> None:
    assert bar(done, 10) == f"[{want}] {done}/10"
