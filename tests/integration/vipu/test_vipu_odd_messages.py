"""Any message of a V-IPU client gets a status with a message, and the controller keeps running."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc import StatusCode

from partitions.vipu.protos import vipu_user_pb2 as pb
from tests.integration.vipu.oddmessages import SAID, message

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

    from partitions.vipu.server.main import VipuServer

SERVICE = pb.DESCRIPTOR.services_by_name["UserService"]
METHODS = [pytest.param(method, id=method.name) for method in SERVICE.methods]


def ask(port: int, method: MethodDescriptor, body: bytes) -> tuple[StatusCode, str]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(f"/{SERVICE.full_name}/{method.name}")
        try:
            call(body, timeout=90)
        except grpc.RpcError as error:
            return error.code(), error.details()
    return StatusCode.OK, ""


@pytest.mark.parametrize("method", METHODS)
def test_any_message_is_answered_or_refused_in_words(
    start_server: Callable[..., tuple[VipuServer, int]], method: MethodDescriptor
) -> None:
    server, port = start_server()
    random = Random(method.name)  # the same messages each time
    for _ in range(150):
        request = message(random, method.input_type)
        code, details = ask(port, method, request.SerializeToString())
        assert code in {StatusCode.OK, *SAID}, (request, details)
        assert details or code is StatusCode.OK
    server.stop()
    start_server()  # what was stored can be read again


@pytest.mark.parametrize("method", METHODS)
def test_bytes_that_are_no_message_break_nothing(
    server: tuple[VipuServer, int], method: MethodDescriptor
) -> None:
    random = Random(method.name)
    for _ in range(60):
        code, _ = ask(server[1], method, random.randbytes(random.choice([1, 7, 60])))
        # What cannot be decoded gRPC refuses itself, as INTERNAL.
        assert code in {StatusCode.OK, StatusCode.INTERNAL, *SAID}
    listing = SERVICE.methods_by_name["ListPartitions"]
    assert ask(server[1], listing, b"") == (StatusCode.OK, "")


def creation(partition: str = "p", cluster: str = "", allocation: str = "") -> Message:
    wanted = pb.PartitionRequirements(
        id=partition, size=1, cluster_id=cluster, allocation_id=allocation
    )
    return pb.CreatePartitionRequest(requirements=wanted)


def asking(text: str) -> list[tuple[str, Message, StatusCode]]:
    """Each call that takes a name, with this name, and how it is refused."""
    unknown, wrong = StatusCode.NOT_FOUND, StatusCode.INVALID_ARGUMENT
    return [
        ("CreatePartition", creation(partition=text), wrong),
        ("CreatePartition", creation(cluster=text), wrong),
        ("CreatePartition", creation(allocation=text), wrong),
        ("GetPartitionStatus", pb.GetPartitionStatusRequest(partition_id=text), unknown),
        ("ResetPartition", pb.ResetPartitionRequest(partition_id=text), unknown),
        ("RemovePartition", pb.RemovePartitionRequest(partition_id=text), unknown),
        ("GetPartitionIpuofConfig", pb.GetPartitionIpuofConfigRequest(partition_id=text), unknown),
        ("ListPartitions", pb.ListPartitionsRequest(allocation_id=text), wrong),
        ("ListIPUAttributes", pb.ListIPUAttributesRequest(agents=[text]), wrong),
    ]


@pytest.mark.parametrize("character", ["a", "\U0001f600"])
def test_a_name_of_any_length_is_refused_with_its_status_and_what_to_write(
    server: tuple[VipuServer, int], character: str
) -> None:
    for name, request, code in asking(character * 20_000):
        status, details = ask(server[1], SERVICE.methods_by_name[name], request.SerializeToString())
        assert status is code, (name, details)
        assert character * 50 not in details
        assert "of 20,000 characters" in details
        assert len(details) <= 500
    creating, request, _ = asking(character * 20_000)[0]
    _, details = ask(server[1], SERVICE.methods_by_name[creating], request.SerializeToString())
    assert details.startswith("partition id of 20,000 characters")
    assert "1 to 63 letters, digits" in details
