"""io: clusters and allocations of a controller, for the commands of `vipu-admin`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partitions.vipu.cli.output import Table, as_data
from partitions.vipu.errors import NotFound
from partitions.vipu.protos import vipu_admin_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from partitions.vipu.client import VipuClient


async def clusters(client: VipuClient) -> Sequence[pb.Group]:
    """All clusters. Raise VipuError."""
    found: Sequence[pb.Group] = (
        await client.ask("ListClusters", pb.ListClustersRequest())
    ).clusters
    return found


async def allocations(client: VipuClient) -> Sequence[pb.Group]:
    """All allocations. Raise VipuError."""
    answer = await client.ask("ListAllocations", pb.ListAllocationsRequest())
    found: Sequence[pb.Group] = answer.allocations
    return found


def named(groups: Sequence[pb.Group], kind: str, name: str) -> pb.Group:
    """The group of that id. Raise NotFound."""
    for group in groups:
        if group.id == name:
            return group
    raise NotFound(f"there is no {kind} {name!r}; see vipu-admin list {kind}s")


def table(head: str, others: str, found: Sequence[tuple[pb.Group, Sequence[str]]]) -> Table:
    """Clusters or allocations under a head of their own, with what belongs to each."""
    rows = [
        (
            group.id,
            " ".join(group.agent_ids),
            str(group.ipus),
            str(group.free_ipus),
            str(group.ipulink_domains),
            " ".join(names) or "-",
        )
        for group, names in found
    ]
    heads = (head, "Agents", "IPUs", "Free", "ILDs", others)
    data = [as_data(group) for group, _ in found]
    return Table(heads, rows, data, frozenset({"ILDs", others}))
