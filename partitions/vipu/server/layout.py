"""domain: clusters and allocations of a controller: their agents, and how they change.

An agent is in at most one cluster, and in at most one allocation of it. No operation moves a
machine with a partition: a cluster accepts only agents without a cluster, and can be removed only
once it has no allocations.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Any

from partitions.vipu.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    NotReady,
    missing,
    quoted,
)
from partitions.vipu.server.requirements import NAME
from partitions.vipu.topology import DOMAIN_IPUS, PARTITION_SIZES, Ipu, IpuId, Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from partitions.vipu.server.records import AgentRecord


class LinkTopology(StrEnum):
    """The cabling of a domain's IPU-Links: a torus has loop links, a mesh has none."""

    TORUS = "torus"
    MESH = "mesh"


@dataclass(frozen=True, slots=True)
class Cluster:
    """IPU-Link domains, each with its agents in the order of their cabling.

    `looped`: the links between the domains form a ring.
    """

    id: str
    domains: tuple[tuple[str, ...], ...]
    links: LinkTopology = LinkTopology.TORUS
    looped: bool = False

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents, in IPU-Link order."""
        return tuple(chain.from_iterable(self.domains))


@dataclass(frozen=True, slots=True)
class Allocation:
    """Agents of a cluster whose IPUs users may have partitions of."""

    id: str
    cluster: str
    agents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """All clusters and allocations by id; `is_edited`: an administrator changed the layout of the
    options."""

    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    allocations: Mapping[str, Allocation] = field(default_factory=dict)
    is_edited: bool = False

    @property
    def meshes(self) -> frozenset[str]:
        """The clusters without loop links."""
        return frozenset(
            cluster.id for cluster in self.clusters.values() if cluster.links is LinkTopology.MESH
        )

    def why_closed(self, agent: str) -> str:
        """Return why this keeps partitions off the machine; empty when it does not."""
        if not self.is_edited or any(
            agent in allocation.agents for allocation in self.allocations.values()
        ):
            return ""
        return f"{agent} is in no allocation"

    def cluster(self, cluster_id: str) -> Cluster:
        """The cluster of that id; raises NotFound."""
        try:
            return self.clusters[cluster_id]
        except KeyError:
            raise NotFound(missing("cluster", cluster_id, "vipu-admin list clusters")) from None

    def allocation(self, allocation_id: str) -> Allocation:
        """The allocation of that id; raises NotFound."""
        try:
            return self.allocations[allocation_id]
        except KeyError:
            raise NotFound(
                missing("allocation", allocation_id, "vipu-admin list allocations")
            ) from None


def layout_of(topology: Topology) -> Layout:
    """Return the layout that the server's options describe."""
    domains: dict[str, dict[int, dict[str, None]]] = {}
    allocations: dict[str, dict[str, None]] = {}
    for ipu in topology.ipus:
        its = domains.setdefault(ipu.cluster, {})
        its.setdefault(ipu.id.domain, {})[ipu.agent] = None
        allocations.setdefault(ipu.allocation, {})[ipu.agent] = None
    return Layout(
        {name: Cluster(name, tuple(map(tuple, its.values()))) for name, its in domains.items()},
        {
            name: Allocation(name, topology.allocations[name], tuple(agents))
            for name, agents in allocations.items()
        },
    )


def ipus_of(topology: Topology) -> dict[str, int]:
    """Return the number of IPUs of each agent of a fleet."""
    found: dict[str, int] = {}
    for ipu in topology.ipus:
        found[ipu.agent] = found.get(ipu.agent, 0) + 1
    return found


def topology_of(layout: Layout, ipus: Mapping[str, int]) -> Topology:
    """The fleet of these agents, each with a number of IPUs, as the layout arranges it.

    Agents of no cluster stand in a cluster without a name. Raises KeyError for an agent that the
    fleet does not have.
    """
    allocation_of = {
        agent: allocation.id
        for allocation in layout.allocations.values()
        for agent in allocation.agents
    }
    found: list[Ipu] = []
    placed: set[str] = set()
    for cluster in layout.clusters.values():
        for number, agents in enumerate(cluster.domains):
            for agent, first in _starts(agents, ipus):
                placed.add(agent)
                found += (
                    Ipu(
                        IpuId(number, first + index, cluster.id),
                        agent,
                        index,
                        cluster.id,
                        allocation_of.get(agent, ""),
                    )
                    for index in range(ipus[agent])
                )
    rest = [agent for agent in ipus if agent not in placed]
    for agent, first in _starts(rest, ipus):
        places = (divmod(first + index, DOMAIN_IPUS) for index in range(ipus[agent]))
        found += (Ipu(IpuId(*place), agent, index) for index, place in enumerate(places))
    return Topology(tuple(found))


