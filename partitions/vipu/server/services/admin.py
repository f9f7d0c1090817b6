"""io: the V-IPU admin API over gRPC: the whole fleet, cordons, all partitions, events."""

# gRPC calls the methods by the names of the interface.
# ruff: noqa: N802
from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

from partitions.vipu.agent.machine import Fault, FaultKind
from partitions.vipu.errors import InvalidRequest, NotFound, NotReady, missing
from partitions.vipu.protos import vipu_admin_pb2 as pb
from partitions.vipu.protos.vipu_admin_pb2_grpc import AdminServiceServicer
from partitions.vipu.server.drain import FREEING, DrainOrder
from partitions.vipu.server.machines import inventory_of
from partitions.vipu.server.outages import no_ipu
from partitions.vipu.server.records import MachineRecord
from partitions.vipu.server.services.partitions import answering
from partitions.vipu.types import ReadyState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from partitions.vipu.agent.machine import Inventory
    from partitions.vipu.discovery import Discovery
    from partitions.vipu.server.agents.links import AgentLinks
    from partitions.vipu.server.controller import Controller
    from partitions.vipu.server.records import PartitionRecord
    from partitions.vipu.topology import Ipu

_PROVOKED = "is out of order, as requested"


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts of the server that its controller does not know.

    `agents`: host:port by agent; `links` are the connections to them, if there are any;
    `discovery` listens for new agents.
    """

    version: str
    started_at: datetime
    state_file: str
    agents: Mapping[str, str]
    links: AgentLinks | None = None
    discovery: Discovery | None = None
    api_port: int = 0  # of users
    is_secure: bool = False


class AdminService(AdminServiceServicer):
    """The calls of V-IPU's administrators: every client that reaches the port may do everything."""

    def __init__(self, controller: Controller, facts: ServerFacts) -> None:
        self._controller = controller
        self._facts = facts

    @answering
    def GetServer(self, request: pb.GetServerRequest) -> pb.Server:
        """Answer with version, age, size and health."""
        del request
        state, facts, now = self._controller.state, self._facts, self._controller.clock()
        unwritten, machines = self._controller.writes.unwritten, state.machines.values()
        in_error = (each.ready_state(now) is ReadyState.ERROR for each in state.partitions.values())
        return pb.Server(
            version=facts.version,
            started_at=_time(facts.started_at),
            state_file=facts.state_file,
            agents=len(self._machines()),
            ipus=len(self._controller.topology),
            free_ipus=sum(block.size for block in state.occupancy.free_blocks()),
            partitions=len(state.partitions),
            simulates_machines=facts.links is None,
            secure=facts.is_secure,
            lost_agents=sum(bool(machine.lost) for machine in machines),
            faulty_agents=sum(bool(machine.faults) for machine in machines),
            cordoned_agents=sum(machine.cordon is not None for machine in machines),
            error_partitions=sum(in_error),
            unwritten_since=_time(unwritten.since) if unwritten else None,
            unwritten_why=unwritten.reason if unwritten else "",
        )

    @answering
    def ListAgents(self, request: pb.ListAgentsRequest) -> pb.ListAgentsReply:
        """Answer with the agents in IPU-Link order."""
        del request
        return pb.ListAgentsReply(
            agents=[self._agent(name, ipus) for name, ipus in self._machines().items()]
        )

    @answering
    def GetAgent(self, request: pb.GetAgentRequest) -> pb.Agent:
        """Answer with one agent and what its machine is made of."""
        ipus = self._machine(request.agent_id)
        agent = self._agent(request.agent_id, ipus)
        made = inventory_of(agent.id, len(ipus), self._controller.hardware)
        if made is not None:
            agent.inventory.CopyFrom(_inventory(made, agent.address))
        return agent

    @answering
    def CordonAgent(self, request: pb.CordonAgentRequest) -> pb.CordonAgentReply:
        """Give a machine no new partitions."""
        reason = request.reason if request.HasField("reason") else None
        self._controller.cordon(request.agent_id, reason)
        return pb.CordonAgentReply()

    @answering
    def UncordonAgent(self, request: pb.UncordonAgentRequest) -> pb.UncordonAgentReply:
        """Let a machine have new partitions again."""
        self._controller.uncordon(request.agent_id)
        return pb.UncordonAgentReply()

    @answering
    def DrainAgent(self, request: pb.DrainAgentRequest) -> pb.DrainAgentReply:
        """Take from a machine what may leave it now, and say what remains."""
        order = DrainOrder(
            agent=request.agent_id,
            reason=request.reason if request.HasField("reason") else None,
            force=request.force,
            resume=request.resume,
        )
        done = self._controller.drain(order)
        links = self._facts.links
        freeing = links.freeing(order.agent) if links else frozenset()
        remaining = dict.fromkeys(sorted(freeing or ()), FREEING) | done.remaining
        return pb.DrainAgentReply(
            moved=[
                pb.MovedPartition(partition_id=name, agent_ids=agents)
                for name, agents in done.moved.items()
            ],
            ended=done.ended,
            remaining=[
                pb.RemainingPartition(partition_id=name, why=text)
                for name, text in remaining.items()
            ],
            unheard=freeing is None,
        )

    @answering
    def ListClusters(self, request: pb.ListClustersRequest) -> pb.ListClustersReply:
        """Answer with the clusters by name."""
        del request
        arranged = self._controller.state.layout.clusters
        groups = self._groups(lambda ipu: ipu.cluster, arranged)
        for group in groups:
            group.topology = arranged[group.id].links
            group.looped = arranged[group.id].looped
        return pb.ListClustersReply(clusters=groups)

    @answering
    def ListAllocations(self, request: pb.ListAllocationsRequest) -> pb.ListAllocationsReply:
        """Answer with the allocations by name."""
        del request
        arranged = self._controller.state.layout.allocations
        groups = self._groups(lambda ipu: ipu.allocation, arranged)
        return pb.ListAllocationsReply(allocations=groups)

    @answering
    def ListPartitions(self, request: pb.ListPartitionsRequest) -> pb.ListPartitionsReply:
        """Answer with all partitions, or the partitions of one machine."""
        wanted = {ipu.id for ipu in self._machine(request.agent_id)} if request.agent_id else None
        return pb.ListPartitionsReply(
            partitions=[
                self._partition(record)
                for record in self._controller.list()
                if wanted is None or not wanted.isdisjoint(record.ipus)
            ]
        )

    @answering
    def ResetPartition(self, request: pb.ResetPartitionRequest) -> pb.ResetPartitionReply:
        """Begin a reset of a partition of any user."""
        self._controller.reset(request.partition_id, relocatable=request.relocatable)
        return pb.ResetPartitionReply()

    @answering
    def RemovePartition(self, request: pb.RemovePartitionRequest) -> pb.RemovePartitionReply:
        """Begin to remove a partition of any user."""
        self._controller.remove(request.partition_id)
        return pb.RemovePartitionReply()

    @answering
    def ProvokeFault(self, request: pb.ProvokeFaultRequest) -> pb.ProvokeFaultReply:
        """Let an IPU, or the agent as a whole, of a simulated machine fail."""
        agent = request.agent_id
        ipu = request.ipu if request.HasField("ipu") else None
        index = self._index(agent, ipu)
        if request.ipuof_port and ipu is None:
            raise InvalidRequest("ipu: name the IPU whose IPUoF port is to be closed")
        if request.ipuof_port and self._facts.links is None:
            raise NotReady(
                f"{agent} is simulated without an agent and has no IPUoF ports: start vipu-server "
                "with --agents"
            )
        if self._facts.links is not None:
            kind = FaultKind.HANG if ipu is None else FaultKind.IPU_ERROR
            kind = FaultKind.IPUOF_CLOSED if request.ipuof_port else kind
            self._facts.links.fail(agent, Fault(kind, ipu=index))
        elif ipu is None:
            self._controller.lose_agent(agent, f"{agent} {_PROVOKED}")
        else:
            self._controller.fail_ipu(agent, index, f"IPU {index} {_PROVOKED}")
        return pb.ProvokeFaultReply()

    @answering
    def ClearFault(self, request: pb.ClearFaultRequest) -> pb.ClearFaultReply:
        """End the faults of an IPU, or all of a simulated machine."""
        agent = request.agent_id
        ipu = request.ipu if request.HasField("ipu") else None
        self._index(agent, ipu)
        if self._facts.links is not None:
            self._facts.links.repair(agent, ipu)
            return pb.ClearFaultReply()
        if ipu is None:
            self._controller.agent_back(agent)
        for each in self._machine(agent):
            if ipu in (None, each.index):
                self._controller.heal_ipu(agent, each.index)
        return pb.ClearFaultReply()

    @answering
    def ListEvents(self, request: pb.ListEventsRequest) -> pb.ListEventsReply:
        """Answer with the last events, the oldest first."""
        del request
        events, forgotten = self._controller.events.last()
        return pb.ListEventsReply(
            events=[
                pb.Event(at=_time(event.at), what=event.what, facts=event.facts) for event in events
            ],
            forgotten=forgotten,
        )

    def _machines(self) -> dict[str, list[Ipu]]:
        """The IPUs by agent, in IPU-Link order."""
        found: dict[str, list[Ipu]] = {}
        for ipu in self._controller.topology.ipus:
            found.setdefault(ipu.agent, []).append(ipu)
        return found

    def _machine(self, agent: str) -> Sequence[Ipu]:
        try:
            return self._machines()[agent]
        except KeyError:
            raise NotFound(missing("agent", agent, "vipu-admin list agents")) from None

    def _index(self, agent: str, ipu: int | None) -> int:
        """The device number of an IPU of this agent, 0 for none; raises NotFound."""
        indexes = [each.index for each in self._machine(agent)]
        if ipu is not None and ipu not in indexes:
            raise NotFound(no_ipu(agent, indexes, ipu))
        return ipu or 0

    def _agent(self, name: str, ipus: Sequence[Ipu]) -> pb.Agent:
        state = self._controller.state
        record = state.machines.get(name, MachineRecord(name))
        holders = [state.occupancy.holder(ipu.id) for ipu in ipus]
        return pb.Agent(
            id=name,
            address=self._facts.agents.get(name, ""),
            cluster_id=ipus[0].cluster,
            allocation_id=ipus[0].allocation,
            ipus=len(ipus),
            held_ipus=sum(holder is not None for holder in holders),
            cordoned=record.cordon is not None,
            cordon_reason=record.cordon or "",
            cordoned_at=_time(record.cordoned_at),
            faults=record.faults,
            lost=record.lost,
            partition_ids=sorted({holder for holder in holders if holder is not None}),
            ipulink_domain=ipus[0].id.domain,
            removable=name in state.agents,
        )

    def _groups(self, name_of: Callable[[Ipu], str], known: Collection[str]) -> list[pb.Group]:
        topology, free = self._controller.topology, Counter[str]()
        for block in self._controller.state.occupancy.free_blocks():
            free[name_of(topology.by_id[block.ipus(1)[0]])] += block.size
        groups: dict[str, list[Ipu]] = {}
        for ipu in topology.ipus:
            groups.setdefault(name_of(ipu), []).append(ipu)
        return [
            pb.Group(
                id=name,
                cluster_ids=dict.fromkeys(ipu.cluster for ipu in ipus),
                allocation_ids=dict.fromkeys(ipu.allocation for ipu in ipus if ipu.allocation),
                agent_ids=dict.fromkeys(ipu.agent for ipu in ipus),
                ipulink_domains=len({(ipu.id.cluster, ipu.id.domain) for ipu in ipus}),
                ipus=len(ipus),
                free_ipus=free[name],
            )
            for name, ipus in sorted(groups.items())
            if name in known
        ]

    def _partition(self, record: PartitionRecord) -> pb.Partition:
        now, by_id = self._controller.clock(), self._controller.topology.by_id
        return pb.Partition(
            id=record.id,
            cluster_id=record.cluster,
            allocation_id=record.allocation,
            size=len(record.ipus),
            agent_ids=dict.fromkeys(by_id[ipu].agent for ipu in record.ipus),
            ready_state=record.ready_state(now),
            operation_state=record.operation_state(now),
            errors=record.errors,
            since=_time(record.started_at),
            auto_resets=record.auto_resets,
        )


def _inventory(made: Inventory, address: str) -> pb.Inventory:
    host = address.rpartition(":")[0]
    exporter = f"http://{host}:{made.exporter_port}/metrics" if made.exporter_port else ""
    return pb.Inventory(
        platform=made.platform,
        board_type=made.board_type,
        board_serial=made.board_serial,
        part_number=made.part_number,
        gateway_version=made.gateway_version,
        software_version=made.software_version,
        ipuof_version=made.ipuof_version,
        manufacturer=made.manufacturer,
        discovery_mode=made.discovery_mode,
        virm_version=made.virm_version,
        runtime_version=made.runtime_version,
        hdf_version=made.hdf_version,
        hdf_hash=made.hdf_hash,
        driver_version=made.driver_version,
        exporter=exporter,
        ipus=[pb.AgentIpu(**asdict(ipu)) for ipu in made.ipus],
    )


def _time(at: datetime | None) -> Timestamp | None:
    if at is None:
        return None
    found = Timestamp()
    found.FromDatetime(at)
    return found
