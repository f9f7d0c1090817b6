"""`vipu-admin` and the admin API against a real vipu-server, with simulated machines and agents."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from partitions.vipu.cli.admin import main
from partitions.vipu.client import AdminClient, CreateRequest, VipuClient
from partitions.vipu.errors import NotFound, Unavailable, VipuError
from partitions.vipu.protos import vipu_admin_pb2 as pb
from partitions.vipu.server.events import KEPT
from partitions.vipu.serving import STATE_FILE
from partitions.vipu.types import ReadyState
from tests.fakes.freeport import free_port
from tests.fakes.vipu import let_ipu_fail

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from partitions.vipu.server.main import VipuServer
    from tests.integration.vipu.conftest import Clock

    Start = Callable[..., tuple[VipuServer, int]]
    Said = pytest.CaptureFixture[str]


@pytest.fixture
def published_only() -> bool:
    return False


@pytest.fixture
def site(
    start_server: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[VipuServer, int]:
    """A server of four machines, at once done; the environment names its admin port."""
    server, port = start_server(machines=4, admin_port=0, create_latency_seconds=0)
    for name in [name for name in os.environ if name.startswith("VIPU_CLI_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("VIPU_CLI_API_HOST", "127.0.0.1")
    monkeypatch.setenv("VIPU_CLI_API_PORT", str(port))  # of users: not the port to ask
    monkeypatch.setenv("VIPU_CLI_ADMIN_PORT", str(server.admin_port))
    return server, port


@pytest.fixture
async def admin(site: tuple[VipuServer, int]) -> AsyncIterator[AdminClient]:
    async with AdminClient(f"127.0.0.1:{site[0].admin_port}") as client:
        yield client


def health(port: int, name: str) -> str:
    """Return the answer of a port's health service about a name."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        question = health_pb2.HealthCheckRequest(service=name)
        status = health_pb2_grpc.HealthStub(channel).Check(question).status
    return health_pb2.HealthCheckResponse.ServingStatus.Name(status)


def output_of(capsys: Said, *arguments: str) -> str:
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    # The server logs in this process, too.
    return "".join(line for line in out.splitlines(keepends=True) if "[info" not in line)


def lines(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if "|" in line]


def test_agents_are_listed_with_what_is_wrong(site: tuple[VipuServer, int], capsys: Said) -> None:
    site[0].controller.create(CreateRequest("p1", 2))
    assert output_of(capsys, "cordon", "agent", "ag1", "--reason", "new cables") == (
        "cordon agent (ag1): success.\n"
    )
    assert output_of(capsys, "cordon", "agent", "ag2") == "cordon agent (ag2): success.\n"
    site[0].controller.fail_ipu("ag2", 3, "IPU 3 is hot")
    site[0].controller.lose_agent("ag3", "ag3 has not answered since 8:00")
    capsys.readouterr()
    assert lines(output_of(capsys, "list", "agents"))[1:] == [
        ["ag0", "simulated", "-", "Up", "4", "2", "default"],
        ["ag1", "simulated", "-", "Up,Cordoned", "4", "0", "default"],
        ["ag2", "simulated", "-", "Faulty,Cordoned", "4", "0", "default"],
        ["ag3", "simulated", "-", "Lost", "4", "0", "default"],
    ]
    wide = lines(output_of(capsys, "list", "agents", "-o", "wide"))
    assert [row[9:] for row in wide[1:]] == [
        ["p1", "-"],
        ["-", "new cables"],
        ["-", "ag2: IPU 3 is hot"],
        ["-", "ag3 has not answered since 8:00"],
    ]
    rows = lines(output_of(capsys, "get", "agent", "ag2"))
    one = {row[0]: row[1] for row in rows if len(row) == 2}
    assert [row[-1] for row in rows if len(row) == 9][1:] == ["Up", "Up", "Up", "Faulty"]
    assert (one["Status"], one["Fault of IPU 3"]) == ("Faulty,Cordoned", "ag2: IPU 3 is hot")
    assert one["Cordoned since"] == "2026-03-01T12:00:00Z"
    rows = lines(output_of(capsys, "get", "agent", "ag3"))
    assert {row[-1] for row in rows if len(row) == 9} == {"Status", "Unknown"}


