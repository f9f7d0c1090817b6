"""domain: all that a controller knows of its fleet at one moment, and a change of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from partitions.vipu.server.records import MachineRecord, PartitionRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from partitions.vipu.server.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class Removed:
    """The end of a partition, as it is stored."""

    id: str


# What is stored of one change.
Stored: TypeAlias = PartitionRecord | MachineRecord | Removed


@dataclass(frozen=True, slots=True)
class State:
    """Partitions by id in the order of their creation, machines by agent, and who holds which IPU.

    A machine is here only while something is said of it: a cordon, a fault, a loss.
    """

    partitions: Mapping[str, PartitionRecord]
    machines: Mapping[str, MachineRecord]
    occupancy: Occupancy

    @property
    def stored(self) -> Iterator[Stored]:
        """The fewest changes that make this state out of nothing."""
        yield from self.machines.values()
        yield from self.partitions.values()


class Draft:
    """A state that is being changed, and the list of its changes; the old one stays as it is."""

    def __init__(self, state: State) -> None:
        self.partitions = dict(state.partitions)
        self.machines = dict(state.machines)
        self.occupancy = state.occupancy
        self.changes: list[Stored] = []

    @property
    def state(self) -> State:
        """The state after the changes."""
        return State(self.partitions, self.machines, self.occupancy)

    def put(self, record: PartitionRecord) -> None:
        """Add a partition, or put it in place of the one of its id."""
        old = self.partitions.get(record.id)
        if old is None or old.ipus != record.ipus:
            without = self.occupancy if old is None else self.occupancy.freed(old.ipus)
            self.occupancy = without.taken(record.ipus, record.id)
        self.partitions[record.id] = record
        self.changes.append(record)

    def remove(self, partition_id: str) -> None:
        """Take a partition away; raises KeyError."""
        self.occupancy = self.occupancy.freed(self.partitions.pop(partition_id).ipus)
        self.changes.append(Removed(partition_id))

    def put_machine(self, record: MachineRecord) -> None:
        """Keep what is said of a machine; one of which nothing is said is forgotten."""
        self.machines[record.agent] = record
        if record.is_in_service:
            del self.machines[record.agent]
        self.occupancy = self.occupancy.closed(record.agent, record.why_closed)
        self.changes.append(record)
