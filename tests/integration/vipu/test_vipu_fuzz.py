"""Generated messages to each port of users, administrators and agents, shared out among all its
calls: documented codes. 10,000 a port in the long form; FUZZ_MESSAGES sends more."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc import StatusCode, aio

from partitions.vipu.agent.main import AgentOptions, VipuAgent
from partitions.vipu.certificates import Role
from partitions.vipu.client import AdminClient, Credentials
from partitions.vipu.codes import number_of
from partitions.vipu.protos import (
    vipu_admin_pb2,
    vipu_agent_pb2,
    vipu_diagnostics_pb2,
    vipu_fleet_pb2,
    vipu_user_pb2,
    vipu_users_pb2,
    vipu_version_pb2,
)
from tests.fakes.longform import IS_LONG
from tests.integration.vipu.oddmessages import SAID, message
from tests.integration.vipu.securesite import certificates, tls_of
from tests.unit.partitions.vipu.test_vipu_wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from google.protobuf.descriptor import Descriptor, FileDescriptor, MethodDescriptor
    from google.protobuf.message import Message

    from partitions.vipu.server.main import VipuServer

MESSAGES = int(os.environ.get("FUZZ_MESSAGES", "10000" if IS_LONG else "3000"))
# Of these the caller hears which field is wrong, and what to do about it.
WRONG = {StatusCode.INVALID_ARGUMENT, StatusCode.NOT_FOUND, StatusCode.RESOURCE_EXHAUSTED}
REMEDY = re.compile(
    r"[:;,] (use|write|see|name|leave|choose|start|configure|wait)\b"
    r"|a partition has at (least|most) \d+ IPUs?,|is a power of two: \d+"
)
# Nine messages in ten end as they are; one has fields of numbers that only a newer client knows.
NEWER = [b""] * 9 + [encode([(900, 7), (901, "x"), (902, [(1, "y")])])]
# What stops an agent from answering is no message to be answered.
HANG = vipu_agent_pb2.FAULT_KIND_HANG
OF_OTHER_PORTS = {"AgentDiagnosticsService", "PartitionKeyService"}  # of the admin port's files
SERVER = (vipu_user_pb2, vipu_version_pb2)
ADMIN = (
    vipu_admin_pb2,
    vipu_fleet_pb2,
    vipu_users_pb2,
    vipu_diagnostics_pb2,
    vipu_user_pb2,
)


def services(*modules: Any) -> list[MethodDescriptor]:
    files: list[FileDescriptor] = [module.DESCRIPTOR for module in modules]
    return [
        method
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
    ]


async def fuzz(
    channel: aio.Channel, methods: list[MethodDescriptor], seed: str, *metadata: tuple[str, str]
) -> Counter[str]:
    """Send all messages, 16 at a time, to all methods in turn; how often each code was the
    answer."""
    random, codes, heard = Random(seed), Counter[str](), Counter[str]()
    async with channel:

        async def ask(method: MethodDescriptor, request: Message) -> None:
            call = channel.unary_unary(f"/{method.containing_service.full_name}/{method.name}")
            raw = request.SerializeToString() + random.choice(NEWER)
            answers = [(StatusCode.OK, "-")]
            try:
                answers += refusals(await call(raw, timeout=90, metadata=metadata), method)
            except aio.AioRpcError as error:
                answers = [(error.code(), error.details() or "")]
            for code, details in answers:
                judge(code, details, method, request)
            heard[method.full_name] += 1

        def judge(
            code: StatusCode, details: str, method: MethodDescriptor, request: Message
        ) -> None:
            assert code in {StatusCode.OK, *SAID}, (method.full_name, request, details)
            assert details
            assert len(details) <= 500
            if code in WRONG:
                assert names_a_field(details, method.input_type), (
                    method.full_name,
                    request,
                    details,
                )
                assert REMEDY.search(details), (method.full_name, request, details)
            codes[code.name] += 1

        for start in range(0, MESSAGES, 16):
            chosen = [random.choice(methods) for _ in range(min(16, MESSAGES - start))]
            requests = [(method, message(random, method.input_type)) for method in chosen]
            await asyncio.gather(*(ask(method, answerable(one)) for method, one in requests))
    assert heard.total() == MESSAGES
    assert min(heard[each.full_name] for each in methods) >= MESSAGES / len(methods) / 2
    return codes


def refusals(raw: bytes, method: MethodDescriptor) -> list[tuple[StatusCode, str]]:
    """Codes and sentences of the orders that an agent has not begun."""
    if method.name != "Follow":
        return []
    answer = vipu_agent_pb2.FollowReply.FromString(raw)
    codes = {number_of(code): code for code in StatusCode}
    return [(codes[each.code], each.reason) for each in answer.refusals]


def names_a_field(details: str, message: Descriptor, depth: int = 3) -> bool:
    """Return whether a sentence begins with the name of a field of a message, or of a message in
    it."""
    return any(
        re.match(rf"(partition (\S+: )?)?{field.name}( [^:;]+)?: ", details)
        or (field.message_type and depth and names_a_field(details, field.message_type, depth - 1))
        for field in message.fields
    )


def insecure(port: int) -> aio.Channel:
    return aio.insecure_channel(f"127.0.0.1:{port}")


def answerable(request: Message) -> Message:
    """The message, unless it asks for no more answers."""
    if isinstance(request, vipu_agent_pb2.InjectFaultRequest) and request.kind == HANG:
        request.kind = vipu_agent_pb2.FAULT_KIND_IPU_ERROR
    return request


@pytest.fixture
def published_only() -> bool:
    return False


async def test_users_and_administrators_hear_documented_codes_only(
    start_server: Callable[..., tuple[VipuServer, int]],
) -> None:
    server, port = await asyncio.to_thread(start_server, admin_port=0)
    assert server.admin_port
    user = await fuzz(insecure(port), services(*SERVER), "user")
    offered = [
        each for each in services(*ADMIN) if each.containing_service.name not in OF_OTHER_PORTS
    ]
    administrator = await fuzz(insecure(server.admin_port), offered, "admin")
    print(f"user {dict(user)}\nadmin {dict(administrator)}")
    for codes in (user, administrator):
        assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND"} <= codes.keys()
    before = server.controller.list(), server.controller.state.layout, server.controller.machines
    await asyncio.to_thread(server.stop)
    server, _ = await asyncio.to_thread(start_server)
    state = server.controller.state
    assert (server.controller.list(), state.layout, state.machines) == before


async def test_a_user_with_a_key_hears_documented_codes_only(
    start_server: Callable[..., tuple[VipuServer, int]], tmp_path: Path
) -> None:
    """Of a secure server, which alone makes keys for pods."""
    folder = certificates(tmp_path / "tls")
    server, port = await asyncio.to_thread(
        start_server, secure=True, tls_dir=folder, admin_port=0, cluster="ca,cb", allocation="a,b"
    )
    async with AdminClient(
        f"127.0.0.1:{server.admin_port}", tls=tls_of(folder, Role.ADMIN)
    ) as admin:
        made = await admin.ask(
            "CreateUser", vipu_users_pb2.CreateUserRequest(user_id="alice", allocation_ids=["a"])
        )
    files = tls_of(folder, Role.USER)()
    credentials = grpc.ssl_channel_credentials(files.ca, files.key, files.certificate)
    alice = Credentials(made.user_id, made.access_key)
    offered = [
        each
        for each in services(*SERVER, vipu_users_pb2)
        if each.containing_service.name != "UserAdminService"
    ]
    channel = aio.secure_channel(f"127.0.0.1:{port}", credentials)
    codes = await fuzz(channel, offered, "secure", *alice.metadata)
    print(f"secure {dict(codes)}")
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND"} <= codes.keys()


async def test_a_controller_hears_documented_codes_of_an_agent_only() -> None:
    agent = VipuAgent(AgentOptions(port=0, exporter_port=0))
    (ports,) = await agent.start()
    mine = [
        each
        for each in services(vipu_agent_pb2, vipu_diagnostics_pb2)
        if each.containing_service.name != "DiagnosticsService"
    ]
    codes = await fuzz(insecure(ports.api), mine, "agent")
    print(f"agent {dict(codes)}")
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND"} <= codes.keys()
    await agent.stop()