def test_a_cordon_ends(site: tuple[VipuServer, int], capsys: Said) -> None:
    for agent in ("ag0", "ag1", "ag2", "ag3"):
        output_of(capsys, "cordon", "agent", agent, "--reason", "new cables")
    output_of(capsys, "cordon", "agent", "ag1")  # keeps its reason
    output_of(capsys, "cordon", "agent", "ag2", "--reason", "")
    rows = lines(output_of(capsys, "list", "agents", "-o", "wide"))[1:]
    assert [row[-1] for row in rows] == ["new cables", "new cables", "-", "new cables"]
    with pytest.raises(VipuError, match="0 of 16 are free"):
        site[0].controller.create(CreateRequest("p", 1))
    output_of(capsys, "uncordon", "agent", "ag2")
    assert site[0].controller.create(CreateRequest("p", 1)).ipus[0].position == 8


def test_everybodys_partitions_are_listed_reset_and_removed(
    site: tuple[VipuServer, int], capsys: Said, clock: Clock
) -> None:
    controller = site[0].controller
    controller.create(CreateRequest("p1", 4))
    controller.create(CreateRequest("p2", 8))
    ipu = let_ipu_fail(controller, "p2", "link down")
    capsys.readouterr()
    assert lines(output_of(capsys, "list", "partitions"))[1:] == [
        ["p1", "default", "default", "4", "ag0", "ACTIVE"],
        ["p2", "default", "default", "8", "ag2 ag3", "ERROR"],
    ]
    found = json.loads(output_of(capsys, "list", "partitions", "--agent", "ag3", "-o", "json"))
    assert [(one["id"], one["errors"]) for one in found] == [("p2", ["ag2: link down"])]
    for option in ("--cluster", "--allocation"):
        assert len(lines(output_of(capsys, "list", "partitions", option, "default"))) == 3
        assert main(["list", "partitions", option, "none"]) == 1
        kind = option.removeprefix("--")
        assert f"there is no {kind} 'none'; see vipu-admin list {kind}s" in capsys.readouterr().err
    one = dict(lines(output_of(capsys, "get", "partition", "p2"))[1:])
    assert (one["State"], one["Errors"]) == ("ERROR", "ag2: link down")
    assert (one["IPUs"], one["Sync"], one["GCDs"]) == (
        *(" ".join(f"0.{position}" for position in range(8, 16)), "GS2_DEFAULT", "1"),
    )
    assert main(["get", "partition", "p9"]) == 1
    assert "there is no partition 'p9'" in capsys.readouterr().err
    controller.heal_ipu(ipu.agent, ipu.index)
    assert output_of(capsys, "reset", "partition", "p2", "--no-wait") == (
        "reset partition (p2): success.\n"
    )
    assert controller.get("p2").ready_state(clock()) is ReadyState.PENDING
    clock.forward(1)
    assert controller.get("p2").ready_state(clock()) is ReadyState.ACTIVE
    ipu = let_ipu_fail(controller, "p1", "link down")
    capsys.readouterr()
    assert main(["reset", "partition", "p1"]) == 1
    assert "ag0: link down" in capsys.readouterr().err
    output_of(capsys, "reset", "partition", "p1", "--relocatable")
    assert [each.position for each in controller.get("p1").ipus] == [4, 5, 6, 7]
    assert controller.get("p1").ready_state(clock()) is ReadyState.ACTIVE
    assert output_of(capsys, "remove", "partition", "p1") == "remove partition (p1): success.\n"
    assert [one.id for one in controller.list()] == ["p2"]


def test_clusters_and_allocations_say_what_is_free(
    start_server: Start, site: tuple[VipuServer, int], tmp_path: Path, capsys: Said
) -> None:
    del site
    other, _ = start_server(
        storage=tmp_path / "other.json",
        machines=2,
        admin_port=0,
        cluster="x,x,y",
        allocation="a,b,c",
    )
    other.controller.create(CreateRequest("p", 2, allocation_id="b"))
    other.controller.cordon("ag5", "")
    capsys.readouterr()
    port = ("--api-port", str(other.admin_port))
    assert lines(output_of(capsys, "list", "clusters", *port))[1:] == [
        ["x", "ag0 ag1 ag2 ag3", "16", "14"],
        ["y", "ag4 ag5", "8", "4"],
    ]
    assert [row[:4] for row in lines(output_of(capsys, "list", "allocations", *port))[1:]] == [
        ["a", "ag0 ag1", "8", "8"],
        ["b", "ag2 ag3", "8", "6"],
        ["c", "ag4 ag5", "8", "4"],
    ]


