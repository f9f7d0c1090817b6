"""domain: the machines behind agents: their place in the fleet, and their desired configuration.

The stored partitions define what a machine has to be configured for. The state that it reports is
compared with that, so after a restart of either side no record of sent commands is needed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from partitions.vipu.agent.machine import (
    Configuration,
    Configure,
    Device,
    PartitionState,
    Release,
    Reset,
)
from partitions.vipu.topology import (
    AGENT_PREFIX,
    DOMAIN_IPUS,
    PARTITION_SIZES,
    Ipu,
    IpuId,
    Topology,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from partitions.vipu.agent.holder import Rival
    from partitions.vipu.agent.machine import Health, Order
    from partitions.vipu.server.records import PartitionRecord
    from partitions.vipu.server.state import State


class Machines(Protocol):
    """The agents' reports: the controller's side of the fleet."""

    @property
    def topology(self) -> Topology:
        """The fleet."""
        ...

    @property
    def state(self) -> State:
        """All partitions at this moment."""
        ...

    def confirm(self, done: PartitionRecord) -> None:
        """All machines have done what the record says."""
        ...

    def fail_ipu(self, agent: str, index: int, sentence: str) -> None:
        """An IPU has a fault."""
        ...

    def heal_ipu(self, agent: str, index: int) -> None:
        """An IPU's fault is over."""
        ...

    def lose_agent(self, agent: str, sentence: str) -> None:
        """An agent does not answer."""
        ...

    def note_rival(self, agent: str, rival: Rival) -> None:
        """An agent has refused another controller."""
        ...

    def agent_back(self, agent: str) -> None:
        """A lost agent answers again."""
        ...

    def note_lost_part(self, agent: str, partition: str) -> None:
        """A machine had forgotten an ACTIVE partition, and sets it up again."""
        ...

    def fail_part(self, seen: PartitionRecord, problem: str) -> None:
        """Record that machines cannot serve a partition as it was `seen`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTiming:
    """The interval of questions to agents, and the silence after which an agent is lost, if it
    has not answered three questions in a row."""

    heartbeat_seconds: float = 1.0
    lost_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Identity:
    """The id that this controller gives agents, and whether it takes them from another."""

    controller: str = ""
    takes_over: bool = False


class Outage(Enum):
    """The reason that a machine cannot be used."""

    NONE = "none"
    SILENT = "silent"
    UNFIT = "unfit"
    FOREIGN = "foreign"


def fleet_of_agents(ipus: Mapping[str, int], parts: Sequence[tuple[str, str]]) -> Topology:
    """The fleet of these agents, in their order, each with a number of IPUs.

    Each of `parts` (a cluster and an allocation of it) gets as many agents. A machine stands at a
    multiple of its size, so that it can be a partition. Raises ValueError.
    """
    if not ipus or len(ipus) % len(parts):
        raise ValueError(
            f"{len(ipus)} agents cannot be shared out evenly among {len(parts)} allocations"
        )
    found: list[Ipu] = []
    taken: Counter[str] = Counter()
    share = len(ipus) // len(parts)
    for number, (agent, count) in enumerate(ipus.items()):
        if count not in PARTITION_SIZES:
            sizes = ", ".join(map(str, PARTITION_SIZES))
            raise ValueError(f"the machine of agent {agent} has {count} IPUs, not {sizes}")
        cluster, allocation = parts[number // share]
        first = -(-taken[cluster] // count) * count
        taken[cluster] = first + count
        for index in range(count):
            place = IpuId(*divmod(first + index, DOMAIN_IPUS), cluster)
            found.append(Ipu(place, agent, index, cluster, allocation))
    return Topology(tuple(found))


def configurations(record: PartitionRecord, topology: Topology) -> dict[str, Configuration]:
    """Return the configuration that each machine of a partition needs, by agent."""
    share = len(record.ipus) // record.num_gcds
    devices: dict[str, list[Device]] = {}
    for number, ipu_id in enumerate(record.ipus):
        ipu = topology.by_id[ipu_id]
        devices.setdefault(ipu.agent, []).append(Device(ipu.index, number, number // share))
    return {
        agent: Configuration(
            partition=record.id,
            generation=record.generation,
            devices=tuple(its),
            routing=record.routing,
            sync_type=record.sync_type,
            num_gcds=record.num_gcds,
            num_replicas=record.num_replicas,
            reconfigurable=record.reconfigurable,
        )
        for agent, its in devices.items()
    }


def differences(wanted: Mapping[str, Configuration], health: Health) -> list[Order]:
    """Return the orders that bring a machine to the wanted state, releases first: their IPUs may
    be wanted again."""
    freeing = {
        each.configuration.partition
        for each in health.partitions
        if each.state is PartitionState.RELEASING
    }
    has = {
        each.configuration.partition: each.configuration
        for each in health.partitions
        if each.configuration.partition not in freeing
    }
    first: list[Order] = [Release(partition) for partition in has if partition not in wanted]
    begun: list[Order] = []
    for partition, configuration in wanted.items():
        if partition in freeing:  # of an earlier partition with this id
            continue
        known = has.get(partition)
        if known == configuration:
            continue
        if known is None:
            begun.append(Configure(configuration))
        elif replace(known, generation=configuration.generation) == configuration:
            begun.append(Reset(partition, configuration.generation))
        else:
            # On other IPUs than before: those may be another partition's by now.
            first.append(Release(partition))
            begun.append(Configure(configuration))
    return [*first, *begun]


def key_of(configuration: Configuration) -> tuple[str, str]:
    """Return the key that identifies an operation with a partition."""
    return configuration.partition, configuration.generation


def ready(health: Health) -> frozenset[tuple[str, str]]:
    """Partition and generation of what a machine has set up."""
    return frozenset(
        key_of(each.configuration)
        for each in health.partitions
        if each.state is PartitionState.READY
    )


def begun_parts(
    keys: Iterable[tuple[str, str]],
    known: Mapping[str, tuple[PartitionRecord, frozenset[str]]],
) -> dict[tuple[str, str], PartitionRecord]:
    """The partitions, by id and generation, that are about to become ACTIVE."""
    found = {}
    for partition, generation in keys:
        record = known[partition][0] if partition in known else None
        if record is None or not record.is_unconfirmed or record.is_removing or record.errors:
            continue
        if record.generation == generation:
            found[partition, generation] = record
    return found


def failed_parts(
    health: Health, known: Mapping[str, tuple[PartitionRecord, frozenset[str]]]
) -> list[tuple[PartitionRecord, str]]:
    """Return the partitions that a machine cannot set up or serve any more, and its words on why.

    A partition that is READY and not confirmed yet is left to the questions to its IPUoF ports.
    """
    found = []
    for each in health.partitions:
        name, generation = key_of(each.configuration)
        record = known[name][0] if name in known else None
        if record is None or record.generation != generation:
            continue
        if record.is_removing or record.errors:
            continue
        if each.state is PartitionState.FAILED:
            found.append((record, each.problem or f"partition {name} has failed on the machine"))
        elif each.problem and not record.is_unconfirmed:
            found.append((record, each.problem))
    return found


def agents_of(addresses: Iterable[str]) -> dict[str, str]:
    """The addresses by the names of their agents, in order; raises ValueError."""
    found = [address.strip() for address in addresses]
    for address in found:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= 65535:
            raise ValueError(f"--agents {address!r}: write host:port for each, with commas between")
    if len(set(found)) != len(found):
        raise ValueError("--agents names an address twice; each machine has one agent")
    return {f"{AGENT_PREFIX}{number}": address for number, address in enumerate(found)}
