"""domain: the state of a controller's fleet at one moment, and a change of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from partitions.vipu.server.layout import Layout, ipus_of, topology_of
from partitions.vipu.server.occupancy import Occupancy
from partitions.vipu.server.records import AgentRecord, MachineRecord, PartitionRecord
from partitions.vipu.server.userrecords import RemovedUser, UserRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Removed:
    """The stored removal of a partition."""

    id: str


@dataclass(frozen=True, slots=True)
class RemovedAgent:
    """The stored removal of a created agent."""

    id: str


# What is stored of one change.
Stored: TypeAlias = (
    PartitionRecord
    | MachineRecord
    | Removed
    | Layout
    | UserRecord
    | RemovedUser
    | AgentRecord
    | RemovedAgent
)


@dataclass(frozen=True, slots=True)
class State:
    """Partitions by id in the order of their creation, machines by agent, and who holds which IPU.

    A machine is here only while something is said of it: a cordon, a fault, a loss. `agents` are
    those that were created: the options of the server name the others.
    """

    partitions: Mapping[str, PartitionRecord]
    machines: Mapping[str, MachineRecord]
    occupancy: Occupancy
    layout: Layout = field(default_factory=Layout)
    users: Mapping[str, UserRecord] = field(default_factory=dict)
    agents: Mapping[str, AgentRecord] = field(default_factory=dict)

    @property
    def stored(self) -> Iterator[Stored]:
        """The smallest list of changes that creates this state from an empty state."""
        yield from self.agents.values()
        if self.layout.is_edited:
            yield self.layout
        yield from self.machines.values()
        yield from self.users.values()
        yield from self.partitions.values()


class Draft:
    """A mutable copy of a state, and the list of its changes; the original stays unchanged."""

    def __init__(self, state: State) -> None:
        self.partitions = dict(state.partitions)
        self.machines = dict(state.machines)
        self.occupancy = state.occupancy
        self.layout = state.layout
        self.users = state.users
        self.agents = state.agents
        self.changes: list[Stored] = []

    @property
    def state(self) -> State:
        """The state after the changes."""
        return State(
            self.partitions, self.machines, self.occupancy, self.layout, self.users, self.agents
        )

    def put(self, record: PartitionRecord) -> None:
        """Add a partition, or put it in place of the partition of its id."""
        old = self.partitions.get(record.id)
        if old is None or old.ipus != record.ipus:
            without = self.occupancy if old is None else self.occupancy.freed(old.ipus)
            self.occupancy = without.taken(record.ipus, record.id)
        self.partitions[record.id] = record
        self.changes.append(record)

    def remove(self, partition_id: str) -> None:
        """Remove a partition; raises KeyError."""
        self.occupancy = self.occupancy.freed(self.partitions.pop(partition_id).ipus)
        self.changes.append(Removed(partition_id))

    def put_machine(self, record: MachineRecord) -> None:
        """Keep what is said of a machine; a machine of which nothing is said is forgotten."""
        self.machines[record.agent] = record
        if record.is_in_service:
            del self.machines[record.agent]
        self._close(record)
        self.changes.append(record)

    def put_layout(self, layout: Layout) -> None:
        """Replace the layout of the machines; machines with partitions must keep their places.

        Raises KeyError for an agent that the fleet does not have.
        """
        self._arrange(layout, ipus_of(self.occupancy.topology))

    def put_agent(self, agent: AgentRecord) -> None:
        """Add an agent, whose machine is in no cluster."""
        self.agents = {**self.agents, agent.id: agent}
        self.changes.append(agent)
        ipus = {**ipus_of(self.occupancy.topology), agent.id: agent.ipus}
        self._arrange(replace(self.layout, is_edited=True), ipus)

    def remove_agent(self, agent_id: str) -> None:
        """Remove a created agent without a cluster, with all records about its machine."""
        self.agents = {name: agent for name, agent in self.agents.items() if name != agent_id}
        if agent_id in self.machines:
            self.put_machine(MachineRecord(agent_id))
        self.changes.append(RemovedAgent(agent_id))
        ipus = ipus_of(self.occupancy.topology)
        del ipus[agent_id]
        self._arrange(self.layout, ipus)

    def _arrange(self, layout: Layout, ipus: Mapping[str, int]) -> None:
        topology = topology_of(layout, ipus)
        self.layout, self.occupancy = layout, Occupancy.of(topology)
        for record in self.partitions.values():
            self.occupancy = self.occupancy.taken(record.ipus, record.id)
        for agent in dict.fromkeys(ipu.agent for ipu in topology.ipus):
            machine = self.machines.get(agent, MachineRecord(agent))
            if layout.why_closed(agent) or not machine.is_in_service:
                self._close(machine)
        self.changes.append(layout)
        self._forget_grants()

    def put_user(self, user: UserRecord) -> None:
        """Add a user, or put the record in place of the record of its id."""
        self.users = {**self.users, user.id: user}
        self.changes.append(user)

    def remove_user(self, user_id: str) -> None:
        """Remove a user."""
        self.users = {name: user for name, user in self.users.items() if name != user_id}
        self.changes.append(RemovedUser(user_id))

    def _forget_grants(self) -> None:
        """Drop grants of allocations that are gone: a later allocation of the same name needs new
        grants."""
        for user in self.users.values():
            granted = tuple(each for each in user.allocations if each in self.layout.allocations)
            if granted != user.allocations:
                self.put_user(replace(user, allocations=granted))

    def _close(self, machine: MachineRecord) -> None:
        unused = self.layout.why_closed(machine.agent)
        self.occupancy = self.occupancy.closed(
            machine.agent, lambda index: machine.why_closed(index) or unused
        )