def test_a_provoked_fault_and_its_end(site: tuple[VipuServer, int], capsys: Said) -> None:
    controller = site[0].controller
    controller.create(CreateRequest("p", 4))
    assert output_of(capsys, "provoke", "fault", "ag0", "--ipu", "2").endswith(": success.\n")
    assert controller.get("p").errors == ("ag0: IPU 2 is out of order, as requested",)
    output_of(capsys, "provoke", "fault", "ag1")
    assert controller.machines["ag1"].lost
    output_of(capsys, "clear", "fault", "ag0", "--ipu", "2")
    output_of(capsys, "clear", "fault", "ag1")
    assert not controller.machines
    controller.reset("p")


def test_events_tell_what_has_happened_and_how_many_are_no_longer_known(
    site: tuple[VipuServer, int], capsys: Said
) -> None:
    controller = site[0].controller
    controller.create(CreateRequest("p", 4))
    controller.cordon("ag1", "new cables")
    capsys.readouterr()
    assert lines(output_of(capsys, "list", "events"))[1:] == [
        ["2026-03-01T12:00:00Z", "partition created", "agent: ag0, ipus: 4, partition: p"],
        ["2026-03-01T12:00:00Z", "machine cordoned", "agent: ag1, reason: new cables"],
    ]
    for _ in range(KEPT):
        controller.events.note("again")
    capsys.readouterr()
    found = lines(output_of(capsys, "list", "events"))
    assert found[1] == ["-", "2 older events are not kept", ""]
    assert len(found) == 2 + KEPT


def test_events_tell_what_became_of_partitions(site: tuple[VipuServer, int], capsys: Said) -> None:
    controller = site[0].controller
    controller.create(CreateRequest("moves", 4, relocatable=True))
    controller.create(CreateRequest("resets", 4, auto_reset=True))
    controller.fail_ipu("ag0", 0, "IPU 0 is hot")
    controller.lose_agent("ag1", "ag1 has not answered since 8:00")
    controller.agent_back("ag1")
    controller.fail_part(controller.get("moves"), "ag2: its port is closed")
    capsys.readouterr()
    assert [line[1:] for line in lines(output_of(capsys, "list", "events"))[3:]] == [
        ["IPU has a fault", "agent: ag0, fault: IPU 0 is hot, ipu: 0"],
        ["partition moved", "agent: ag0, partition: moves, to: ag2"],
        ["agent lost", "agent: ag1, problem: ag1 has not answered since 8:00"],
        [
            "partition in ERROR",
            "agent: ag1, partition: resets, problem: ag1 has not answered since 8:00",
        ],
        ["agent is back", "agent: ag1"],
        ["partition resets itself", "agent: ag1, partition: resets"],
        ["partition failed on its machines", "partition: moves, problem: ag2: its port is closed"],
        ["partition in ERROR", "agent: ag2, partition: moves, problem: ag2: its port is closed"],
    ]


def test_the_server_says_what_it_is(site: tuple[VipuServer, int], capsys: Said) -> None:
    facts = dict(lines(output_of(capsys, "get", "server"))[1:])
    assert (facts["Agents"], facts["IPUs"], facts["Free IPUs"]) == ("simulated here", "16", "16")
    assert facts["State file"].endswith("vipu-server.json")
    assert (facts["Mode"], facts["Partitions"]) == ("insecure", "0")
    assert output_of(capsys, "--server-version").splitlines()[1].startswith("version: ")


WRONG = [
    (("cordon", "agent", "ag9"), 1, "cordon agent (ag9): failed: 127.0.0.1:"),
    (("cordon", "agent", "ag1", "--reason", "x" * 201), 1, "the reason has 201 characters"),
    (("get", "agent", "nobody"), 1, "there is no agent 'nobody'"),
    (("list", "partitions", "--agent", "ag9"), 1, "there is no agent 'ag9'"),
    (("provoke", "fault", "ag0", "--ipu", "4"), 1, "ag0 has the IPUs 0 to 3, not 4"),
    (("remove", "partition", "p9"), 1, "there is no partition 'p9'"),
    (("list", "agents", "--api-port", "x"), 2, "'x' is not a port"),
    (("create", "cluster", "c", "--agents", "a,\udcff"), 2, "agents is not UTF-8 text"),
]


@pytest.mark.parametrize(("arguments", "code", "want"), WRONG, ids=[want for *_, want in WRONG])
def test_what_cannot_be_done_is_told_in_a_sentence(
    site: tuple[VipuServer, int], capsys: Said, arguments: tuple[str, ...], code: int, want: str
) -> None:
    del site
    assert main(arguments) == code
    assert want in capsys.readouterr().err


