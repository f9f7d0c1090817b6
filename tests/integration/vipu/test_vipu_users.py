"""Access control of the secure mode: every method of every service, for every kind of caller."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from partitions.vipu.certificates import Role
from partitions.vipu.cli import admin as vipu_admin
from partitions.vipu.cli import main as vipu
from partitions.vipu.client import CreateRequest, Credentials, VipuClient
from partitions.vipu.errors import (
    InvalidRequest,
    NoCapacity,
    NotFound,
    Refused,
    Unauthenticated,
    VipuError,
)
from partitions.vipu.protos import (
    vipu_admin_pb2,
    vipu_diagnostics_pb2,
    vipu_fleet_pb2,
    vipu_user_pb2,
    vipu_users_pb2,
    vipu_version_pb2,
)
from partitions.vipu.server.layout import Layout
from partitions.vipu.server.occupancy import Occupancy
from partitions.vipu.server.state import State
from partitions.vipu.server.statefile import StateFile
from partitions.vipu.server.userrecords import RemovedUser, UserRecord
from tests.builders.fleets import fleet_of_machines
from tests.integration.vipu.securesite import tls_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from partitions.vipu.server.main import VipuServer
    from partitions.vipu.server.state import Stored
    from tests.integration.vipu.securesite import Site

    Start = Callable[..., tuple[VipuServer, int]]

OK = grpc.StatusCode.OK
DENIED = grpc.StatusCode.PERMISSION_DENIED
UNKNOWN = grpc.StatusCode.UNAUTHENTICATED
MISSING = grpc.StatusCode.NOT_FOUND
WRONG = grpc.StatusCode.INVALID_ARGUMENT
P1 = {"partition_id": "p1"}
NEW: dict[str, Any] = {"requirements": {"id": "p2", "size": 1, "allocation_id": "a"}}

# method: request, and the answer to: no key, alice (who has p1 in a), bob (who has b), p1's pod.
USERS: dict[str, tuple[dict[str, Any], grpc.StatusCode, ...]] = {  # type: ignore[type-arg]
    "ListPartitions": ({}, UNKNOWN, OK, OK, OK),
    "ListIPUAttributes": ({"agents": ["ag0"]}, UNKNOWN, OK, WRONG, DENIED),
    "CreatePartition": (NEW, UNKNOWN, OK, WRONG, DENIED),
    "RemovePartition": ({"partition_id": "p2"}, UNKNOWN, OK, MISSING, DENIED),
    "GetPartitionStatus": (P1, UNKNOWN, OK, MISSING, OK),
    "GetPartitionIpuofConfig": (P1, UNKNOWN, OK, MISSING, OK),
    "GetVersion": ({}, OK, OK, OK, OK),
    "RevokePartitionKey": ({"partition_id": "p0"}, UNKNOWN, OK, MISSING, DENIED),
    "CreatePartitionKey": ({"partition_id": "p0"}, UNKNOWN, OK, MISSING, DENIED),
    "ResetPartition": (P1, UNKNOWN, OK, MISSING, OK),  # last: p1 is busy then
}
USER_SERVICES = (
    vipu_user_pb2.DESCRIPTOR.services_by_name["UserService"],
    vipu_version_pb2.DESCRIPTOR.services_by_name["VersionService"],
    vipu_users_pb2.DESCRIPTOR.services_by_name["PartitionKeyService"],
)
ADMIN_SERVICES = (
    vipu_user_pb2.DESCRIPTOR.services_by_name["UserService"],
    vipu_admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
    vipu_fleet_pb2.DESCRIPTOR.services_by_name["FleetService"],
    vipu_users_pb2.DESCRIPTOR.services_by_name["UserAdminService"],
    vipu_diagnostics_pb2.DESCRIPTOR.services_by_name["DiagnosticsService"],
)


@pytest.fixture
def published_only() -> bool:
    return False


def _code(channel: grpc.Channel, method: Any, request: Any, who: Credentials | None) -> Any:
    call = channel.unary_unary(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    try:
        call(request, timeout=30, metadata=who.metadata if who else None)
    except grpc.RpcError as error:
        return error.code()
    return OK


def _channel(site: Site, port: int, role: Role) -> grpc.Channel:
    files = tls_of(site.folder, role)()
    credentials = grpc.ssl_channel_credentials(files.ca, files.key, files.certificate)
    return grpc.secure_channel(f"127.0.0.1:{port}", credentials)


async def test_every_method_of_the_user_port_by_caller(site: Site) -> None:
    methods = {method.name: method for service in USER_SERVICES for method in service.methods}
    assert methods.keys() == USERS.keys()  # a new method needs a line in the table
    with _channel(site, site.port, Role.USER) as channel:
        got = {}
        for name, (fields, *_) in USERS.items():
            request = GetMessageClass(methods[name].input_type)(**fields)
            callers = (None, site.bob, site.pod, site.alice)  # who may change it comes last
            none, bob, pod, alice = (_code(channel, methods[name], request, who) for who in callers)
            got[name] = (none, alice, bob, pod)
    assert got == {name: tuple(codes) for name, (_, *codes) in USERS.items()}


async def test_every_method_of_the_admin_port_is_for_administrators(site: Site) -> None:
    for role in Role:
        with _channel(site, site.admin_port, role) as channel:
            for service in ADMIN_SERVICES:
                for method in service.methods:
                    request = GetMessageClass(method.input_type)()
                    code = _code(channel, method, request, site.alice)
                    assert (code is DENIED) == (role is not Role.ADMIN), (role, method.name, code)


async def test_an_administrator_is_no_user(site: Site) -> None:
    async with site.vipu(None, Role.ADMIN) as admin:
        with pytest.raises(Unauthenticated, match="give --api-user-id and --api-access-key"):
            await admin.list_partitions()


async def test_a_wrong_key_and_an_unknown_user_hear_the_same(site: Site) -> None:
    messages = set()
    for wrong in (
        Credentials("alice", site.bob.access_key),
        Credentials("nobody", site.bob.access_key),
        Credentials("partition/p0", site.pod.access_key),
        Credentials("partition/none", site.pod.access_key),
        Credentials("alice", ""),
    ):
        async with site.vipu(wrong) as client:
            with pytest.raises(Unauthenticated) as refused:
                await client.partition_status("p1")
        messages.add(str(refused.value).partition(": ")[2])
    assert len(messages) == 2  # the other is of the call without a key


async def test_nothing_tells_a_user_of_the_partitions_of_others(site: Site) -> None:
    async with site.vipu(site.bob) as bob, site.vipu(site.pod) as pod:
        assert await bob.list_partitions() == []
        assert [one.id for one in await pod.list_partitions()] == ["p1"]
        assert {ipu.allocation for ipu in (await bob.list_ipu_attributes()).ipus} == {"b"}
        for ask in (bob.partition_status, bob.remove_partition, bob.ipuof_config):
            words = set()
            for name in ("p1", "xx"):
                with pytest.raises(NotFound) as missing:
                    await ask(name)
                words.add(str(missing.value).replace(name, "?"))
            assert len(words) == 1
        with pytest.raises(InvalidRequest, match="allocation 'a' does not exist; use b"):
            await bob.create_partition(CreateRequest("b1", 1, allocation_id="a"))
        with pytest.raises(InvalidRequest, match="'a' does not exist"):
            await bob.list_partitions("a")
        with pytest.raises(NoCapacity, match="8 of 8 are free"):
            await bob.create_partition(CreateRequest("b1", 16))
        await bob.create_partition(
            CreateRequest("b1", 8)
        )  # no allocation named: an allocation of bob's
        assert [one.id for one in await bob.list_partitions()] == ["b1"]


async def test_grants_take_effect_at_the_next_call(site: Site) -> None:
    pb = vipu_users_pb2
    async with site.admin() as admin, site.vipu(site.bob) as bob:
        both = {"user_id": "bob", "allocation_ids": ["a"]}
        await admin.ask("GrantAllocations", pb.GrantAllocationsRequest(**both))
        assert [one.id for one in await bob.list_partitions()] == ["p0", "p1"]
        await admin.ask("RevokeAllocations", pb.RevokeAllocationsRequest(**both))
        assert await bob.list_partitions() == []
        mine = pb.RevokeAllocationsRequest(user_id="bob", allocation_ids=["b"])
        await admin.ask("RevokeAllocations", mine)
        with pytest.raises(Refused, match="ask an administrator for vipu-admin grant user bob"):
            await bob.create_partition(CreateRequest("b1", 1))
        await admin.ask("RotateKey", pb.RotateKeyRequest(user_id="bob"))
        with pytest.raises(Unauthenticated):
            await bob.list_partitions()
        for question, kind in (
            (pb.CreateUserRequest(user_id="alice"), "AlreadyExists"),
            (pb.CreateUserRequest(user_id="partition/p1"), "InvalidRequest"),
            (pb.CreateUserRequest(user_id="carol", allocation_ids=["none"]), "NotFound"),
        ):
            with pytest.raises(VipuError) as refused:
                await admin.ask("CreateUser", question)
            assert type(refused.value).__name__ == kind


async def test_a_new_allocation_of_an_old_name_is_not_granted(site: Site) -> None:
    async with site.admin() as admin, site.vipu(site.bob) as bob:
        fleet = vipu_fleet_pb2
        await admin.ask("RemoveAllocation", fleet.RemoveAllocationRequest(allocation_id="b"))
        again = fleet.CreateAllocationRequest(allocation_id="b", cluster_id="cb")
        await admin.ask("CreateAllocation", again)
        with pytest.raises(Refused, match="may use no allocation"):
            await bob.create_partition(CreateRequest("b1", 1))


async def test_the_state_file_has_hashes_and_no_keys_and_they_survive_a_restart(
    site: Site, start_server: Start, storage: Path
) -> None:
    text = storage.read_text()
    for who in (site.alice, site.bob, site.pod):
        assert who.access_key not in text
    assert stat.S_IMODE(storage.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in text.splitlines()]
    changes = [change for line in lines for change in line.get("changes", ())]
    assert {len(each["user"]["keySha256"]) for each in changes if "user" in each} == {64}
    site.server.stop()
    options = {"cluster": "ca,cb", "allocation": "a,b", "machines": 2}
    _, site.port = start_server(secure=True, tls_dir=site.folder, **options)
    async with site.vipu(site.alice) as alice, site.vipu(site.pod) as pod:
        assert [one.id for one in await alice.list_partitions()] == ["p0", "p1"]
        assert [one.id for one in await pod.list_partitions()] == ["p1"]


def test_an_earlier_server_hears_that_a_file_with_users_is_newer(tmp_path: Path) -> None:
    at = datetime(2026, 3, 1, 11, tzinfo=UTC)
    user = UserRecord("alice", "hash", ("default",), at, at)
    file, versions = StateFile(tmp_path / "state.json"), []
    plain = State({}, {}, Occupancy.of(fleet_of_machines(4)))
    known = replace(plain, users={user.id: user})
    arranged = replace(known, layout=Layout(is_edited=True))
    changes: list[list[Stored]] = [[], [user], [arranged.layout], [RemovedUser("alice")]]
    states = (plain, known, arranged, replace(arranged, users={}))
    for change, after in zip(changes, states, strict=True):
        file.save(change, after)
        versions.append(json.loads(file.path.read_text().partition("\n")[0])["version"])
        assert file.load().users == after.users
    assert versions == [2, 4, 5, 3]
    # The first servers with users wrote them into files of version 2.
    file.save((user,), known)
    text = file.path.read_text()
    file.path.write_text(text.replace('"version": 4', '"version": 2'))
    assert file.load().users == {"alice": user}


async def test_a_key_is_never_sent_without_tls() -> None:
    seen: list[tuple[tuple[str, str], ...]] = []

    class Listener(grpc.aio.ServerInterceptor):  # type: ignore[type-arg,misc]
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            seen.append(tuple(details.invocation_metadata))
            return await continuation(details)

    server = grpc.aio.server(interceptors=[Listener()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    who = Credentials("alice", "secret")
    async with VipuClient(f"127.0.0.1:{port}", credentials=lambda: who) as client:
        with pytest.raises(VipuError):
            await client.list_partitions()
    await server.stop(None)
    assert seen
    assert "secret" not in str(seen)


def test_the_commands_make_and_use_a_user(
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(main: Callable[..., int], *arguments: str, role: Role = Role.ADMIN) -> str:
        ours = site.folder / role
        for name, file in (("CA", "ca.crt"), ("CERTIFICATE", "tls.crt"), ("KEY", "tls.key")):
            monkeypatch.setenv(f"VIPU_CLI_{name}", str(ours / file))
        code = main(arguments)
        out, err = capsys.readouterr()
        lines = [line for line in out.splitlines() if " [info " not in line]  # the server's
        return "\n".join([f"{code} {lines[0] if lines else err}", *lines[1:]])

    where = ("-H", "127.0.0.1", "--api-port", str(site.admin_port))
    made = run(vipu_admin.main, "create", "user", "carol", "--allocations", "a", *where)
    assert made.startswith("0 create user (carol): success. Access key is '")
    wrote = "vipu configuration file for the user 'carol' written: carol.vipu-cli.hcl. Give it to"
    assert wrote in made
    file = tmp_path / "carol.vipu-cli.hcl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    listed = run(vipu.main, "list", "partitions", "--config", str(file), role=Role.USER)
    assert "p1" in listed
    first = file.read_text()
    renewed = run(vipu_admin.main, "rotate-key", "user", "carol", "-o", "json", *where)
    key = json.loads(renewed.removeprefix("0 "))["access_key"]
    assert f'api-access-key="{key}"' in file.read_text()
    assert file.read_text() != first
    assert "p1" in run(vipu.main, "list", "partitions", "--config", str(file), role=Role.USER)
    run(vipu_admin.main, "revoke", "user", "carol", "--allocations", "a", *where)
    run(vipu_admin.main, "grant", "user", "carol", "--allocations", "b", *where)
    assert " carol   | b" in run(vipu_admin.main, "list", "users", *where)
    assert run(vipu_admin.main, "remove", "user", "carol", *where).startswith("0 remove user")
    refused = run(vipu.main, "list", "partitions", "--config", str(file), role=Role.USER)
    assert refused.startswith("1 list partitions: failed: ")
    assert "user id or access key is wrong" in refused
