"""10,000 generated messages to every call of users, administrators and agents: documented codes."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc import StatusCode

from partitions.vipu.agent.main import AgentOptions, VipuAgent
from partitions.vipu.protos import (
    vipu_admin_pb2,
    vipu_agent_pb2,
    vipu_diagnostics_pb2,
    vipu_fleet_pb2,
    vipu_user_pb2,
    vipu_version_pb2,
)
from tests.integration.vipu.oddmessages import SAID, message

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import FileDescriptor, MethodDescriptor
    from google.protobuf.message import Message

    from partitions.vipu.server.main import VipuServer

MESSAGES = 10_000
# What stops an agent from answering is no message to be answered.
HANG = vipu_agent_pb2.FAULT_KIND_HANG
SERVER = (vipu_user_pb2, vipu_version_pb2)
ADMIN = (vipu_admin_pb2, vipu_fleet_pb2)


def services(*modules: Any) -> list[MethodDescriptor]:
    files: list[FileDescriptor] = [module.DESCRIPTOR for module in modules]
    return [
        method
        for file in files
        for service in file.services_by_name.values()
        for method in service.methods
    ]


async def fuzz(port: int, methods: list[MethodDescriptor], seed: str, count: int) -> Counter[str]:
    """Send so many messages, 16 at a time; how often each code was the answer."""
    random, codes = Random(seed), Counter[str]()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:

        async def ask(method: MethodDescriptor, asked: Message) -> None:
            call = channel.unary_unary(f"/{method.containing_service.full_name}/{method.name}")
            code, said = StatusCode.OK, "-"
            try:
                await call(asked.SerializeToString(), timeout=90)
            except grpc.aio.AioRpcError as error:
                code, said = error.code(), error.details() or ""
            assert code in {StatusCode.OK, *SAID}, (method.full_name, asked, said)
            assert said
            assert len(said) <= 500
            codes[code.name] += 1

        for start in range(0, count, 16):
            chosen = [random.choice(methods) for _ in range(min(16, count - start))]
            asked = [(method, message(random, method.input_type)) for method in chosen]
            await asyncio.gather(*(ask(method, answerable(one)) for method, one in asked))
    assert codes.total() == count
    return codes


def answerable(asked: Message) -> Message:
    """The message, unless it asks for no more answers."""
    if isinstance(asked, vipu_agent_pb2.InjectFaultRequest) and asked.kind == HANG:
        asked.kind = vipu_agent_pb2.FAULT_KIND_IPU_ERROR
    return asked


@pytest.fixture
def published_only() -> bool:
    return False


async def test_users_and_administrators_hear_documented_codes_only(
    start_server: Callable[..., tuple[VipuServer, int]],
) -> None:
    server, port = await asyncio.to_thread(start_server, admin_port=0)
    admin = server.admin_port
    assert admin
    diagnostics = [
        each
        for each in services(vipu_diagnostics_pb2)
        if each.containing_service.name == "DiagnosticsService"
    ]
    user = await fuzz(port, services(*SERVER), "user", MESSAGES)
    asked = await fuzz(admin, [*services(*ADMIN), *diagnostics], "admin", MESSAGES)
    print(f"user {dict(user)}\nadmin {dict(asked)}")
    for codes in (user, asked):
        assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND"} <= codes.keys()
    before = server.controller.list(), server.controller.state.layout, server.controller.machines
    await asyncio.to_thread(server.stop)
    server, _ = await asyncio.to_thread(start_server)
    state = server.controller.state
    assert (server.controller.list(), state.layout, state.machines) == before


async def test_a_controller_hears_documented_codes_of_an_agent_only() -> None:
    agent = VipuAgent(AgentOptions(port=0, exporter_port=0))
    (ports,) = await agent.start()
    mine = [
        each
        for each in services(vipu_agent_pb2, vipu_diagnostics_pb2)
        if each.containing_service.name != "DiagnosticsService"
    ]
    codes = await fuzz(ports.api, mine, "agent", MESSAGES)
    print(f"agent {dict(codes)}")
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND"} <= codes.keys()
    await agent.stop()
