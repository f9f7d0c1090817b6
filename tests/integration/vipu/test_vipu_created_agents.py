"""Agents that `vipu-admin` creates and removes: stored, followed, and found by discovery."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from partitions.vipu import discovery
from partitions.vipu.cli import admin
from partitions.vipu.client import CreateRequest, VipuClient
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.main import main as server_main
from partitions.vipu.server.options import ServerOptions
from partitions.vipu.server.statefile import StateFileError
from partitions.vipu.serving import ListenError
from partitions.vipu.types import ReadyState
from tests.fakes.forked import answer_of
from tests.fakes.freeport import free_port
from tests.fakes.waiting import eventually
from tests.integration.vipu.agentmachines import state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.integration.vipu.agentmachines import Machine

    Start = Callable[..., VipuServer]
    Machines = Callable[..., list[Machine]]
    Said = pytest.CaptureFixture[str]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """start(**options) -> a vipu-server without machines; the environment names its admin port."""
    servers: list[VipuServer] = []
    for name in [name for name in os.environ if name.startswith("VIPU_CLI_")]:
        monkeypatch.delenv(name)

    def begin(**options: object) -> VipuServer:
        defaults = {
            "storage": tmp_path / "vipu-server.json",
            "port": free_port(),
            "admin_port": 0,
            "machines": 0,
            "agent_lost_seconds": 80.0,
        }
        server = VipuServer(ServerOptions(**{**defaults, **options}))
        servers.append(server)
        server.start()
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("VIPU_CLI_API_HOST", "127.0.0.1")
        monkeypatch.setenv("VIPU_CLI_ADMIN_PORT", str(server.admin_port))
        return server

    yield begin
    for server in servers:
        server.stop()


async def vipu_admin(*command: str, code: int = 0) -> tuple[str, str]:
    """Return the output of `vipu-admin` as a process: the server is in this process."""
    program = ("-m", "partitions.vipu.cli.admin", *command)
    answer = await asyncio.to_thread(answer_of, program, Path.cwd(), os.environ)
    assert answer.code == code, answer.out + answer.err
    return answer.out, answer.err


def at(machine: Machine) -> tuple[str, ...]:
    return ("--host", "127.0.0.1", "--port", str(machine.port))


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if "|" in line]


async def test_a_fleet_is_put_together_from_nothing_and_taken_apart_again(
    machines: Machines, start: Start
) -> None:
    server, (one, two) = start(), machines(2)
    for machine in (one, two):
        await machine.inventory()  # it listens
    out, _ = await vipu_admin("create", "agent", "left", *at(one))
    assert out == "create agent (left): success.\n"
    await vipu_admin("create", "agent", "right", *at(two))
    await vipu_admin("create", "cluster", "c1", "--agents", "left,right")
    await vipu_admin("create", "allocation", "team", "--cluster", "c1")
    out, _ = await vipu_admin("create", "partition", "p", "--size", "8", "--num-gcds", "2")
    assert out == "create partition (p): success.\n"
    assert [await each.names() for each in (one, two)] == [["p"], ["p"]]
    config = json.loads(
        (await vipu_admin("get", "partition", "p", "--ipuof-configs", "--gcd", "1"))[0]
    )
    serials = [ipu.serial for ipu in (await two.inventory()).ipus]
    assert [each["chip_id"] for each in config["gcd_configs"][0]["devices"]] == serials
    assert {each["ip"] for each in config["gcd_configs"][0]["devices"]} == {"127.0.0.1"}
    # A restart finds agents, arrangement and partition.
    before = await one.partitions()
    server.stop()
    server = start()
    async with VipuClient(f"127.0.0.1:{server._options.port}", deadline_seconds=60) as vipu:
        assert await state_of(vipu, "p") is ReadyState.ACTIVE
        assert await one.partitions() == before
        _, err = await vipu_admin("remove", "agent", "left", code=1)
        assert "agent left is in cluster c1: remove that cluster first" in err
        await vipu_admin("remove", "partition", "p")
        assert await vipu.list_partitions() == []
        assert await one.names() == []
        for line in ("allocation team", "cluster c1", "agent left"):
            await vipu_admin("remove", *line.split())
        found = json.loads((await vipu_admin("list", "agents", "-o", "json"))[0])
        assert [(each["id"], each["removable"]) for each in found] == [("right", True)]
        await vipu_admin("create", "agent", "again", *at(one))
    server.stop()
    assert {each.id for each in start().controller.state.agents.values()} == {"again", "right"}


async def test_a_partition_is_removed_once_its_machine_has_freed_it_or_by_force(
    machines: Machines, start: Start
) -> None:
    (machine,) = machines(1)
    server = start(agents=machine.address)
    await vipu_admin("create", "partition", "p", "--size", "4")
    machine.signal(signal.SIGSTOP)
    waiting = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "partitions.vipu.cli.admin", "remove", "partition", "p"),
        stdout=subprocess.DEVNULL,
    )
    await eventually(lambda: server.controller.get("p").is_removing)
    assert "REMOVING" in (await vipu_admin("get", "partition", "p"))[0]
    assert waiting.returncode is None
    machine.signal(signal.SIGCONT)
    assert await waiting.wait() == 0
    assert server.controller.list() == []
    await vipu_admin("create", "partition", "q", "--size", "4")
    machine.signal(signal.SIGSTOP)
    await vipu_admin("remove", "partition", "q", "--no-wait")
    assert server.controller.get("q").is_removing
    await vipu_admin("remove", "partition", "q", "--force")
    assert server.controller.list() == []


async def test_an_agent_that_falls_silent_is_lost_and_its_name_may_be_used_again(
    machines: Machines, start: Start
) -> None:
    server, (machine,) = start(agent_lost_seconds=3.0), machines(1)
    await machine.inventory()
    await vipu_admin("create", "agent", "ag0", *at(machine))
    machine.kill()
    await eventually(lambda: "ag0" in server.controller.machines)
    await vipu_admin("remove", "agent", "ag0")
    assert "ag0" not in server.controller.machines
    machine.start()
    await machine.inventory()
    await vipu_admin("create", "agent", "ag0", *at(machine))
    server.stop()
    assert [ipu.agent for ipu in start().controller.topology.ipus] == ["ag0"] * 4


async def test_agents_join_those_that_the_options_name(machines: Machines, start: Start) -> None:
    first, second = machines(2)
    server = start(agents=first.address)
    await second.inventory()
    await vipu_admin("create", "agent", "more", *at(second))
    async with VipuClient(f"127.0.0.1:{server._options.port}", deadline_seconds=60) as vipu:
        await vipu.create_partition(CreateRequest("p", 4))
        await eventually(lambda: state_of(vipu, "p"), lambda state: state is ReadyState.ACTIVE)
    assert await first.names() == ["p"]  # of the allocation that was there
    _, err = await vipu_admin("remove", "agent", "ag0", code=1)
    assert "agent ag0 was not created by vipu-admin: the options of vipu-server name it" in err
    for again in (first, second):
        _, err = await vipu_admin("create", "agent", "twice", *at(again), code=1)
        assert "is agent" in err
        assert "already" in err
    server.stop()
    with pytest.raises(StateFileError, match="names agents that vipu-admin created"):
        start(machines=2)


WRONG = [
    (("create", "agent", "a/b"), "agent_id 'a/b': write 1 to 63 letters"),
    (("create", "agent", "ag0", "--host", "no host"), "host 'no host': write the agent's name"),
    (("create", "agent", "ag0", "--port", "70000"), "port 70000: write 1 to 65535"),
    (("create", "agent", "ag0", "--port", "1"), "no agent answers at 127.0.0.1:1"),
    (("remove", "agent", "ag0"), "there is no agent 'ag0'"),
    (("create", "cluster", "c", "--agents", "ag0"), "there is no agent 'ag0' here; there is none"),
    (("discover", "agents"), "start it with --autodiscovery-listen-interfaces"),
]


async def test_what_cannot_be_created_is_told_in_a_sentence(
    machines: Machines, start: Start, tmp_path: Path
) -> None:
    start()
    (machine,) = machines(1)
    await machine.inventory()
    for command, want in WRONG:
        agent = () if command[:2] != ("create", "agent") else at(machine)
        _, err = await vipu_admin(*command[:3], *agent, *command[3:], code=1)
        assert want in err, command
        assert len(err.splitlines()) == 1
    start(machines=2, storage=tmp_path / "simulated.json")
    _, err = await vipu_admin("create", "agent", "ag9", *at(machine), code=1)
    assert "this vipu-server simulates its machines and has no agents" in err


async def test_what_a_machine_is_made_of_is_shown_with_each_ipu(
    machines: Machines, start: Start
) -> None:
    start()
    (machine,) = machines(1)
    made = await machine.inventory()
    await vipu_admin("create", "agent", "ag10", *at(machine))
    out, _ = await vipu_admin("get", "agent", "ag10")
    facts = {row[0]: row[1] for row in rows(out) if len(row) == 2}
    assert facts["Host"] == "127.0.0.1"
    assert facts["Port"] == str(machine.port)
    assert facts["Status"] == "Up"
    assert facts["Exporter"] == f"http://127.0.0.1:{machine.exporter_port}/metrics"
    assert facts["Platform"] == "ipum-p2"
    assert facts["Board serial number"] == made.board_serial
    assert facts["GWSW version"] == made.gateway_version
    assert facts["Num of IPUs"] == "4"
    named = {
        "Manufacturer": "Graphcore",
        "Discovery Mode": "DM_GCDA",
        "Virm version": made.virm_version,
        "Runtime version": made.runtime_version,
        "Driver version": made.driver_version,
        "Part number": "IPU-M2000-4",
        "IPUoF server version": made.ipuof_version,
        "HDF Version": made.hdf_version,
        "HDF Hash": made.hdf_hash,
    }
    assert all(named.values())
    assert named.items() <= facts.items()
    ipus = [row for row in rows(out) if len(row) == 9]
    assert ipus[0][:4] == ["IPU", "PCI", "Device", "Serial"]
    assert ipus[0][4:] == ["Firmware", "Architecture", "Num Tiles", "Clock", "Status"]
    assert [row[:4] for row in ipus[1:]] == [
        [str(ipu.index), ipu.pci, ipu.device, ipu.serial] for ipu in made.ipus
    ]
    assert ipus[1][1:3] == ["0000:01:00.0", "ipu0"]
    assert ipus[1][4:] == ["2.6.0", "Mk2", "1472", "1330MHz", "Up"]
    found = json.loads((await vipu_admin("get", "agent", "ag10", "-o", "json"))[0])
    assert [ipu["serial"] for ipu in found["inventory"]["ipus"]] == [i.serial for i in made.ipus]


def test_a_simulated_machine_and_one_that_never_answered(
    start: Start, tmp_path: Path, capsys: Said
) -> None:
    start(machines=1, storage=tmp_path / "simulated.json")
    assert admin.main(["get", "agent", "ag0"]) == 0
    assert "Board serial number" in capsys.readouterr().out
    start(agents="127.0.0.1:1", agent_lost_seconds=0.2, storage=tmp_path / "silent.json")
    capsys.readouterr()
    assert admin.main(["get", "agent", "ag0"]) == 0
    assert "Board serial number" not in capsys.readouterr().out


HEADS = ["Host", "Port", "Network Interface", "Time Since Last Seen", "Agent Auto-Add ID"]


async def test_agents_that_announce_themselves_are_found(machines: Machines, start: Start) -> None:
    start(autodiscovery_listen_interfaces="lo")
    (machine,) = machines(1, "--announce-interfaces", "lo")

    async def found() -> list[list[str]]:
        output, _ = await vipu_admin("discover", "agents")
        heads, *listed = rows(output)
        assert heads == [*HEADS, "Agent ID"]
        return [row for row in listed if row[1] == str(machine.port)]

    ((host, _, interface, since, name, known),) = await eventually(found)
    assert (host, interface, name, known) == ("127.0.0.1", "lo", f"m{machine.port}", "-")
    assert since.endswith("s")
    await vipu_admin("create", "agent", name, "--host", host, "--port", str(machine.port))
    assert (await found())[0][5] == name
    listed = json.loads((await vipu_admin("discover", "agent", "-o", "json"))[0])
    assert name in {each["auto_add_id"] for each in listed}


def test_an_interface_that_is_not_there_is_refused_in_words(start: Start) -> None:
    with pytest.raises(ValueError, match="no network interface 'eth77' here; there are lo"):
        start(autodiscovery_listen_interfaces="eth77")


def test_a_first_user_is_made_with_the_state_file(
    tmp_path: Path, capsys: Said, start: Start
) -> None:
    file = tmp_path / "state" / "vipu-server.json"
    command = ["--init", "--secure", "--default-user-id", "john", "--storage", str(file)]
    assert server_main([*command, "--tls-init", str(tmp_path / "tls")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"initialised storage: {file}", "Default user is: john"]
    key = lines[2].removeprefix("Access key is '").removesuffix("'.")
    assert len(key) > 40
    assert any(line.startswith("certificate of server") for line in lines)
    assert server_main(command) == 3
    assert f"the state file {file} exists already" in capsys.readouterr().err
    assert server_main([*command[:-1], str(tmp_path / "x"), "--default-user-id", "a/b"]) == 2
    assert "user_id 'a/b'" in capsys.readouterr().err
    secure = start(storage=file, machines=1, secure=True, tls_dir=tmp_path / "tls")
    tls = tmp_path / "tls" / "user"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "partitions.vipu.cli.main", "list", "allocations"),
            *("-H", "127.0.0.1", "--api-port", str(secure._options.port), "--ca", tls / "ca.crt"),
            *("--certificate", tls / "tls.crt", "--key", tls / "tls.key"),
            *("--api-user-id", "john", "--api-access-key", key),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "default       | ag0" in done.stdout, done.stderr


def test_the_state_file_without_users_is_empty(tmp_path: Path, capsys: Said) -> None:
    file = tmp_path / "vipu-server.json"
    assert server_main(["--init", "--storage", str(file)]) == 0
    assert capsys.readouterr().out == f"initialised storage: {file}\n"
    assert server_main(["--init", "--storage", str(file)]) == 3


def test_a_first_user_is_granted_nothing_while_there_is_nothing(
    tmp_path: Path, capsys: Said, start: Start
) -> None:
    file = tmp_path / "state" / "vipu-server.json"
    command = ["--init", "--secure", "--machines", "0", "--default-user-id", "john"]
    assert server_main([*command, "--storage", str(file)]) == 0
    line = "vipu-admin grant user john --allocations ID"
    line_printed = capsys.readouterr().out.splitlines()[-1]
    assert (
        line_printed == f"There is no allocation yet. Once you have created an allocation: {line}"
    )
    assert start(storage=file).controller.state.users["john"].allocations == ()


def test_a_first_user_without_a_name_is_refused_in_words(
    tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 987_654_321)  # no file names it
    file = tmp_path / "vipu-server.json"
    assert server_main(["--init", "--secure", "--storage", str(file)]) == 2
    message = "vipu-server: this user has no name: give --default-user-id\n"
    assert capsys.readouterr().err == message
    assert not file.exists()


def test_a_server_that_cannot_listen_for_agents_says_so(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "GROUP", "192.0.2.1")  # for documentation: no host has it
    with pytest.raises(ListenError, match="cannot listen for agents on lo"):
        start(autodiscovery_listen_interfaces="lo")
