"""io: clusters and allocations over the admin API."""

# gRPC calls the methods by the names of the interface.
# ruff: noqa: N802
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from partitions.vipu.errors import InvalidRequest
from partitions.vipu.protos import vipu_fleet_pb2 as pb
from partitions.vipu.protos.vipu_fleet_pb2_grpc import FleetServiceServicer
from partitions.vipu.server import layout
from partitions.vipu.server.service import answering

if TYPE_CHECKING:
    from partitions.vipu.server.controller import Controller
    from partitions.vipu.server.state import Draft

_LINKS: Final = {
    pb.LINK_TOPOLOGY_UNSPECIFIED: layout.LinkTopology.TORUS,
    pb.LINK_TOPOLOGY_TORUS: layout.LinkTopology.TORUS,
    pb.LINK_TOPOLOGY_MESH: layout.LinkTopology.MESH,
}


class FleetService(FleetServiceServicer):
    """How the machines are arranged; no change moves one that holds a partition."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    @answering
    def CreateCluster(self, request: pb.CreateClusterRequest) -> pb.CreateClusterReply:
        """Put agents that are in no cluster into a new one."""
        wanted = layout.WantedCluster(
            id=request.cluster_id,
            agents=tuple(request.agent_ids),
            links=_links(request.topology),
            looped=request.looped,
            domains=request.num_ipulink_domains,
        )

        def create(draft: Draft) -> layout.Layout:
            ipus = layout.ipus_of(draft.occupancy.topology)
            return layout.with_cluster(draft.layout, wanted, ipus)

        self._controller.arrange(create, "cluster created", cluster=wanted.id)
        return pb.CreateClusterReply()

    @answering
    def RemoveCluster(self, request: pb.RemoveClusterRequest) -> pb.RemoveClusterReply:
        """Let the agents of a cluster be in none."""
        name = request.cluster_id
        self._controller.arrange(
            lambda draft: layout.without_cluster(draft.layout, name),
            "cluster removed",
            cluster=name,
        )
        return pb.RemoveClusterReply()

    @answering
    def CreateAllocation(self, request: pb.CreateAllocationRequest) -> pb.CreateAllocationReply:
        """Let users have partitions of some agents of a cluster."""
        name, cluster = request.allocation_id, request.cluster_id
        wanted = layout.Allocation(name, cluster, tuple(request.agent_ids))
        self._controller.arrange(
            lambda draft: layout.with_allocation(draft.layout, wanted),
            "allocation created",
            allocation=name,
            cluster=cluster,
        )
        return pb.CreateAllocationReply()

    @answering
    def RemoveAllocation(self, request: pb.RemoveAllocationRequest) -> pb.RemoveAllocationReply:
        """Let the agents of an allocation be in none."""
        name = request.allocation_id

        def remove(draft: Draft) -> layout.Layout:
            its = [one.id for one in draft.partitions.values() if one.allocation == name]
            return layout.without_allocation(draft.layout, name, its)

        self._controller.arrange(remove, "allocation removed", allocation=name)
        return pb.RemoveAllocationReply()


def _links(value: pb.LinkTopology.ValueType) -> layout.LinkTopology:
    try:
        return _LINKS[value]
    except KeyError:
        raise InvalidRequest(f"topology {value}: use 1 (torus) or 2 (mesh)") from None