def test_a_controller_that_cannot_write_its_state_has_answered(
    site: tuple[VipuServer, int], capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    server, port = site
    assert server.admin_port is not None
    assert "State file problem" not in output_of(capsys, "get", "server")
    with monkeypatch.context() as patch:
        patch.setattr("partitions.vipu.server.statefile.os.fsync", full)
        for agent in ("ag1", "ag2"):
            assert main(["cordon", "agent", agent]) == 1
        err = capsys.readouterr().err
        assert "No space left on device" in err
        assert "--api-host" not in err
        problem = dict(lines(output_of(capsys, "get", "server"))[1:])["State file problem"]
        assert problem.startswith("not written since ")
        assert problem.endswith(": [Errno 28] No space left on device")
        assert {health(each, STATE_FILE) for each in (port, server.admin_port)} == {"NOT_SERVING"}
        assert health(port, "") == "SERVING"
    output_of(capsys, "cordon", "agent", "ag1")
    assert "State file problem" not in output_of(capsys, "get", "server")
    assert {health(each, STATE_FILE) for each in (port, server.admin_port)} == {"SERVING"}
    happened = [event.what for event in server.controller.events.last()[0]]
    assert [what for what in happened if "state file" in what] == [
        "state file is not written",
        "state file is written again",
    ]


def test_the_server_counts_what_is_not_well(site: tuple[VipuServer, int], capsys: Said) -> None:
    controller = site[0].controller
    controller.create(CreateRequest("p", 4))
    let_ipu_fail(controller, "p", "IPU 0 is hot")
    controller.lose_agent("ag1", "ag1 does not answer")
    controller.cordon("ag2", None)
    facts = dict(lines(output_of(capsys, "get", "server"))[1:])
    assert facts["Agents"] == "simulated here, 1 lost, 1 with faults, 1 cordoned"
    assert facts["Partitions"] == "1, 1 in ERROR"


def test_what_shows_no_list_is_written_for_programs_too(
    site: tuple[VipuServer, int], capsys: Said
) -> None:
    assert json.loads(output_of(capsys, "cordon", "agent", "ag1", "-o", "json")) == {
        "action": "cordon",
        "entity": "agent",
        "id": "ag1",
        "result": "success",
    }


def test_without_an_admin_port_there_is_none(
    start_server: Start, capsys: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server, port = start_server()
    assert server.admin_port is None
    monkeypatch.setenv("HOME", str(tmp_path))
    arguments = ("list", "agents", "-H", "127.0.0.1", "--api-port")
    assert main((*arguments, str(port))) == 1  # the users' port knows nothing of it
    assert "Method not found" in capsys.readouterr().err
    assert main((*arguments, str(free_port()))) == 3


async def test_the_admin_port_serves_the_user_api_and_the_users_port_no_other(
    admin: AdminClient, site: tuple[VipuServer, int]
) -> None:
    async with VipuClient(admin.address) as user:
        await user.create_partition(CreateRequest("p", 4))
        assert [each.id for each in await user.list_partitions()] == ["p"]
    async with AdminClient(f"127.0.0.1:{site[1]}") as stranger:
        with pytest.raises(VipuError, match="Method not found"):
            await stranger.ask("ListAgents", pb.ListAgentsRequest())
    async with grpc.aio.insecure_channel(admin.address) as channel:
        question = health_pb2.HealthCheckRequest(service="ipuhub.vipu.admin.v1.AdminService")
        answer = await health_pb2_grpc.HealthStub(channel).Check(question)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_many_administrators_at_once_see_one_truth(
    site: tuple[VipuServer, int], admin: AdminClient
) -> None:
    async def flip(agent: str) -> None:
        for number in range(10):
            await admin.ask(
                "CordonAgent", pb.CordonAgentRequest(agent_id=agent, reason=f"{number}")
            )
            found = await admin.ask("GetAgent", pb.GetAgentRequest(agent_id=agent))
            assert (found.cordoned, found.cordon_reason) == (True, f"{number}")
            await admin.ask("UncordonAgent", pb.UncordonAgentRequest(agent_id=agent))

    await asyncio.gather(*map(flip, ("ag0", "ag1", "ag2", "ag3")))
    assert not site[0].controller.machines
    with pytest.raises(NotFound):
        await admin.ask("UncordonAgent", pb.UncordonAgentRequest())
    site[0].stop()
    with pytest.raises(Unavailable):
        await admin.ask("ListAgents", pb.ListAgentsRequest())
