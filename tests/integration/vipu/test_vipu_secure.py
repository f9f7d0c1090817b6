"""The secure mode of vipu-server and vipu-agent: certificates by role, made and renewed by
`vipu-server --tls-init`."""

from __future__ import annotations

import asyncio
import socket
import ssl
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import grpc
import pytest
from cryptography import x509
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from structlog.testing import capture_logs

from partitions.vipu.agent.client import AgentClient
from partitions.vipu.agent.machine import Release
from partitions.vipu.agent.main import AgentOptions, VipuAgent
from partitions.vipu.certificates import Role, init_certificates, role_of
from partitions.vipu.client import AdminClient, CreateRequest
from partitions.vipu.errors import Refused, Unavailable
from partitions.vipu.server.main import WRONG_OPTIONS, main
from partitions.vipu.server.options import parse_options
from partitions.vipu.tlsfiles import ClientTls, TlsFilesError
from partitions.vipu.types import ReadyState
from tests.fakes.waiting import eventually
from tests.integration.vipu.securesite import certificates, tls_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from partitions.vipu.server.main import VipuServer
    from tests.integration.vipu.agentmachines import Machine

    Start = Callable[..., tuple[VipuServer, int]]


@pytest.fixture
def published_only() -> bool:
    return False


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return certificates(tmp_path / "tls")


