"""The division of the demo's IPU-Machines among V-IPU controllers."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from devcluster.demo.processes import AGENT_PORTS, PORTS, Processes
from devcluster.demo.run import Demo
from devcluster.demo.samples import draw_job
from devcluster.demo.vipufleet import CONTROLLER_MACHINES, controllers_of, ports_of
from ipuhub.quantities import units
from partitions.vipu.server.options import parse_options


def processes(machines: int, *, is_fleet: bool) -> Processes:
    ports = PORTS | AGENT_PORTS | ports_of(controllers_of(machines, is_fleet=is_fleet))
    return Processes(Path("/demo"), ports, 2, machines, is_fleet=is_fleet)


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def test_a_small_demo_has_one_controller_of_all_machines() -> None:
    (server,) = processes(8, is_fleet=False).vipu_servers()
    command = list(server.command)
    assert (server.name, option(command, "--port")) == ("vipu-server", "8090")
    assert option(command, "--storage") == "/demo/vipu-server.json"
    assert option(command, "--agents").count(",") == 7
    assert "--cluster" not in command


def test_a_fleet_has_a_controller_for_two_racks_with_machines_ports_and_a_node_of_its_own() -> None:
    made = processes(64, is_fleet=True)
    first, second = [list(server.command) for server in made.vipu_servers()]
    assert [server.name for server in made.vipu_servers()] == ["vipu-server", "vipu-server-2"]
    assert [option(one, "--port") for one in (first, second)] == ["8090", "8092"]
    assert [option(one, "--admin-port") for one in (first, second)] == ["8091", "8093"]
    assert [option(one, "--cluster") for one in (first, second)] == ["rack0,rack1", "rack2,rack3"]
    assert option(first, "--allocation") == "rack0,rack1"
    agents = [option(one, "--agents").split(",") for one in (first, second)]
    assert [len(each) for each in agents] == [32, 32]
    assert not set(agents[0]) & set(agents[1])
    assert len({option(one, "--storage") for one in (first, second)}) == 2
    assert made.proxy().env["IPUHUB_VIPU_CONTROLLERS"] == (
        "127.0.0.1:8090:vipu-ctrl=vctl0,127.0.0.1:8092:vipu-ctrl=vctl1"
    )
    assert option(list(made.kubelet().command), "--label") == "vipu-ctrl=vctl{i}"


@pytest.mark.parametrize(
    ("machines", "heartbeat", "lost"), [(512, 2.0, 10.0), (1024, 4.0, 20.0), (4096, 5.0, 25.0)]
)
def test_the_agents_of_a_large_fleet_are_called_256_times_a_second_in_all(
    machines: int, heartbeat: float, lost: float
) -> None:
    for server in processes(machines, is_fleet=True).vipu_servers():
        options = parse_options(list(server.command[3:]), {})
        assert options.agent_heartbeat_seconds == heartbeat
        assert options.agent_lost_seconds == lost


@pytest.mark.parametrize("machines", [32, 256])
def test_the_agents_of_a_small_fleet_are_called_as_those_of_a_site(machines: int) -> None:
    for server in processes(machines, is_fleet=True).vipu_servers():
        options = parse_options(list(server.command[3:]), {})
        assert (options.agent_heartbeat_seconds, options.agent_lost_seconds) == (1.0, 5.0)


def test_a_node_of_a_fleet_has_room_for_a_launcher_and_a_sample_worker_of_each_ipu() -> None:
    options = list(processes(64, is_fleet=True).kubelet().command)
    ipus = CONTROLLER_MACHINES * 4
    draws = [draw_job(Random(1), number, 5, 120) for number in range(400)]
    cores = sum(max(each.cpu_cores for each in draws) for _ in range(ipus))
    memory = ipus * max(each.memory_gib for each in draws)
    assert int(option(options, "--cpu")) >= cores
    assert units(option(options, "--memory")) >= memory * 2**30
    assert int(option(options, "--pods")) >= 2 * ipus


@pytest.mark.parametrize("machines", [0, 16, 48, -32])
def test_half_a_controller_is_refused_with_what_to_write(machines: int) -> None:
    with pytest.raises(ValueError, match="write 32, 64"):
        controllers_of(machines, is_fleet=True)


@pytest.mark.parametrize(
    ("machines", "listed", "rest"), [(64, 2, ""), (128, 4, ""), (1024, 4, "28")]
)
def test_a_large_fleet_is_summed_up_on_one_screen(
    tmp_path: Path, machines: int, listed: int, rest: str
) -> None:
    demo = Demo(tmp_path, machines=machines, is_fleet=True)
    demo.ports = PORTS | AGENT_PORTS | ports_of(controllers_of(machines, is_fleet=True))
    (tmp_path / "admin-password").write_text("secret")
    summary = demo.summary(1.0)
    assert summary.count(" list partitions") == listed
    assert f"and {rest} more controllers, whose ports are in" in summary or not rest
    assert len(summary.splitlines()) <= 24
