"""Certificates for tests of the secure mode, and clients that present them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from partitions.vipu.certificates import Role, init_certificates
from partitions.vipu.client import AdminClient, CreateRequest, Credentials, VipuClient
from partitions.vipu.protos import vipu_users_pb2
from partitions.vipu.tlsfiles import ClientTls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from partitions.vipu.server.main import VipuServer
    from tests.integration.vipu.conftest import Clock

    Start = Callable[..., tuple[VipuServer, int]]


def certificates(folder: Path) -> Path:
    """The folder with certificates of every role for 127.0.0.1; TLS asks a real clock."""
    init_certificates(folder, ["localhost", "127.0.0.1"], datetime.now(UTC))
    return folder


def tls_of(folder: Path, role: Role) -> ClientTls:
    """Return the certificate and the trust of a holder of this role."""
    ours = folder / role
    return ClientTls(ours / "ca.crt", ours / "tls.crt", ours / "tls.key")


@dataclass
class Site:
    """A secure server with alice in allocation a, who holds p0 and p1, and bob in b."""

    server: VipuServer
    folder: Path
    port: int
    admin_port: int
    alice: Credentials
    bob: Credentials
    pod: Credentials

    def vipu(self, who: Credentials | None, role: Role = Role.USER) -> VipuClient:
        tls = tls_of(self.folder, role)
        return VipuClient(
            f"127.0.0.1:{self.port}", tls=tls, credentials=(lambda: who) if who else None
        )

    def admin(self) -> AdminClient:
        return AdminClient(f"127.0.0.1:{self.admin_port}", tls=tls_of(self.folder, Role.ADMIN))


async def _user(admin: AdminClient, name: str, *allocations: str) -> Credentials:
    question = vipu_users_pb2.CreateUserRequest(user_id=name, allocation_ids=allocations)
    made = await admin.ask("CreateUser", question)
    return Credentials(made.user_id, made.access_key)


async def made_site(start_server: Start, folder: Path, clock: Clock) -> Site:
    """A secure server with all of Site; its certificates are in `folder`."""
    certificates(folder)
    server, port = start_server(
        secure=True, tls_dir=folder, admin_port=0, machines=2, cluster="ca,cb", allocation="a,b"
    )
    assert server.admin_port
    nobody = Credentials("", "")
    found = Site(server, folder, port, server.admin_port, nobody, nobody, nobody)
    async with found.admin() as admin:
        found.alice = await _user(admin, "alice", "a")
        found.bob = await _user(admin, "bob", "b")
    async with found.vipu(found.alice) as alice:
        for name in ("p0", "p1"):
            await alice.create_partition(CreateRequest(name, 2))
        clock.forward(60)
        made = await alice.create_partition_key("p1")
    assert made is not None
    found.pod = made
    return found
