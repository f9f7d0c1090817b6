"""The listen address of vipu-server, and its error messages."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ipuhub.addresses import address_of
from ipuhub.times import utc_now
from partitions.vipu.server.main import VipuServer
from partitions.vipu.server.options import ServerOptions
from partitions.vipu.serving import ListenError
from tests.fakes.freeport import free_port
from tests.fakes.loopbacks import reached_hosts
from tests.fakes.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_taken_port_is_refused_with_the_reason_and_the_state_file_is_free_again(
    start_server: Callable[..., tuple[VipuServer, int]],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"127.0.0.1:{port}: Address already in use"):
            start_server(port=port)
    start_server()


def test_a_port_taken_at_the_last_moment_is_refused_too(
    start_server: Callable[..., tuple[VipuServer, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("partitions.vipu.serving.bind_problem", lambda *_: "")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match=f"127.0.0.1:{port}: gRPC refused it"):
            start_server(port=port)


def test_two_servers_never_share_a_port(
    start_server: Callable[..., tuple[VipuServer, int]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("partitions.vipu.serving.bind_problem", lambda *_: "")
    _, port = start_server()
    with pytest.raises(ListenError):
        start_server(port=port, storage=tmp_path / "other.json")


def test_an_address_of_another_machine_is_refused_with_the_reason(
    start_server: Callable[..., tuple[VipuServer, int]],
) -> None:
    with pytest.raises(ListenError, match="Cannot assign requested address"):
        start_server(host="192.0.2.1")


def test_an_ipv6_address_is_written_in_brackets(
    start_server: Callable[..., tuple[VipuServer, int]],
) -> None:
    # An address for documentation: no machine has it, with or without IPv6.
    with pytest.raises(ListenError, match=r"cannot listen on \[2001:db8::1\]:0: \w+"):
        start_server(host="2001:db8::1")


def test_the_admin_api_has_an_address_of_its_own(
    start_server: Callable[..., tuple[VipuServer, int]],
) -> None:
    server, port = start_server(host="127.0.0.1", admin_host="127.0.0.2", admin_port=0)
    assert server.admin_port
    for host, reached in (("127.0.0.1", port), ("127.0.0.2", server.admin_port)):
        with grpc.insecure_channel(address_of(host, reached)) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=PATIENCE_SECONDS, wait_for_ready=True
            )
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    for host, closed in (("127.0.0.2", port), ("127.0.0.1", server.admin_port)):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, closed), timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("family", ["both", "IPv4 alone"])
def test_every_address_of_the_machine_is_answered(
    start_server: Callable[..., tuple[VipuServer, int]],
    tmp_path: Path,
    family: str,
) -> None:
    with reached_hosts(family) as hosts:
        _, port = start_server(host="::")
        for host in hosts:
            with grpc.insecure_channel(address_of(host, port)) as channel:
                answer = health_pb2_grpc.HealthStub(channel).Check(
                    health_pb2.HealthCheckRequest(), timeout=PATIENCE_SECONDS, wait_for_ready=True
                )
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(ListenError, match="Address already in use"):
            start_server(port=port, host="::", storage=tmp_path / "other.json")


def test_a_server_that_is_not_started_has_no_controller_and_stops_quietly(storage: Path) -> None:
    server = VipuServer(ServerOptions(storage=storage))
    with pytest.raises(RuntimeError, match="not started"):
        _ = server.controller
    server.stop()
    server.stop()


def test_the_clock_of_a_real_server_is_aware_utc() -> None:
    assert utc_now().tzinfo is UTC


AGENT = ("agent", "--port", "0", "--exporter-port", "0", "--ipus", "64")


def limited(soft: int, hard: int, module: str, *options: str) -> list[str]:
    """A V-IPU program that may have so many open files."""
    limits = f"ulimit -Sn {soft} && ulimit -Hn {hard} && exec"
    program = [sys.executable, "-m", f"partitions.vipu.{module}.main", *options]
    return ["bash", "-c", f'{limits} "$@"', "bash", *program]


def test_an_agent_opens_as_many_files_as_the_hard_limit_allows() -> None:
    with subprocess.Popen(limited(48, 512, *AGENT), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.terminate()
    assert "vipu-agent listens" in line


def test_an_agent_that_may_not_open_enough_files_says_so() -> None:
    done = subprocess.run(limited(48, 48, *AGENT), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Too many open files; let this process open more files" in done.stderr
    assert "--ipuof-port" not in done.stderr


def test_a_server_takes_as_many_connections_as_the_hard_limit_allows(tmp_path: Path) -> None:
    port, storage = free_port(), str(tmp_path / "vipu.json")
    command = limited(48, 512, "server", "--port", str(port), "--storage", storage)
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process, ExitStack() as channels:
        try:
            for _ in range(64):
                options = [("grpc.use_local_subchannel_pool", 1)]  # a connection of its own
                channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)
                channels.enter_context(channel)
                grpc.channel_ready_future(channel).result(timeout=60)
            check = health_pb2_grpc.HealthStub(channel).Check
            answer = check(health_pb2.HealthCheckRequest(), timeout=60)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        finally:
            channels.close()
            process.terminate()
