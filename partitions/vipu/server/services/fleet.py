"""io: agents, clusters and allocations over the admin API."""

# gRPC calls the methods by the names of the interface.
# ruff: noqa: N802
from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from ipuhub.addresses import address_of
from partitions.vipu.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    NotReady,
    VipuError,
    missing,
    quoted,
)
from partitions.vipu.protos import vipu_fleet_pb2 as pb
from partitions.vipu.protos.vipu_fleet_pb2_grpc import FleetServiceServicer
from partitions.vipu.server import layout
from partitions.vipu.server.records import AgentRecord
from partitions.vipu.server.services.partitions import answering

if TYPE_CHECKING:
    from partitions.vipu.agent.machine import Inventory
    from partitions.vipu.server.agents.links import AgentLinks
    from partitions.vipu.server.controller import Controller
    from partitions.vipu.server.services.admin import ServerFacts
    from partitions.vipu.server.state import Draft

_LINKS: Final = {
    pb.LINK_TOPOLOGY_UNSPECIFIED: layout.LinkTopology.TORUS,
    pb.LINK_TOPOLOGY_TORUS: layout.LinkTopology.TORUS,
    pb.LINK_TOPOLOGY_MESH: layout.LinkTopology.MESH,
}
_LARGEST_PORT: Final = 65535
_LONGEST_HOST: Final = 253


class FleetService(FleetServiceServicer):
    """The arrangement of machines; no change moves a machine that holds a partition.

    `facts`: the connections to the agents, none where this server simulates its machines, and what
    listens for new agents.
    """

    def __init__(self, controller: Controller, facts: ServerFacts) -> None:
        self._controller = controller
        self._links = facts.links
        self._discovery = facts.discovery
        # Nobody puts an agent into a cluster before it is followed, or while it is being removed.
        self._arranging = threading.Lock()

    @answering
    def CreateAgent(self, request: pb.CreateAgentRequest) -> pb.CreateAgentReply:
        """Connect a running agent; its machine is in no cluster yet."""
        links, address = self._connected(), _address(request)
        inventory = _inventory_at(links, address)  # may take seconds, which nobody else waits for
        with self._arranging:
            _check_new(inventory, links, address)
            agent = AgentRecord(request.agent_id, address, len(inventory.ipus))

            def create(draft: Draft) -> None:
                fleet = layout.ipus_of(draft.occupancy.topology)
                layout.new_agent(agent, draft.agents, fleet)
                draft.put_agent(agent)

            self._controller.change(create, "agent created", agent=agent.id, address=address)
            links.add(agent, inventory)
        return pb.CreateAgentReply()

    @answering
    def RemoveAgent(self, request: pb.RemoveAgentRequest) -> pb.RemoveAgentReply:
        """Forget an agent that is in no cluster."""
        links, name = self._connected(), request.agent_id

        def remove(draft: Draft) -> None:
            if name not in layout.ipus_of(draft.occupancy.topology):
                raise NotFound(missing("agent", name, "vipu-admin list agents"))
            layout.removable_agent(draft.layout, name, draft.agents)
            draft.remove_agent(name)

        with self._arranging:
            self._controller.change(remove, "agent removed", agent=name)
            links.remove(name)
        return pb.RemoveAgentReply()

    @answering
    def DiscoverAgents(self, request: pb.DiscoverAgentsRequest) -> pb.DiscoverAgentsReply:
        """Answer with the agents that have announced themselves."""
        del request
        if self._discovery is None:
            raise NotReady(
                "this vipu-server does not listen for agents: start it with "
                "--autodiscovery-listen-interfaces eth0"
            )
        known = {where: name for name, where in self._addresses.items()}
        reply = pb.DiscoverAgentsReply()
        for announced, seconds in self._discovery.agents():
            found = reply.agents.add(
                host=announced.host,
                port=announced.port,
                network_interface=announced.interface,
                auto_add_id=announced.agent,
                agent_id=known.get(address_of(announced.host, announced.port), ""),
            )
            found.since_last_seen.FromMilliseconds(int(seconds * 1000))
        return reply

    @answering
    def CreateCluster(self, request: pb.CreateClusterRequest) -> pb.CreateClusterReply:
        """Put agents that are in no cluster into a new cluster."""
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

        with self._arranging:
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
            its = [
                partition.id
                for partition in draft.partitions.values()
                if partition.allocation == name
            ]
            return layout.without_allocation(draft.layout, name, its)

        self._controller.arrange(remove, "allocation removed", allocation=name)
        return pb.RemoveAllocationReply()

    @property
    def _addresses(self) -> dict[str, str]:
        return dict(self._links.addresses) if self._links else {}

    def _connected(self) -> AgentLinks:
        if self._links is None:
            raise NotReady(
                "this vipu-server simulates its machines and has no agents: start it with "
                "--machines 0, or with --agents"
            )
        return self._links


def _address(request: pb.CreateAgentRequest) -> str:
    """The agent's host:port; raises InvalidRequest."""
    host, port = request.host.strip("[]"), request.port
    is_name = 0 < len(host) <= _LONGEST_HOST and all(c.isalnum() or c in ".-:_%" for c in host)
    if not is_name or not host.isascii():
        raise InvalidRequest(f"host {quoted(request.host)}: write the agent's name or IP address")
    if not 0 < port <= _LARGEST_PORT:
        raise InvalidRequest(f"port {port}: write 1 to {_LARGEST_PORT}; agents usually have 8080")
    return address_of(host, port)


def _inventory_at(links: AgentLinks, address: str) -> Inventory:
    """Return the inventory of the machine whose agent is at an address; raises NotReady if no agent
    answers there."""
    try:
        return links.inventory_at(address)
    except VipuError as error:
        raise NotReady(f"no agent answers at {address}: {error}. Start vipu-agent there") from error


def _check_new(inventory: Inventory, links: AgentLinks, address: str) -> None:
    """Raise AlreadyExists if the machine has an agent here."""
    serial, inventories = inventory.board_serial, dict(links.hardware.inventories)
    for agent, where in dict(links.addresses).items():
        if where == address or (agent in inventories and inventories[agent].board_serial == serial):
            raise AlreadyExists(
                f"the machine at {address} (board serial number {serial}) is agent {agent} "
                "already. Simulated machines get their numbers from vipu-agent --agent: give each "
                "its own"
            )


def _links(value: pb.LinkTopology.ValueType) -> layout.LinkTopology:
    try:
        return _LINKS[value]
    except KeyError:
        raise InvalidRequest(f"topology {value}: use 1 (torus) or 2 (mesh)") from None
