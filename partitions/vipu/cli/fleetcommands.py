"""io: `vipu-admin` commands that create and remove agents, clusters and allocations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from google.protobuf.json_format import MessageToDict

from partitions.vipu.cli import groups
from partitions.vipu.cli.output import Table
from partitions.vipu.protos import vipu_fleet_pb2 as pb

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from partitions.vipu.client import VipuClient
    from partitions.vipu.protos import vipu_admin_pb2 as admin_pb

_DISCOVERED: Final = (
    "Host",
    "Port",
    "Network Interface",
    "Time Since Last Seen",
    "Agent Auto-Add ID",
    "Agent ID",
)
TOPOLOGIES: Final = {"torus": pb.LINK_TOPOLOGY_TORUS, "mesh": pb.LINK_TOPOLOGY_MESH}


async def create_agent(client: VipuClient, options: argparse.Namespace) -> None:
    """Connect a running agent. Raise VipuError."""
    question = pb.CreateAgentRequest(agent_id=options.name, host=options.host, port=options.port)
    await client.ask("CreateAgent", question)


async def remove_agent(client: VipuClient, options: argparse.Namespace) -> None:
    """Forget an agent that is in no cluster. Raise VipuError."""
    await client.ask("RemoveAgent", pb.RemoveAgentRequest(agent_id=options.name))


async def discover_agents(client: VipuClient, options: argparse.Namespace) -> Table:
    """The agents that have announced themselves."""
    del options
    found = (await client.ask("DiscoverAgents", pb.DiscoverAgentsRequest())).agents
    rows = [
        (
            agent.host,
            str(agent.port),
            agent.network_interface,
            f"{agent.since_last_seen.seconds}s",
            agent.auto_add_id,
            agent.agent_id or "-",
        )
        for agent in found
    ]
    data = [
        MessageToDict(
            agent, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        for agent in found
    ]
    return Table(_DISCOVERED, rows, data)


async def create_cluster(client: VipuClient, options: argparse.Namespace) -> None:
    """Put agents that are in no cluster into a new cluster. Raise VipuError."""
    question = pb.CreateClusterRequest(
        cluster_id=options.name,
        agent_ids=options.agents,
        topology=TOPOLOGIES[options.topology],
        num_ipulink_domains=options.num_ipulinkdomains,
        looped=options.cluster_topology == "looped",
    )
    await client.ask("CreateCluster", question)


async def remove_cluster(client: VipuClient, options: argparse.Namespace) -> None:
    """Let the agents of a cluster be in none. Raise VipuError."""
    await client.ask("RemoveCluster", pb.RemoveClusterRequest(cluster_id=options.name))


async def create_allocation(client: VipuClient, options: argparse.Namespace) -> None:
    """Let users have partitions of some agents of a cluster. Raise VipuError."""
    question = pb.CreateAllocationRequest(
        allocation_id=options.name, cluster_id=options.cluster, agent_ids=options.agents
    )
    await client.ask("CreateAllocation", question)


async def remove_allocation(client: VipuClient, options: argparse.Namespace) -> None:
    """Let the agents of an allocation be in none. Raise VipuError."""
    await client.ask("RemoveAllocation", pb.RemoveAllocationRequest(allocation_id=options.name))


async def list_clusters(client: VipuClient, options: argparse.Namespace) -> Table:
    """The clusters with their agents."""
    del options
    return _clusters_table(await groups.clusters(client))


async def list_allocations(client: VipuClient, options: argparse.Namespace) -> Table:
    """The allocations with their agents."""
    del options
    found = await groups.allocations(client)
    return groups.table("Allocation ID", "Clusters", [(each, each.cluster_ids) for each in found])


async def get_cluster(client: VipuClient, options: argparse.Namespace) -> Table:
    """One cluster. Raise NotFound."""
    group = groups.named(await groups.clusters(client), "cluster", options.name)
    return _as_facts(_clusters_table([group]))


async def get_allocation(client: VipuClient, options: argparse.Namespace) -> Table:
    """One allocation. Raise NotFound."""
    group = groups.named(await groups.allocations(client), "allocation", options.name)
    return _as_facts(groups.table("Allocation ID", "Clusters", [(group, group.cluster_ids)]))


def _clusters_table(found: Sequence[admin_pb.Group]) -> Table:
    table = groups.table(
        "Cluster ID", "Allocations", [(each, each.allocation_ids) for each in found]
    )
    links = [each.topology + (", looped" if each.looped else "") or "-" for each in found]
    return replace(
        table,
        heads=(*table.heads, "Topology"),
        rows=[(*row, how) for row, how in zip(table.rows, links, strict=True)],
        wide=table.wide | {"Topology"},
    )


def _as_facts(table: Table) -> Table:
    """A table of one row, a line for each column."""
    (row,) = table.rows
    return Table(("Attribute", "Value"), list(zip(table.heads, row, strict=True)), table.data[0])
