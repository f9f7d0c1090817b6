"""Every call names the invalid field and the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from partitions.vipu.protos import (
    vipu_admin_pb2,
    vipu_diagnostics_pb2,
    vipu_fleet_pb2,
    vipu_user_pb2,
    vipu_users_pb2,
)
from partitions.vipu.types import CreateRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.descriptor import MethodDescriptor

    from partitions.vipu.server.main import VipuServer

SERVICES = (
    vipu_user_pb2.DESCRIPTOR.services_by_name["UserService"],
    vipu_admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
    vipu_fleet_pb2.DESCRIPTOR.services_by_name["FleetService"],
    vipu_users_pb2.DESCRIPTOR.services_by_name["UserAdminService"],
    vipu_diagnostics_pb2.DESCRIPTOR.services_by_name["DiagnosticsService"],
)
PARTITIONS, AGENTS, USERS = "see vipu list partitions", "see vipu-admin list agents", "list users"
NAME = "write 1 to 63 letters, digits"
NONE = {"partition_id": "x"}
NO_AGENT, NO_USER = {"agent_id": "x"}, {"user_id": "x"}
NOT_GRANTED = {**NO_USER, "allocation_ids": ["default"]}
PLACE = {"ipulink_domain_topology_id": 0, "topology_id": 99}


def wanted(**given: Any) -> dict[str, Any]:
    return {"requirements": {"id": "p", "size": 2, **given}}


# service.method, request, and words of the answer: the field, what to do.
ROWS: list[tuple[str, dict[str, Any], str, str]] = [
    ("UserService.CreatePartition", wanted(id="-"), "partition id", NAME),
    ("UserService.CreatePartition", wanted(id="held"), "partition held", "use another id"),
    ("UserService.CreatePartition", wanted(size=3), "size", "2 or 4"),
    ("UserService.CreatePartition", wanted(size=0), "size", "at least 1"),
    ("UserService.CreatePartition", wanted(size=2**31), "size", "at most 64"),
    ("UserService.CreatePartition", wanted(size=64), "size: partition p needs 64", "use at most"),
    ("UserService.CreatePartition", wanted(cluster_id="x"), "cluster_id", "use default"),
    ("UserService.CreatePartition", wanted(allocation_id="x"), "allocation_id", "use default"),
    ("UserService.CreatePartition", wanted(num_gcds=3), "num_gcds 3", "use a power of two"),
    ("UserService.CreatePartition", wanted(num_replicas=9), "num_replicas 9", "use a multiple"),
    ("UserService.CreatePartition", wanted(num_ipulink_segments=2), "segments", "leave it out"),
    ("UserService.CreatePartition", wanted(sync_type=2), "sync_type", "use GS2_DEFAULT"),
    ("UserService.CreatePartition", wanted(sync_type=9), "sync_type 9", "use 1 (GS2_DEFAULT)"),
    ("UserService.CreatePartition", wanted(ipulink_routing_type=3), "routing_type", "use DNC"),
    ("UserService.CreatePartition", wanted(ipulink_routing_type=9), "type 9", "use 1 (DNC)"),
    ("UserService.CreatePartition", wanted(gw_routing_type=2), "gw_routing_type", "leave it out"),
    ("UserService.CreatePartition", wanted(gw_routing_type=9), "gw_routing_type 9", "2 (RING)"),
    ("UserService.CreatePartition", wanted(ipus=[{}, PLACE]), "cluster_id", "name the cluster"),
    ("UserService.CreatePartition", wanted(cluster_id="default", ipus=[{}]), "size 2", "leave the"),
    (
        "UserService.CreatePartition",
        wanted(cluster_id="default", ipus=[PLACE, {"topology_id": 1}]),
        "ipus: there is no IPU 99",
        "use the topology ids in vipu list ipu-attrs",
    ),
    (
        "UserService.CreatePartition",
        wanted(cluster_id="default", ipus=[{"topology_id": 0}, {"topology_id": 1}]),
        "ipus: they are held by held",
        "name others, or leave ipus out",
    ),
    (
        "UserService.CreatePartition",
        wanted(cluster_id="default", ipus=[{"topology_id": 4}, {"topology_id": 5}]),
        "ipus: ag1 is cordoned",
        "name others, or leave ipus out",
    ),
    ("UserService.ListPartitions", {"allocation_id": "x"}, "allocation_id", "see vipu list allo"),
    ("UserService.ListIPUAttributes", {"agents": ["x"]}, "agents", "see vipu list allocations"),
    ("UserService.GetPartitionStatus", NONE, "partition_id", PARTITIONS),
    ("UserService.ResetPartition", NONE, "partition_id", PARTITIONS),
    ("UserService.RemovePartition", NONE, "partition_id", PARTITIONS),
    ("UserService.GetPartitionIpuofConfig", NONE, "partition_id", PARTITIONS),
    (
        "UserService.GetPartitionIpuofConfig",
        {"partition_id": "held", "gcd_id": {"id": 7}},
        "gcd_id: partition held has the GCDs 0 to 0, not 7",
        "use one of them, or leave it out",
    ),
    ("AdminService.GetAgent", NO_AGENT, "agent_id", AGENTS),
    ("AdminService.CordonAgent", NO_AGENT, "agent_id", AGENTS),
    ("AdminService.CordonAgent", {"agent_id": "ag0", "reason": "x" * 201}, "reason", "at most 200"),
    ("AdminService.UncordonAgent", NO_AGENT, "agent_id", AGENTS),
    ("AdminService.DrainAgent", NO_AGENT, "agent_id", AGENTS),
    ("AdminService.DrainAgent", {"agent_id": "ag0", "reason": "x" * 201}, "reason", "at most 200"),
    ("AdminService.DrainAgent", {"agent_id": "ag0", "resume": True}, "ag0", "Drain it again"),
    ("AdminService.ListPartitions", NO_AGENT, "agent_id", AGENTS),
    ("AdminService.ResetPartition", NONE, "partition_id", PARTITIONS),
    ("AdminService.RemovePartition", NONE, "partition_id", PARTITIONS),
    ("AdminService.ProvokeFault", NO_AGENT, "agent_id", AGENTS),
    ("AdminService.ProvokeFault", {"agent_id": "ag0", "ipu": 9}, "ipu", "use one of them"),
    ("AdminService.ProvokeFault", {"agent_id": "ag0", "ipuof_port": True}, "ipu", "name the IPU"),
    ("AdminService.ClearFault", NO_AGENT, "agent_id", AGENTS),
    ("FleetService.CreateAgent", {"agent_id": "a", "port": 1}, "host ''", "write the agent's name"),
    ("FleetService.CreateAgent", {"host": "h"}, "port 0", "write 1 to 65535"),
    ("FleetService.RemoveAgent", NO_AGENT, "agent_id", AGENTS),
    ("FleetService.CreateCluster", {"agent_ids": ["ag0"]}, "cluster_id ''", NAME),
    ("FleetService.CreateCluster", {"cluster_id": "c"}, "agent_ids", "name at least one"),
    ("FleetService.CreateCluster", {"cluster_id": "c", "agent_ids": ["x"]}, "agent_ids", "use ag0"),
    ("FleetService.CreateCluster", {"cluster_id": "c", "topology": 9}, "topology 9", "use 1 (tor"),
    ("FleetService.RemoveCluster", {"cluster_id": "x"}, "cluster_id", "see vipu-admin list clust"),
    (
        "FleetService.CreateAllocation",
        {"allocation_id": "a", "cluster_id": "x"},
        "cluster_id",
        "see vipu-admin list clusters",
    ),
    ("FleetService.RemoveAllocation", {"allocation_id": "x"}, "allocation_id", "list allocations"),
    ("UserAdminService.CreateUser", {"user_id": "a/b"}, "user_id 'a/b'", NAME),
    (
        "UserAdminService.CreateUser",
        {"user_id": "u", "allocation_ids": ["x"]},
        "allocation_ids",
        "see vipu-admin list allocations",
    ),
    ("UserAdminService.RemoveUser", NO_USER, "user_id", USERS),
    ("UserAdminService.RotateKey", NO_USER, "user_id", USERS),
    ("UserAdminService.GrantAllocations", NOT_GRANTED, "user_id", USERS),
    ("UserAdminService.RevokeAllocations", NOT_GRANTED, "user_id", USERS),
    ("DiagnosticsService.StartDiagnostic", {}, "kind 0", "use 1 (connectivity)"),
    ("DiagnosticsService.StartDiagnostic", {"kind": 1, "agent_ids": ["x"]}, "agent_ids", AGENTS),
    ("DiagnosticsService.GetDiagnostic", {"diagnostic_id": "x"}, "diagnostic_id", "see vipu-adm"),
    ("DiagnosticsService.CancelDiagnostic", {"diagnostic_id": "x"}, "diagnostic_id", "see vipu-a"),
]
METHODS = {
    f"{service.name}.{method.name}": method for service in SERVICES for method in service.methods
}


@pytest.fixture
def published_only() -> bool:
    return False


@pytest.fixture
def channels(
    start_server: Callable[..., tuple[VipuServer, int]],
) -> Iterator[Callable[[str], grpc.Channel]]:
    """Of a server that simulates four machines; for calls about agents, of a server with agents."""
    four, _ = start_server(admin_port=0, machines=4, create_latency_seconds=0)
    four.controller.create(CreateRequest("held", 2))
    four.controller.cordon("ag1", "")
    empty, _ = start_server(admin_port=0, machines=0, storage=four._options.storage.parent / "e")
    with (
        grpc.insecure_channel(f"127.0.0.1:{four.admin_port}") as first,
        grpc.insecure_channel(f"127.0.0.1:{empty.admin_port}") as second,
    ):
        yield lambda name: second if name.endswith((".CreateAgent", ".RemoveAgent")) else first


def refusal(channel: grpc.Channel, method: MethodDescriptor, given: dict[str, Any]) -> str:
    request = GetMessageClass(method.input_type)(**given)
    call = channel.unary_unary(f"/{method.containing_service.full_name}/{method.name}")
    with pytest.raises(grpc.RpcError) as caught:
        call(request.SerializeToString(), timeout=60)
    return str(caught.value.details())


def test_every_refusal_names_the_field_and_what_to_do(
    channels: Callable[[str], grpc.Channel],
) -> None:
    said = [
        (name, given, refusal(channels(name), METHODS[name], given), field, remedy)
        for name, given, field, remedy in ROWS
    ]
    assert [row for row in said if row[3] not in row[2] or row[4] not in row[2]] == []


def test_every_method_that_takes_a_field_is_among_them() -> None:
    takes = {name for name, method in METHODS.items() if method.input_type.fields}
    assert takes == {name for name, *_ in ROWS}
