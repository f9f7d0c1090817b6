"""vipu-server as a process: kill -9, SIGTERM, taken ports, damaged files, standard services."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from partitions.vipu.client import CreateRequest, VipuClient
from partitions.vipu.errors import Unavailable, VipuError
from partitions.vipu.server.options import parse_options
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from partitions.vipu.server.main import VipuServer

COMMAND = [sys.executable, "-m", "partitions.vipu.server.main"]


@pytest.fixture
def spawn(storage: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """spawn(port, *options) -> a vipu-server process that listens or has ended."""
    running: list[subprocess.Popen[str]] = []

    def start(port: int, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*COMMAND, "--port", str(port), "--storage", str(storage), *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            ready = grpc.channel_ready_future(channel)
            for _ in range(900):
                try:
                    ready.result(timeout=0.1)
                    break
                except grpc.FutureTimeoutError:
                    if process.poll() is not None:
                        break
            ready.cancel()
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def test_every_answered_create_and_remove_survives_kill_9(
    spawn: Callable[..., subprocess.Popen[str]],
) -> None:
    port = free_port()
    process = spawn(port, "--machines", "64")
    answered: set[str] = set()
    removed: set[str] = set()

    # All at once, they could all be answered before the first of them sees it.
    few = asyncio.Semaphore(16)

    async def work(client: VipuClient, number: int) -> None:
        async with few:
            await create(client, number)

    async def create(client: VipuClient, number: int) -> None:
        name = f"p{number}"
        try:
            await client.create_partition(CreateRequest(name, 2))
            answered.add(name)
            if number % 3 == 0:
                await client.remove_partition(name)
                removed.add(name)
        except Unavailable:
            return  # killed meanwhile: either state is right
        if len(answered) >= 40:
            process.kill()

    async with VipuClient(f"127.0.0.1:{port}", deadline_seconds=90) as client:
        for number in range(4):
            await work(client, number)
        await asyncio.gather(*(work(client, number) for number in range(4, 120)))
    assert process.wait(timeout=90) == -signal.SIGKILL
    assert 40 <= len(answered) < 120
    assert removed

    spawn(port, "--machines", "64")
    async with VipuClient(f"127.0.0.1:{port}") as client:
        listed = await client.list_partitions()
    stored = {one.id for one in listed}
    # A remove whose answer was lost may have taken effect.
    lost = {name for name in answered - removed if int(name[1:]) % 3 == 0}
    assert answered - removed - lost <= stored
    assert not removed & stored
    ipus = [ipu for one in listed for ipu in one.ipus]
    assert len(ipus) == len(set(ipus)) == 2 * len(listed)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_with_exit_code_0(
    spawn: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    process = spawn(free_port())
    process.send_signal(number)
    assert process.wait(timeout=90) == 0
    assert "vipu-server stopped" in process.stderr.read()


def test_a_taken_port_is_named_and_ends_with_exit_code_1(
    spawn: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    port = free_port()
    first = spawn(port)
    other = subprocess.run(
        [*COMMAND, "--port", str(port), "--storage", str(tmp_path / "other.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert other.returncode == 1
    assert other.stderr == (
        f"vipu-server: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "choose another --port or --host, or stop what uses it\n"
    )
    assert first.poll() is None


def test_a_damaged_state_file_ends_with_exit_code_3_and_its_sentence(
    spawn: Callable[..., subprocess.Popen[str]], storage: Path
) -> None:
    storage.parent.mkdir()
    storage.write_text("not ours")
    process = spawn(free_port())
    assert process.wait(timeout=90) == 3
    stderr = process.stderr.read()
    assert f"vipu-server: the state file {storage} is damaged" in stderr
    assert "Traceback" not in stderr
    assert storage.read_text() == "not ours"


def test_an_impossible_fleet_ends_with_exit_code_2_and_its_sentence(
    spawn: Callable[..., subprocess.Popen[str]],
) -> None:
    process = spawn(free_port(), "--ipus-per-machine", "3")
    assert process.wait(timeout=90) == 2
    assert "not 3" in process.stderr.read()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "70000"],
        ["--port", "x"],
        ["--create-latency-seconds", "-1"],
        ["--reset-latency-seconds", "nan"],
        ["--log-level", "loud"],
        ["--agent-heartbeat-seconds", "0"],  # calls without a pause
        ["--agent-heartbeat-seconds", "5.1"],  # an agent forgets who calls it thrice in 15 s
        ["--agent-heartbeat-seconds", "x"],
        ["--agent-heartbeat-seconds", "nan"],
    ],
)
def test_a_wrong_option_is_refused_by_name(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_options(arguments)
    assert caught.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_the_defaults_are_the_demo_fleet_on_the_usual_port() -> None:
    options = parse_options([])
    assert (options.host, options.port) == ("127.0.0.1", 8090)
    assert options.machines * options.ipus_per_machine == 32


async def test_the_health_service_says_serving_for_server_and_services(
    server: tuple[VipuServer, int],
) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server[1]}") as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        for name in ("", "virmgrpc.UserService", "virmgrpc.VersionService"):
            answer = await check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_lists_the_services_for_tools_without_the_protos(
    server: tuple[VipuServer, int],
) -> None:
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server[1]}") as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        answers = [answer async for answer in call(iter([question]))]
    names = {one.name for one in answers[0].list_services_response.service}
    assert {"virmgrpc.UserService", "virmgrpc.VersionService", "grpc.health.v1.Health"} <= names


async def test_a_bug_in_the_controller_is_told_as_internal_without_its_words(
    server: tuple[VipuServer, int], client: VipuClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(allocation: str) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(server[0].controller, "list", broken)
    with pytest.raises(VipuError, match="its log has the details") as caught:
        await client.list_partitions()
    assert "secret" not in str(caught.value)


def test_bytes_that_are_no_message_are_one_line_of_the_log(
    spawn: Callable[..., subprocess.Popen[str]],
) -> None:
    port = free_port()
    process = spawn(port)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/virmgrpc.UserService/CreatePartition")
        for _ in range(3):
            with pytest.raises(grpc.RpcError):
                call(b"\xff\xfe\x00", timeout=90)
    process.send_signal(signal.SIGTERM)
    _, output = process.communicate(timeout=90)
    assert "Traceback" not in output
    lines = [line for line in output.splitlines() if "deserializing" in line]
    assert len(lines) == 3
    ours = [x for x in output.splitlines() if "vipu-server" in x or "INSECURE" in x]
    assert len(output.splitlines()) == 3 + len(ours)