def test_tls_init_makes_private_files_for_each_role_and_renews_them_under_the_same_ca(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "tls"
    order = ["--tls-init", str(folder), "--tls-hosts", "vipu.example, 10.1.2.3"]
    assert main(order) == 0
    assert f"certificate of server: {folder / 'server'}" in capsys.readouterr().out
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*"))
    assert files == sorted(
        ["ca.crt", "ca.key"]
        + [f"{role}/{name}" for role in Role for name in ("ca.crt", "tls.crt", "tls.key")]
    )
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    first = {path: path.read_bytes() for path in folder.rglob("*.*")}
    for role in Role:
        assert role_of((folder / role / "tls.crt").read_bytes()) is role
    assert main(order) == 0
    changed = {path.name for path, content in first.items() if path.read_bytes() != content}
    assert changed == {"tls.crt", "tls.key"}


def test_tls_init_without_a_folder_makes_vipu_certs_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--tls-init"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["vipu-certs"]
    made = sorted(path.name for path in (tmp_path / "vipu-certs").iterdir())
    assert made == ["admin", "agent", "ca.crt", "ca.key", "server", "user"]


def test_half_a_ca_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ca.key").unlink()
    before = (folder / "ca.crt").read_bytes()
    assert main(["--tls-init", str(folder)]) == WRONG_OPTIONS
    assert "restore ca.crt and ca.key" in capsys.readouterr().err
    assert (folder / "ca.crt").read_bytes() == before


def test_secure_without_certificates_does_not_start(tmp_path: Path) -> None:
    options = parse_options(["--secure", "--storage", str(tmp_path / "s.json")], {})
    with pytest.raises(ValueError, match="--secure needs certificates: give --tls-dir"):
        _ = options.tls


async def test_the_admin_api_answers_administrators_only(start_server: Start, folder: Path) -> None:
    server, _ = start_server(secure=True, tls_dir=folder, admin_port=0)
    address = f"127.0.0.1:{server.admin_port}"
    async with AdminClient(address, tls=tls_of(folder, Role.ADMIN)) as admin:
        assert await admin.version()
    for role in (Role.USER, Role.AGENT, Role.SERVER):
        async with AdminClient(address, tls=tls_of(folder, role)) as other:
            with pytest.raises(
                Refused,
                match=f"role admin; yours is of {role}: use the certificate in DIR/admin of "
                "vipu-server --tls-init DIR",
            ):
                await other.version()
    async with AdminClient(address, deadline_seconds=5) as plain:
        with pytest.raises(Unavailable):
            await plain.version()


async def test_agents_answer_the_controller_and_no_user(
    start_server: Start, machines: Callable[..., list[Machine]], folder: Path
) -> None:
    (machine,) = machines(1, "--secure", "--tls-dir", str(folder))
    server, _ = start_server(
        secure=True, tls_dir=folder, agents=machine.address, agent_lost_seconds=60, admin_port=0
    )
    async with AgentClient(
        machine.address, deadline_seconds=60, tls=tls_of(folder, Role.SERVER)
    ) as agent:
        inventory = await agent.inventory()
    assert len(inventory.ipus) == len(server.controller.topology)
    for role in (Role.USER, Role.AGENT):
        async with AgentClient(machine.address, tls=tls_of(folder, role)) as other:
            with pytest.raises(Refused, match=f"yours is of {role}"):
                await other.follow(Release("p1"))


@dataclass(frozen=True)
class Port:
    """A port with TLS, the role whose files it uses, and the role that it answers."""

    number: int
    server: Role
    client: Role


@pytest.fixture(params=["users", "administrators", "agent"])
def port(
    request: pytest.FixtureRequest,
    start_server: Start,
    machines: Callable[..., list[Machine]],
    folder: Path,
) -> Port:
    """Each port that the secure mode has."""
    if request.param == "agent":
        (machine,) = machines(1, "--secure", "--tls-dir", str(folder))
        return Port(machine.port, Role.AGENT, Role.SERVER)
    server, number = start_server(secure=True, tls_dir=folder, admin_port=0)
    if request.param == "users":
        return Port(number, Role.SERVER, Role.USER)
    assert server.admin_port is not None
    return Port(server.admin_port, Role.SERVER, Role.ADMIN)


def test_renewed_certificates_are_used_and_open_connections_stay(port: Port, folder: Path) -> None:
    states: list[grpc.ChannelConnectivity] = []
    with _channel(port, folder) as channel:
        channel.subscribe(states.append)
        _ask(channel)
        old = _serial(port, folder)
        init_certificates(folder, ["127.0.0.1"], datetime.now(UTC))
        assert _serial(port, folder) != old
        _ask(channel)
    kept = [state for state in states if state is not grpc.ChannelConnectivity.SHUTDOWN]
    assert kept[-1:] == [grpc.ChannelConnectivity.READY]  # once READY, never anything else
    assert kept.count(grpc.ChannelConnectivity.READY) == 1


def test_another_ca_of_clients_counts_from_the_next_connection_on(
    port: Port, folder: Path, tmp_path: Path
) -> None:
    other = certificates(tmp_path / "other")
    with _channel(port, folder) as channel:
        _ask(channel)
        assert not _is_answered(port, folder, other)
        (folder / port.server / "ca.crt").write_bytes((other / "ca.crt").read_bytes())
        assert _is_answered(port, folder, other)
        assert not _is_answered(port, folder, folder)
        _ask(channel)


async def test_controller_and_agents_go_on_when_ca_and_certificates_are_exchanged(
    start_server: Start, machines: Callable[..., list[Machine]], folder: Path
) -> None:
    (machine,) = machines(1, "--secure", "--tls-dir", str(folder))
    server, _ = await asyncio.to_thread(
        start_server, secure=True, tls_dir=folder, agents=machine.address, agent_lost_seconds=80
    )
    controller = server.controller

    def is_active(name: str) -> bool:
        return controller.get(name).ready_state(controller.clock()) is ReadyState.ACTIVE

    controller.create(CreateRequest("before", 2))
    await eventually(lambda: is_active("before"))
    for name in ("ca.crt", "ca.key"):
        (folder / name).unlink()
    certificates(folder)
    machine.kill()  # it knows nothing of the old CA from now on, and the controller connects anew
    machine.start()
    controller.create(CreateRequest("after", 2))
    await eventually(lambda: is_active("after"))
    assert is_active("before")
    assert not controller.machines


def test_a_key_of_another_certificate_is_not_taken_over(folder: Path) -> None:
    tls = tls_of(folder, Role.USER)
    before = tls()
    (folder / "user" / "tls.key").write_bytes((folder / "agent" / "tls.key").read_bytes())
    assert tls() is before
    with pytest.raises(TlsFilesError, match="do not belong together"):
        ClientTls(folder / "ca.crt", folder / "user" / "tls.crt", folder / "user" / "tls.key")


def test_the_insecure_mode_says_so(start_server: Start, folder: Path) -> None:
    with capture_logs() as logged:
        start_server()[0].stop()
    assert [one for one in logged if "INSECURE MODE" in one["event"]]
    with capture_logs() as logged:
        start_server(secure=True, tls_dir=folder)
    assert not [one for one in logged if "INSECURE MODE" in one["event"]]


async def test_the_insecure_mode_of_an_agent_says_so(folder: Path) -> None:
    for more, want in (({}, 1), ({"secure": True, "tls_dir": folder}, 0)):
        agent = VipuAgent(AgentOptions(port=0, exporter_port=0, **more))
        with capture_logs() as logged:
            await agent.start()
        await agent.stop()
        assert len([one for one in logged if "INSECURE MODE" in one["event"]]) == want


def _channel(port: Port, trusted: Path, own: Path | None = None) -> grpc.Channel:
    """A connection of its own, which shows the certificate in the folder `own`."""
    files = tls_of(own or trusted, port.client)()
    ca = (trusted / "ca.crt").read_bytes()
    credentials = grpc.ssl_channel_credentials(ca, files.key, files.certificate)
    alone = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.secure_channel(f"127.0.0.1:{port.number}", credentials, alone)


def _ask(channel: grpc.Channel) -> None:
    answer = HealthStub(channel).Check(HealthCheckRequest(), timeout=20)
    assert answer.status == HealthCheckResponse.SERVING


def _is_answered(port: Port, trusted: Path, own: Path) -> bool:
    with _channel(port, trusted, own) as channel:
        try:
            _ask(channel)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False
    return True


def _serial(port: Port, folder: Path) -> int:
    """The serial number of the certificate that a new connection is shown."""
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    ours = folder / port.client
    context.load_cert_chain(ours / "tls.crt", ours / "tls.key")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port.number), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as connection,
    ):
        certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate).serial_number
