"""The published wire format: every field number written down by hand, every message compared."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from partitions.vipu import wire
from partitions.vipu.errors import InvalidRequest
from partitions.vipu.protos import vipu_user_pb2 as pb
from partitions.vipu.protos import vipu_version_pb2 as version_pb
from partitions.vipu.topology import IpuId
from partitions.vipu.types import CreateRequest, OperationState, ReadyState, VipuStatus

Fields = list[tuple[int, Any]]


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode(fields: Fields) -> bytes:
    """Protocol buffers by hand: (field number, int | bool | str | nested fields) in order."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(int(value))
        else:
            body = value.encode() if isinstance(value, str) else encode(value)
            out += varint(number << 3 | 2) + varint(len(body)) + body
    return out


IPU = pb.PartitionIpu(
    ipulink_domain_topology_id=11, ipulink_domain_routing_id=12, topology_id=13, routing_id=14
)
IPU_FIELDS: Fields = [(1, 11), (2, 12), (3, 13), (4, 14)]
SPEC = pb.PartitionSpec(
    cluster_id="c",
    ipus=[IPU],
    ipulink_routing_type=pb.IRT_BTNC,
    sync_type=pb.ST_POD_NATIVE_DEFAULT,
    num_gcds=15,
    num_ipulink_segments=16,
    reconfigurable=True,
    gw_routing_type=pb.GRT_SWRING,
    num_replicas=17,
    allocation_id="a",
)
SPEC_FIELDS: Fields = [
    (1, "c"), (2, IPU_FIELDS), (3, 3), (4, 3), (5, 15), (6, 16), (7, True), (8, 3), (9, 17),
    (10, "a"),
]  # fmt: skip
PARTITION = pb.Partition(id="p", spec=SPEC, ready_state=pb.PS_ACTIVE, ipuof_server_version="v")
PARTITION_FIELDS: Fields = [(1, "p"), (2, SPEC_FIELDS), (3, 2), (4, "v")]
REQUIREMENTS = pb.PartitionRequirements(
    id="p",
    size=18,
    cluster_id="c",
    ipulink_routing_type=pb.IRT_RINGSWNC,
    num_ipulink_segments=19,
    gw_routing_type=pb.GRT_RING,
    sync_type=pb.ST_POD_NATIVE_REPLICATED_PIPELINE,
    num_gcds=20,
    reconfigurable=True,
    num_replicas=21,
    allocation_id="a",
    ipus=[IPU],
)
REQUIREMENTS_FIELDS: Fields = [
    (1, "p"), (2, 18), (3, "c"), (4, 4), (5, 19), (6, 2), (7, 4), (8, 20), (9, True), (10, 21),
    (11, "a"), (12, IPU_FIELDS),
]  # fmt: skip
DEVICE = pb.IpuofDevice(
    ip="10.0.0.1",
    server_port=22,
    rdma_port=23,
    device_id=24,
    ipulink_segment_id=25,
    routing_id=26,
    ipu_arch_id=27,
    ipu_id=28,
    chip_id="chip",
    gwsw_version="gw",
    ipum_sw_version="sw",
)
DEVICE_FIELDS: Fields = [
    (1, "10.0.0.1"), (2, 22), (3, 23), (4, 24), (5, 25), (6, 26), (7, 27), (8, 28), (9, "chip"),
    (10, "gw"), (11, "sw"),
]  # fmt: skip
GCD = pb.PartitionConfig.Gcd(devices=[DEVICE], attributes={"k": "v"})
GCD_FIELDS: Fields = [(2, DEVICE_FIELDS), (3, [(1, "k"), (2, "v")])]
CONFIG = pb.PartitionConfig(
    ipulink_routing_type=pb.IRT_DNC,
    sync_type=pb.ST_GS2_DEFAULT,
    reconfigurable=True,
    gw_routing_type=pb.GRT_RING,
    num_ipulink_segments=29,
    gcd_configs=[GCD],
    ipuof_server_version="v",
)
CONFIG_FIELDS: Fields = [
    (2, 1), (3, 1), (5, True), (6, 2), (7, 29), (8, GCD_FIELDS), (9, "v"),
]  # fmt: skip
STATUS = pb.PartitionStatus(
    partition_id="p",
    ready_state=pb.PS_ERROR,
    operation_state=pb.POS_FAILED,
    errors=["e"],
    max_auto_reset_retries=30,
    auto_reset_retry_count=31,
    last_auto_reset_time={"seconds": 1000, "nanos": 7},
)
STATUS_FIELDS: Fields = [
    (1, "p"), (2, 4), (3, 5), (4, "e"), (5, 30), (6, 31), (7, [(1, 1000), (2, 7)]),
]  # fmt: skip
ALLOCATION_SPEC = pb.AllocationSpec(cluster_id="c", agent_ids=["ag0"])
GCD_ID = pb.GetPartitionIpuofConfigRequest.GcdID(id=32)
ATTRIBUTES = pb.ListIPUAttributesReply.Entry.Attributes(attributes={"k": "v"})
ENTRY = pb.ListIPUAttributesReply.Entry(agent="ag0", ipu_attributes={3: ATTRIBUTES})
ENTRY_FIELDS: Fields = [(1, "ag0"), (2, [(1, 3), (2, [(1, [(1, "k"), (2, "v")])])])]

