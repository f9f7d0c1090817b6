"""The client against controllers that are slow, absent, back again, or speak TLS."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from partitions.vipu.client import CreateRequest, TlsFiles, VipuClient
from partitions.vipu.errors import Unavailable
from partitions.vipu.protos.vipu_version_pb2 import VersionReply
from partitions.vipu.protos.vipu_version_pb2_grpc import (
    VersionServiceServicer,
    add_VersionServiceServicer_to_server,
)
from partitions.vipu.server.services.partitions import VersionService
from tests.fakes.freeport import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from partitions.vipu.server.main import VipuServer


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def test_a_controller_that_never_answers_is_unavailable_after_the_deadline(
    silent_port: int,
) -> None:
    async with VipuClient(f"127.0.0.1:{silent_port}", deadline_seconds=0.2) as client:
        with pytest.raises(Unavailable, match=f"127.0.0.1:{silent_port}") as caught:
            await client.list_partitions()
    assert caught.value.retryable


class Stuck(VersionServiceServicer):
    """Takes a call and does not answer it before it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def GetVersion(self, request: object, context: grpc.ServicerContext) -> VersionReply:  # noqa: N802
        self.let_go.wait(60)
        return VersionReply()


async def test_a_call_that_a_controller_took_and_forgot_ends_by_its_deadline() -> None:
    stuck = Stuck()
    server = grpc.server(ThreadPoolExecutor(2))
    add_VersionServiceServicer_to_server(stuck, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        async with VipuClient(f"127.0.0.1:{port}", deadline_seconds=0.3) as client:
            async with asyncio.timeout(60):
                with pytest.raises(Unavailable, match="eadline"):
                    await client.version()
    finally:
        stuck.let_go.set()
        server.stop(None).wait()


@pytest.mark.parametrize("published_only", [False])
async def test_a_fleet_is_read_again_once_it_has_changed(
    server: tuple[VipuServer, int], client: VipuClient
) -> None:
    first = await client.list_ipu_attributes()
    assert await client.list_ipu_attributes() is first
    server[0].controller.cordon("ag0", "cables")
    cordoned = await client.list_ipu_attributes()
    assert "cables" in cordoned.ipus[0].cordon
    assert await client.list_ipu_attributes() is cordoned
    server[0].controller.uncordon("ag0")
    assert await client.list_ipu_attributes() == first


async def test_an_absent_controller_is_unavailable_at_once() -> None:
    async with VipuClient(f"127.0.0.1:{free_port()}", deadline_seconds=60) as client:
        with pytest.raises(Unavailable, match="onnect"):
            await client.create_partition(CreateRequest("p", 1))


async def test_a_controller_that_comes_back_is_found_by_the_same_client(
    start_server: Callable[..., tuple[VipuServer, int]],
) -> None:
    first, port = start_server()
    async with VipuClient(f"127.0.0.1:{port}") as client:
        await client.create_partition(CreateRequest("p", 4))
        first.stop()
        with pytest.raises(Unavailable):
            await client.list_partitions()
        start_server(port=port)
        for _ in range(200):  # each refusal takes part of the reconnection backoff
            try:
                listed = await client.list_partitions()
                break
            except Unavailable:
                await client._channel.channel_ready()
        assert [one.id for one in listed] == ["p"]


async def test_a_closed_client_opens_again_at_the_next_call(client: VipuClient) -> None:
    assert await client.list_partitions() == []
    await client.close()
    await client.close()
    assert await client.list_partitions() == []


async def test_all_calls_of_a_client_share_one_connection(
    start_server: Callable[..., tuple[VipuServer, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    original = grpc.aio.insecure_channel

    def counting(target: str, **options: object) -> grpc.aio.Channel:
        opened.append(target)
        return original(target, **options)

    monkeypatch.setattr("partitions.vipu.client.grpc.aio.insecure_channel", counting)
    _, port = start_server()
    async with VipuClient(f"127.0.0.1:{port}") as client:
        await client.list_partitions()
        await client.version()
        await client.list_ipu_attributes()
    assert opened == [f"127.0.0.1:{port}"]


async def test_the_fleet_of_eight_thousand_machines_fits_into_an_answer(
    start_server: Callable[..., tuple[VipuServer, int]],
) -> None:
    _, port = start_server(machines=8192)
    async with VipuClient(f"127.0.0.1:{port}") as client:
        assert len(await client.list_ipu_attributes()) == 32768


def certificate() -> tuple[bytes, bytes]:
    """A self-signed certificate for localhost and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return (
        signed.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


async def test_a_controller_behind_mutual_tls_is_asked_with_our_certificate() -> None:
    server_pem, server_key = certificate()
    our_pem, our_key = certificate()
    server = grpc.server(ThreadPoolExecutor(2))
    add_VersionServiceServicer_to_server(VersionService("9"), server)
    credentials = grpc.ssl_server_credentials(
        [(server_key, server_pem)], root_certificates=our_pem, require_client_auth=True
    )
    port = server.add_secure_port("localhost:0", credentials)
    server.start()
    try:
        tls, half = TlsFiles(server_pem, our_pem, our_key), TlsFiles(server_pem)
        async with VipuClient(f"localhost:{port}", tls=lambda: tls) as client:
            assert await client.version() == "9"
        async with VipuClient(f"localhost:{port}", tls=lambda: half) as stranger:
            with pytest.raises(Unavailable):
                await stranger.version()
    finally:
        server.stop(None).wait()
