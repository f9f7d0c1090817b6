"""vipu-agent as a process: its ports, its options, its commands fault and repair, its end."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc import aio

from partitions.vipu.agent import faultcommand
from partitions.vipu.agent.client import AgentClient
from partitions.vipu.agent.main import AgentOptions, main, parse_options
from partitions.vipu.serving import ListenError
from tests.fakes.freeport import free_port
from tests.integration.vipu.test_vipu_agent import client, ports, start

if TYPE_CHECKING:
    from partitions.vipu.agent.main import Ports
    from tests.integration.vipu.test_vipu_agent import Starter

__all__ = ["client", "ports", "start"]


@pytest.mark.parametrize("option", ["port", "exporter_port"])
async def test_a_taken_port_is_refused_and_leaves_no_other_open(
    start: Starter, option: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"127.0.0.1:{number}.*Address already in use"):
            await start(**{option: number})
    other = "exporter_port" if option == "port" else "port"
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ListenError):
        await start(**{option: taken.getsockname()[1], other: port})
    await start(**{other: port})


async def test_the_first_answer_already_names_the_port_of_the_metrics(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, ports_seen, begin = free_port(), list[int](), aio._server.Server.start

    async def start_and_ask(server: aio.Server) -> None:
        await begin(server)
        async with AgentClient(f"127.0.0.1:{port}", deadline_seconds=20) as client:
            ports_seen.append((await client.inventory()).exporter_port)

    monkeypatch.setattr("grpc.aio._server.Server.start", start_and_ask)
    (ports,) = await start(port=port)
    assert ports_seen == [ports.exporter]


async def test_two_agents_never_share_a_port(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partitions.vipu.serving.bind_problem", lambda *_: "")
    (ports,) = await start()
    with pytest.raises(ListenError, match="gRPC refused it"):
        await start(port=ports.api)


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"ipus": 3}, "--ipus is one of"),
        ({"machines": 0}, "--machines is 1 to"),
        ({"machines": 9, "port": 65530}, "the ports from 65530 on are too few"),
    ],
)
async def test_an_impossible_option_is_refused_in_words(
    start: Starter, options: dict[str, int], want: str
) -> None:
    with pytest.raises(ValueError, match=want):
        await start(**options)


def test_each_option_can_come_from_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"IPUHUB_VIPU_AGENT_PORT": "9001", "IPUHUB_VIPU_AGENT_AGENT": "ag4"}
    options = parse_options(["--exporter-port", "9002"], environ)
    assert (options.port, options.agent, options.exporter_port) == (9001, "ag4", 9002)
    assert parse_options([], {}) == AgentOptions()
    with pytest.raises(SystemExit):
        parse_options([], {"IPUHUB_VIPU_AGENT_PORT": "many"})
    assert "IPUHUB_VIPU_AGENT_PORT: " in capsys.readouterr().err


async def test_the_commands_fault_and_repair_do_what_they_say(
    ports: Ports, client: AgentClient, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run(*arguments: str) -> int:
        return await asyncio.to_thread(main, [*arguments, "--api-port", str(ports.api)])

    assert await run("fault", "ipu-error", "--ipu", "3") == faultcommand.DONE
    assert capsys.readouterr().out.endswith("fault (ipu-error): success.\n")
    assert (await client.health()).faults == {3: "IPU 3 has a memory error"}
    assert await run("repair", "--ipu", "3") == faultcommand.DONE
    assert (await client.health()).faults == {}
    assert await run("fault", "link-down", "--ipu", "4") == faultcommand.REFUSED
    assert "the machine has the IPUs 0 to 3" in capsys.readouterr().err
    assert await run("repair", "-H", "::1") == faultcommand.NO_ANSWER
    err = capsys.readouterr().err
    assert f"agent [::1]:{ports.api} did not answer" in err
    assert "--ca where the agent uses TLS" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_with_exit_code_0_and_a_taken_port_with_1(
    number: signal.Signals,
) -> None:
    port, exporter_port = free_port(), free_port()
    command = [sys.executable, "-m", "partitions.vipu.agent.main"]
    command += ["--port", str(port), "--exporter-port", str(exporter_port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                grpc.channel_ready_future(channel).result(timeout=90)
            again = [*command, "--exporter-port", "0"]
            other = subprocess.run(again, capture_output=True, text=True, check=False)
            assert other.returncode == 1
            assert "Address already in use; choose another --port" in other.stderr
            process.send_signal(number)
            _, output = process.communicate(timeout=90)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "vipu-agent stopped" in output