CASES: list[tuple[Any, Fields]] = [
    (IPU, IPU_FIELDS),
    (SPEC, SPEC_FIELDS),
    (PARTITION, PARTITION_FIELDS),
    (REQUIREMENTS, REQUIREMENTS_FIELDS),
    (DEVICE, DEVICE_FIELDS),
    (GCD, GCD_FIELDS),
    (CONFIG, CONFIG_FIELDS),
    (STATUS, STATUS_FIELDS),
    (pb.ListPartitionsRequest(allocation_id="a"), [(1, "a")]),
    (pb.ListPartitionsReply(partitions=[PARTITION]), [(1, PARTITION_FIELDS)]),
    (
        pb.CreatePartitionRequest(
            requirements=REQUIREMENTS, disable_auto_reset=True, relocatable=True
        ),
        [(2, REQUIREMENTS_FIELDS), (3, True), (5, True)],
    ),
    (pb.CreatePartitionReply(partition_id="p"), [(1, "p")]),
    (pb.ResetPartitionRequest(partition_id="p", relocatable=True), [(1, "p"), (2, True)]),
    (pb.ResetPartitionReply(), []),
    (pb.RemovePartitionRequest(partition_id="p", force=True), [(1, "p"), (2, True)]),
    (pb.RemovePartitionReply(), []),
    (GCD_ID, [(1, 32)]),
    (
        pb.GetPartitionIpuofConfigRequest(partition_id="p", gcd_id=GCD_ID),
        [(1, "p"), (2, [(1, 32)])],
    ),
    (pb.GetPartitionIpuofConfigReply(ipuof_config=CONFIG), [(1, CONFIG_FIELDS)]),
    (pb.GetPartitionStatusRequest(partition_id="p"), [(1, "p")]),
    (pb.GetPartitionStatusReply(status=STATUS), [(1, STATUS_FIELDS)]),
    (ALLOCATION_SPEC, [(1, "c"), (2, "ag0")]),
    (pb.Allocation(id="a", spec=ALLOCATION_SPEC), [(1, "a"), (2, [(1, "c"), (2, "ag0")])]),
    (pb.ListIPUAttributesRequest(agents=["ag0"]), [(1, "ag0")]),
    (ATTRIBUTES, [(1, [(1, "k"), (2, "v")])]),
    (ENTRY, ENTRY_FIELDS),
    (pb.ListIPUAttributesReply(entries=[ENTRY]), [(1, ENTRY_FIELDS)]),
    (version_pb.VersionRequest(), []),
    (version_pb.VersionReply(version="1"), [(1, "1")]),
]


@pytest.mark.parametrize(
    ("message", "fields"), CASES, ids=[case[0].DESCRIPTOR.full_name for case in CASES]
)
def test_a_message_has_the_published_bytes(message: Any, fields: Fields) -> None:
    assert message.SerializeToString(deterministic=True) == encode(fields)
    assert type(message).FromString(encode(fields)) == message


@pytest.mark.parametrize(
    ("message", "fields"), CASES, ids=[case[0].DESCRIPTOR.full_name for case in CASES]
)
def test_no_field_of_a_message_is_left_out_of_the_comparison(message: Any, fields: Fields) -> None:
    assert [one.number for one in message.DESCRIPTOR.fields] == [number for number, _ in fields]


def test_no_message_is_left_out_of_the_comparison() -> None:
    def names(descriptors: Any) -> set[str]:
        return {
            name
            for one in descriptors
            if not one.GetOptions().map_entry
            for name in {one.full_name, *names(one.nested_types)}
        }

    files = (pb.DESCRIPTOR, version_pb.DESCRIPTOR)
    declared = {one for file in files for one in names(file.message_types_by_name.values())}
    assert declared == {case[0].DESCRIPTOR.full_name for case in CASES}


def test_the_enums_have_the_published_numbers() -> None:
    assert {name: dict(enum.items()) for name, enum in _enums().items()} == {
        "IpuLinkRoutingType": {
            "IRT_UNDEFINED": 0,
            "IRT_DNC": 1,
            "IRT_SWNC": 2,
            "IRT_BTNC": 3,
            "IRT_RINGSWNC": 4,
        },
        "GatewayRoutingType": {"GRT_UNDEFINED": 0, "GRT_RING": 2, "GRT_SWRING": 3},
        "SyncType": {
            "ST_UNDEFINED": 0,
            "ST_GS2_DEFAULT": 1,
            "ST_GS2_INDEPENDENT_RAILS": 2,
            "ST_POD_NATIVE_DEFAULT": 3,
            "ST_POD_NATIVE_REPLICATED_PIPELINE": 4,
        },
        "PartitionReadyState": {
            "PS_UNDEFINED": 0,
            "PS_PENDING": 1,
            "PS_ACTIVE": 2,
            "PS_REMOVED": 3,
            "PS_ERROR": 4,
        },
        "PartitionOperationState": {
            "POS_UNDEFINED": 0,
            "POS_IDLE": 1,
            "POS_CREATING": 2,
            "POS_REMOVING": 3,
            "POS_RESETTING": 4,
            "POS_FAILED": 5,
        },
    }


