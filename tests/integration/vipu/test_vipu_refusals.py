"""Every call names the invalid field and the remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc import StatusCode

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

    from partitions.vipu.server.main import VipuServer
    from tests.integration.vipu.agentmachines import Machine

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


Row = tuple[str, dict[str, Any], str, str]
# By code: service.method, request, and words of the answer: the field, what to do.
REFUSED: dict[StatusCode, list[Row]] = {
    StatusCode.INVALID_ARGUMENT: [
        ("UserService.CreatePartition", wanted(id="-"), "partition id", NAME),
        ("UserService.CreatePartition", wanted(size=3), "size", "2 or 4"),
        ("UserService.CreatePartition", wanted(size=0), "size", "at least 1"),
        ("UserService.CreatePartition", wanted(size=2**31), "size", "at most 64"),
        ("UserService.CreatePartition", wanted(cluster_id="x"), "cluster_id", "use default"),
        ("UserService.CreatePartition", wanted(allocation_id="x"), "allocation_id", "use default"),
        ("UserService.CreatePartition", wanted(num_gcds=3), "num_gcds 3", "use a power of two"),
        ("UserService.CreatePartition", wanted(num_replicas=9), "num_replicas 9", "use a multiple"),
        ("UserService.CreatePartition", wanted(num_ipulink_segments=2), "segments", "leave it out"),
        ("UserService.CreatePartition", wanted(sync_type=2), "sync_type", "use GS2_DEFAULT"),
        ("UserService.CreatePartition", wanted(sync_type=9), "sync_type 9", "use 1 (GS2_DEFAULT)"),
        ("UserService.CreatePartition", wanted(ipulink_routing_type=3), "routing_type", "use DNC"),
        ("UserService.CreatePartition", wanted(ipulink_routing_type=9), "type 9", "use 1 (DNC)"),
        (
            "UserService.CreatePartition",
            wanted(gw_routing_type=2),
            "gw_routing_type",
            "leave it out",
        ),
        ("UserService.CreatePartition", wanted(gw_routing_type=9), "gw_routing_type 9", "2 (RING)"),
        ("UserService.CreatePartition", wanted(ipus=[{}, PLACE]), "cluster_id", "name the cluster"),
        (
            "UserService.CreatePartition",
            wanted(cluster_id="default", ipus=[{}]),
            "size 2",
            "leave the",
        ),
        (
            "UserService.CreatePartition",
            wanted(cluster_id="default", ipus=[PLACE, {"topology_id": 1}]),
            "ipus: there is no IPU 99",
            "use the topology ids in vipu list ipu-attrs",
        ),
        (
            "UserService.ListPartitions",
            {"allocation_id": "x"},
            "allocation_id",
            "see vipu list allo",
        ),
        ("UserService.ListIPUAttributes", {"agents": ["x"]}, "agents", "see vipu list allocations"),
        (
            "UserService.GetPartitionIpuofConfig",
            {"partition_id": "held", "gcd_id": {"id": 7}},
            "gcd_id: partition held has the GCDs 0 to 0, not 7",
            "use one of them, or leave it out",
        ),
        (
            "AdminService.CordonAgent",
            {"agent_id": "ag0", "reason": "x" * 201},
            "reason",
            "at most 200",
        ),
        (
            "AdminService.DrainAgent",
            {"agent_id": "ag0", "reason": "x" * 201},
            "reason",
            "at most 200",
        ),
        (
            "AdminService.ProvokeFault",
            {"agent_id": "ag0", "ipuof_port": True},
            "ipu",
            "name the IPU",
        ),
        (
            "FleetService.CreateAgent",
            {"agent_id": "a", "port": 1},
            "host ''",
            "write the agent's name",
        ),
        ("FleetService.CreateAgent", {"host": "h"}, "port 0", "write 1 to 65535"),
        ("FleetService.CreateCluster", {"agent_ids": ["ag0"]}, "cluster_id ''", NAME),
        ("FleetService.CreateCluster", {"cluster_id": "c"}, "agent_ids", "name at least one"),
        (
            "FleetService.CreateCluster",
            {"cluster_id": "c", "agent_ids": ["x"]},
            "agent_ids",
            "use ag0",
        ),
        (
            "FleetService.CreateCluster",
            {"cluster_id": "c", "topology": 9},
            "topology 9",
            "use 1 (tor",
        ),
        ("UserAdminService.CreateUser", {"user_id": "a/b"}, "user_id 'a/b'", NAME),
        ("DiagnosticsService.StartDiagnostic", {}, "kind 0", "use 1 (connectivity)"),
        (
            "DiagnosticsService.StartDiagnostic",
            {"kind": 1, "agent_ids": ["x"]},
            "agent_ids",
            AGENTS,
        ),
    ],
    StatusCode.ALREADY_EXISTS: [
        ("UserService.CreatePartition", wanted(id="held"), "partition held", "use another id"),
        (
            "FleetService.CreateCluster",
            {"cluster_id": "default"},
            "cluster default",
            "remove it, or",
        ),
        (
            "FleetService.CreateAllocation",
            {"allocation_id": "default", "cluster_id": "default"},
            "allocation default",
            "remove it, or",
        ),
        (
            "UserAdminService.CreateUser",
            {"user_id": "alice"},
            "user alice",
            "vipu-admin rotate-key makes",
        ),
    ],
    StatusCode.RESOURCE_EXHAUSTED: [
        (
            "UserService.CreatePartition",
            wanted(size=64),
            "size: partition p needs 64",
            "use at most",
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
    ],
    StatusCode.NOT_FOUND: [
        ("UserService.GetPartitionStatus", NONE, "partition_id", PARTITIONS),
        ("UserService.ResetPartition", NONE, "partition_id", PARTITIONS),
        ("UserService.RemovePartition", NONE, "partition_id", PARTITIONS),
        ("UserService.GetPartitionIpuofConfig", NONE, "partition_id", PARTITIONS),
        ("AdminService.GetAgent", NO_AGENT, "agent_id", AGENTS),
        ("AdminService.CordonAgent", NO_AGENT, "agent_id", AGENTS),
        ("AdminService.UncordonAgent", NO_AGENT, "agent_id", AGENTS),
        ("AdminService.DrainAgent", NO_AGENT, "agent_id", AGENTS),
        ("AdminService.ListPartitions", NO_AGENT, "agent_id", AGENTS),
        ("AdminService.ResetPartition", NONE, "partition_id", PARTITIONS),
        ("AdminService.RemovePartition", NONE, "partition_id", PARTITIONS),
        ("AdminService.ProvokeFault", NO_AGENT, "agent_id", AGENTS),
        ("AdminService.ProvokeFault", {"agent_id": "ag0", "ipu": 9}, "ipu", "use one of them"),
        ("AdminService.ClearFault", NO_AGENT, "agent_id", AGENTS),
        ("FleetService.RemoveAgent", NO_AGENT, "agent_id", AGENTS),
        (
            "FleetService.RemoveCluster",
            {"cluster_id": "x"},
            "cluster_id",
            "see vipu-admin list clust",
        ),
        (
            "FleetService.CreateAllocation",
            {"allocation_id": "a", "cluster_id": "x"},
            "cluster_id",
            "see vipu-admin list clusters",
        ),
        (
            "FleetService.RemoveAllocation",
            {"allocation_id": "x"},
            "allocation_id",
            "list allocations",
        ),
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
        (
            "DiagnosticsService.GetDiagnostic",
            {"diagnostic_id": "x"},
            "diagnostic_id",
            "see vipu-adm",
        ),
        (
            "DiagnosticsService.CancelDiagnostic",
            {"diagnostic_id": "x"},
            "diagnostic_id",
            "see vipu-a",
        ),
    ],
    StatusCode.FAILED_PRECONDITION: [
        ("AdminService.DrainAgent", {"agent_id": "ag0", "resume": True}, "ag0", "Drain it again"),
        (
            "FleetService.RemoveCluster",
            {"cluster_id": "default"},
            "cluster default",
            "remove these",
        ),
        (
            "FleetService.RemoveAllocation",
            {"allocation_id": "default"},
            "allocation default",
            "remove",
        ),
        (
            "FleetService.CreateCluster",
            {"cluster_id": "c", "agent_ids": ["ag0"]},
            "agent_ids: ag0",
            "remove that cluster first",
        ),
        (
            "FleetService.CreateAllocation",
            {"allocation_id": "a", "cluster_id": "default", "agent_ids": ["ag0"]},
            "agent_ids: ag0",
            "remove that allocation first",
        ),
    ],
}
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
        answered(first, "UserAdminService.CreateUser", {"user_id": "alice"})
        yield lambda name: second if name.endswith((".CreateAgent", ".RemoveAgent")) else first


def answered(channel: grpc.Channel, name: str, given: dict[str, Any]) -> None:
    method = METHODS[name]
    request = GetMessageClass(method.input_type)(**given)
    call = channel.unary_unary(f"/{method.containing_service.full_name}/{method.name}")
    call(request.SerializeToString(), timeout=60)


def refusal(channel: grpc.Channel, name: str, given: dict[str, Any]) -> tuple[StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        answered(channel, name, given)
    return caught.value.code(), str(caught.value.details())


def test_every_refusal_names_the_field_and_what_to_do(
    channels: Callable[[str], grpc.Channel],
) -> None:
    refusals = [
        (code, field, remedy, name, given, *refusal(channels(name), name, given))
        for code, rows in REFUSED.items()
        for name, given, field, remedy in rows
    ]
    assert [
        row
        for code, field, remedy, *row in refusals
        if code is not row[2] or field not in row[3] or remedy not in row[3]
    ] == []


def test_an_agent_that_exists_or_is_in_use_is_refused(
    start_server: Callable[..., tuple[VipuServer, int]], machines: Callable[..., list[Machine]]
) -> None:
    (machine,) = machines(1)
    server, _ = start_server(admin_port=0, machines=0)
    agent = {"agent_id": "a", "host": "127.0.0.1", "port": machine.port}
    with grpc.insecure_channel(f"127.0.0.1:{server.admin_port}") as channel:
        answered(channel, "FleetService.CreateAgent", agent)
        code, details = refusal(channel, "FleetService.CreateAgent", agent)
        assert code is StatusCode.ALREADY_EXISTS
        assert f"the machine at {machine.address}" in details
        assert "give each its own" in details
        cluster = {"cluster_id": "c", "agent_ids": ["a"]}
        answered(channel, "FleetService.CreateCluster", cluster)
        code, details = refusal(channel, "FleetService.RemoveAgent", {"agent_id": "a"})
        assert code is StatusCode.FAILED_PRECONDITION
        assert details == "agent a is in cluster c: remove that cluster first"


def test_every_method_that_takes_a_field_is_among_them() -> None:
    takes = {name for name, method in METHODS.items() if method.input_type.fields}
    assert takes == {name for rows in REFUSED.values() for name, *_ in rows}