def _starts(agents: Iterable[str], ipus: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    """Return where each machine begins: at a multiple of its size, so that it can be a
    partition."""
    end = 0
    for agent in agents:
        first = -(-end // ipus[agent]) * ipus[agent]
        end = first + ipus[agent]
        yield agent, first


@dataclass(frozen=True, slots=True)
class WantedCluster:
    """The cluster that an administrator asks for; `domains` 0: as few as hold the agents."""

    id: str
    agents: tuple[str, ...]
    links: LinkTopology = LinkTopology.TORUS
    looped: bool = False
    domains: int = 0


def with_cluster(layout: Layout, wanted: WantedCluster, ipus: Mapping[str, int]) -> Layout:
    """The layout with one cluster more; raises InvalidRequest, NotFound, AlreadyExists, NotReady.

    `ipus`: the IPUs of each agent of the fleet.
    """
    _check_id("cluster_id", wanted.id)
    if wanted.id in layout.clusters:
        raise AlreadyExists(f"cluster {wanted.id} exists already; remove it, or take another id")
    _check_agents(wanted.agents, ipus)
    for cluster in layout.clusters.values():
        if taken := set(cluster.agents) & set(wanted.agents):
            raise NotReady(
                f"agent_ids: {min(taken)} is in cluster {cluster.id}; an agent is in one cluster: "
                "remove that cluster first"
            )
    domains = _domains(wanted, ipus)
    cluster = Cluster(wanted.id, domains, wanted.links, wanted.looped)
    return replace(layout, clusters={**layout.clusters, wanted.id: cluster}, is_edited=True)


def new_agent(agent: AgentRecord, known: Mapping[str, AgentRecord], fleet: Iterable[str]) -> None:
    """Raise InvalidRequest or AlreadyExists unless the agent can be created.

    `known`: the agents created before; `fleet`: the ids of all.
    """
    _check_id("agent_id", agent.id)
    if agent.ipus not in PARTITION_SIZES:
        raise InvalidRequest(
            f"host: the machine at {agent.address} has {agent.ipus} IPUs; use a machine with 1, 2, "
            "4, 8, ... or 64"
        )
    if agent.id in set(fleet):
        where = f" at {known[agent.id].address}" if agent.id in known else ""
        raise AlreadyExists(
            f"agent {agent.id} exists already{where}; remove it, or take another id"
        )


def removable_agent(layout: Layout, agent_id: str, known: Mapping[str, AgentRecord]) -> None:
    """Raise NotReady unless the agent, which is in the fleet, may be removed."""
    if agent_id not in known:
        raise NotReady(
            f"agent {agent_id} was not created by vipu-admin: the options of vipu-server name it"
        )
    for cluster in layout.clusters.values():
        if agent_id in cluster.agents:
            raise NotReady(
                f"agent {agent_id} is in cluster {cluster.id}: remove that cluster first"
            )


def without_cluster(layout: Layout, cluster_id: str) -> Layout:
    """The layout without a cluster; raises NotFound, or NotReady while it has allocations."""
    cluster = layout.cluster(cluster_id)
    its = sorted(
        allocation.id
        for allocation in layout.allocations.values()
        if allocation.cluster == cluster.id
    )
    if its:
        raise NotReady(f"cluster {cluster.id} has the allocations {', '.join(its)}: remove these")
    others = {name: found for name, found in layout.clusters.items() if name != cluster.id}
    return replace(layout, clusters=others, is_edited=True)


def with_allocation(layout: Layout, wanted: Allocation) -> Layout:
    """The layout with one allocation more, of all unallocated agents of the cluster if none is
    named; raises InvalidRequest, NotFound, AlreadyExists, NotReady."""
    _check_id("allocation_id", wanted.id)
    if wanted.id in layout.allocations:
        raise AlreadyExists(f"allocation {wanted.id} exists already; remove it, or take another id")
    cluster = layout.cluster(wanted.cluster)
    holders = {
        agent: allocated.id
        for allocated in layout.allocations.values()
        if allocated.cluster == cluster.id
        for agent in allocated.agents
    }
    agents = wanted.agents or tuple(agent for agent in cluster.agents if agent not in holders)
    if not agents:
        raise NotReady(f"all agents of cluster {cluster.id} are in an allocation: remove one first")
    _check_agents(agents, cluster.agents)
    if taken := sorted(set(agents) & holders.keys()):
        raise NotReady(
            f"agent_ids: {taken[0]} is in allocation {holders[taken[0]]}; an agent is in one "
            "allocation: remove that allocation first"
        )
    ordered = tuple(agent for agent in cluster.agents if agent in set(agents))
    made = replace(wanted, agents=ordered)
    return replace(layout, allocations={**layout.allocations, made.id: made}, is_edited=True)


def without_allocation(layout: Layout, allocation_id: str, partitions: Sequence[str]) -> Layout:
    """The layout without an allocation; raises NotFound, or NotReady while it has `partitions`."""
    allocation = layout.allocation(allocation_id)
    if partitions:
        few = ", ".join(partitions[:5]) + (", ..." if len(partitions) > 5 else "")
        raise NotReady(
            f"allocation {allocation.id} has {len(partitions)} partitions ({few}): remove these"
        )
    others = {name: found for name, found in layout.allocations.items() if name != allocation.id}
    return replace(layout, allocations=others, is_edited=True)


def _check_id(field_name: str, text: str) -> None:
    if not NAME.fullmatch(text):
        raise InvalidRequest(
            f"{field_name} {quoted(text)}: write 1 to 63 letters, digits, '.', '_' and '-', "
            "with a letter or digit first and last"
        )


def _check_agents(agents: Sequence[str], known: Iterable[str]) -> None:
    if not agents:
        raise InvalidRequest("agent_ids: name at least one agent")
    if len(set(agents)) != len(agents):
        raise InvalidRequest("agent_ids: name each agent once")
    names = list(known)
    if unknown := [agent for agent in agents if agent not in set(names)]:
        which = f"use {names[0]} to {names[-1]}" if names else "there is none yet: create it first"
        raise InvalidRequest(f"agent_ids: there is no agent {quoted(unknown[0])} here; {which}")


def _domains(wanted: WantedCluster, ipus: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    """The agents of each IPU-Link domain; raises InvalidRequest."""
    if not wanted.domains:
        return _fewest(wanted.agents, ipus)
    share, rest = divmod(len(wanted.agents), wanted.domains)
    if rest or not share:
        raise InvalidRequest(
            f"num_ipulink_domains {wanted.domains} does not divide the {len(wanted.agents)} agents"
            "; leave it out for as few as hold them"
        )
    parts = tuple(
        wanted.agents[first : first + share] for first in range(0, len(wanted.agents), share)
    )
    for part in parts:
        if len(_fewest(part, ipus)) > 1:
            raise InvalidRequest(
                f"num_ipulink_domains {wanted.domains}: a domain has at most {DOMAIN_IPUS} IPUs, "
                f"not the {sum(ipus[agent] for agent in part)} of {len(part)} agents; write more"
            )
    return parts


def _fewest(agents: Sequence[str], ipus: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    domains: dict[int, list[str]] = {}
    for agent, first in _starts(agents, ipus):
        domains.setdefault(first // DOMAIN_IPUS, []).append(agent)
    return tuple(map(tuple, domains.values()))


def layout_to_json(layout: Layout) -> dict[str, Any]:
    """The layout as the state file holds it."""
    return {
        "clusters": [
            {
                "id": cluster.id,
                "domains": [list(agents) for agents in cluster.domains],
                "links": cluster.links,
                "looped": cluster.looped,
            }
            for cluster in layout.clusters.values()
        ],
        "allocations": [
            {"id": allocation.id, "cluster": allocation.cluster, "agents": list(allocation.agents)}
            for allocation in layout.allocations.values()
        ],
    }


def layout_from_json(data: Mapping[str, Any]) -> Layout:
    """The inverse of `layout_to_json`; KeyError, TypeError or ValueError on anything else."""
    clusters = [
        Cluster(
            str(found["id"]),
            tuple(tuple(map(str, agents)) for agents in found["domains"]),
            LinkTopology(found["links"]),
            bool(found["looped"]),
        )
        for found in data["clusters"]
    ]
    allocations = [
        Allocation(str(found["id"]), str(found["cluster"]), tuple(map(str, found["agents"])))
        for found in data["allocations"]
    ]
    return Layout(
        {each.id: each for each in clusters},
        {each.id: each for each in allocations},
        is_edited=True,
    )