def _enums() -> dict[str, Any]:
    return {name: getattr(pb, name) for name in pb.DESCRIPTOR.enum_types_by_name}


def test_the_services_have_the_published_names() -> None:
    user = pb.DESCRIPTOR.services_by_name["UserService"]
    assert user.full_name == "virmgrpc.UserService"
    assert {
        method.name: (method.input_type.name, method.output_type.name) for method in user.methods
    } == {
        name: (f"{name}Request", f"{name}Reply")
        for name in (
            "ListPartitions",
            "ListIPUAttributes",
            "CreatePartition",
            "RemovePartition",
            "ResetPartition",
            "GetPartitionIpuofConfig",
            "GetPartitionStatus",
        )
    }
    version = version_pb.DESCRIPTOR.services_by_name["VersionService"]
    assert version.full_name == "virmgrpc.VersionService"
    assert [method.name for method in version.methods] == ["GetVersion"]


def test_our_request_for_a_partition_is_these_bytes() -> None:
    message = wire.request_to_message(CreateRequest("p", 4))
    assert message.SerializeToString().hex() == "12050a01701004" + "1801"


def test_a_request_survives_the_wire() -> None:
    request = CreateRequest(
        "p",
        2,
        cluster_id="c",
        allocation_id="a",
        num_gcds=2,
        num_replicas=2,
        reconfigurable=True,
        ipus=(IpuId(1, 3, "c"), IpuId(1, 2, "c")),
        auto_reset=True,
        relocatable=True,
    )
    assert wire.request_from_message(wire.request_to_message(request)) == request


def test_a_request_without_a_size_has_as_many_ipus_as_it_names() -> None:
    message = wire.request_to_message(CreateRequest("p", 0, ipus=(IpuId(0, 0), IpuId(0, 1))))
    assert wire.request_from_message(message).size == 2


def test_ipus_without_routing_ids_stand_in_the_order_of_their_places() -> None:
    messages = [pb.PartitionIpu(topology_id=5), pb.PartitionIpu(topology_id=4)]
    assert wire.ipus_from_messages(messages) == (IpuId(0, 4), IpuId(0, 5))


def test_an_auto_reset_time_survives_the_wire() -> None:
    status = VipuStatus(
        "p",
        ReadyState.ACTIVE,
        OperationState.IDLE,
        auto_resets=1,
        last_auto_reset=datetime(2026, 3, 1, 1, 2, 3, 400, tzinfo=UTC),
    )
    assert wire.status_from_message(wire.status_to_message(status)) == status


@pytest.mark.parametrize(
    ("number", "want"),
    [
        (
            4,
            "ipulink_routing_type 99: use 1 (DNC), 2 (SWNC), 3 (BTNC), 4 (RINGSWNC), or leave",
        ),
        (6, "gw_routing_type 99: use 2 (RING), 3 (SWRING), or leave it out"),
        (7, "sync_type 99: use 1 (GS2_DEFAULT), 2 "),
    ],
)
def test_a_request_with_a_value_that_the_api_does_not_have_is_refused(
    number: int, want: str
) -> None:
    requirements: Fields = [(1, "p"), (2, 4), (number, 99)]
    message = pb.CreatePartitionRequest.FromString(encode([(2, requirements)]))
    with pytest.raises(InvalidRequest, match=re.escape(want)):
        wire.request_from_message(message)


def test_states_of_a_newer_controller_become_undefined() -> None:
    message = pb.PartitionStatus.FromString(encode([(1, "p"), (2, 77), (3, 78)]))
    status = wire.status_from_message(message)
    assert status.ready_state is ReadyState.UNDEFINED
    assert status.operation_state is OperationState.UNDEFINED


def test_of_a_new_list_only_what_has_changed_is_read() -> None:
    messages = [pb.Partition(id=name, ready_state=pb.PS_PENDING) for name in ("a", "b")]
    first = wire.partitions_from_messages(messages, {})
    messages[1].ready_state = pb.PS_ACTIVE
    again = list(wire.partitions_from_messages(messages, first).values())
    assert again == [wire.partition_from_message(message) for message in messages]
    assert again[0] is next(iter(first.values()))
    assert list(wire.partitions_from_messages(messages[1:], first).values()) == again[1:]
