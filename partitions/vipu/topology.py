"""domain: the shape of a fleet: its IPUs, their IPU-Link domains and allocations, and free blocks.

A partition is an aligned buddy block: a block of 2^k IPUs starts at a multiple of 2^k and is in one
domain and one allocation. Every answer about capacity and every placement comes from `free_blocks`,
so they cannot disagree.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

DOMAIN_IPUS = 64  # an IPU-Link domain is a rack of 16 IPU-Machines of 4 IPUs
MAX_PARTITION_SIZE = DOMAIN_IPUS
PARTITION_SIZES = (1, 2, 4, 8, 16, 32, 64)
AGENT_PREFIX = "ag"  # of our own fleets: ag0, ag1, ...
# Attributes of an IPU by which a V-IPU controller says where the IPU stands.
DOMAIN_ATTRIBUTE = "ipulink domain"
POSITION_ATTRIBUTE = "topology id"
CLUSTER_ATTRIBUTE = "cluster"
ALLOCATION_ATTRIBUTE = "allocation"
# And by which it says why the IPU gets no new partition, in a sentence.
CORDON_ATTRIBUTE = "cordon"
FAULT_ATTRIBUTE = "fault"
# Why the agent of its machine does not answer; of an IPU that can be asked about it says nothing.
LOST_ATTRIBUTE = "agent lost"
# What every V-IPU controller says of the machine, and of the IPU.
BOARD_TYPE_ATTRIBUTE = "board type"
BOARD_SERIAL_ATTRIBUTE = "board serial number"
CLOCK_ATTRIBUTE = "clock"
FIRMWARE_ATTRIBUTE = "firmware version"
SOFTWARE_ATTRIBUTE = "software version"  # only ours says it
_PARTS = (BOARD_TYPE_ATTRIBUTE, BOARD_SERIAL_ATTRIBUTE, CLOCK_ATTRIBUTE, FIRMWARE_ATTRIBUTE)
_MADE_OF = (*_PARTS, SOFTWARE_ATTRIBUTE)


class Hardware(NamedTuple):
    """The parts of an IPU and its machine, in the controller's words; empty: not said."""

    board_type: str = ""
    board_serial: str = ""
    clock: str = ""
    firmware: str = ""
    software: str = ""


_UNSAID = Hardware()


class IpuId(NamedTuple):
    """The place of an IPU: its IPU-Link domain, its place (0 to 63) in it, and the cluster.

    Each cluster of a V-IPU controller numbers its own domains. An empty cluster: it is unknown
    which cluster it is.
    """

    domain: int
    position: int
    cluster: str = ""

    @property
    def order(self) -> tuple[str, int, int]:
        """Sort key: by cluster, domain and place."""
        return self.cluster, self.domain, self.position


@dataclass(frozen=True, slots=True)
class Ipu:
    """One IPU: its address, the agent and device number behind it, and who may use it.

    `cluster` and `allocation` are empty if the controller does not report them. `cordon` and
    `fault` say why it gets no new partition; both are empty when it may. `lost`: why its agent does
    not answer. `hardware`: its components.
    """

    id: IpuId
    agent: str
    index: int
    cluster: str = ""
    allocation: str = ""
    cordon: str = ""
    fault: str = ""
    lost: str = ""
    hardware: Hardware = _UNSAID


@dataclass(frozen=True)
class Topology:
    """All IPUs of a fleet, or of a part of it, in the order of their addresses.

    `is_guess`: the controller does not report the places of its IPUs, so only their number is
    certain. Raises ValueError when two IPUs claim one address or an address lies outside its
    domain.
    """

    ipus: tuple[Ipu, ...]
    is_guess: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "ipus", tuple(sorted(self.ipus, key=lambda ipu: ipu.id.order)))
        if len(self.by_id) != len(self.ipus):
            raise ValueError("two IPUs of the fleet have the same IPU-Link domain and topology id")
        for ipu in self.ipus:
            if ipu.id.domain < 0 or not 0 <= ipu.id.position < DOMAIN_IPUS:
                raise ValueError(
                    f"IPU {ipu.index} of {ipu.agent}: topology id {ipu.id.position} in IPU-Link "
                    f"domain {ipu.id.domain} does not exist (0 to {DOMAIN_IPUS - 1})"
                )

    def __len__(self) -> int:
        return len(self.ipus)

    @cached_property
    def by_id(self) -> Mapping[IpuId, Ipu]:
        """The IPUs by address."""
        return {ipu.id: ipu for ipu in self.ipus}

    @cached_property
    def domains(self) -> tuple[tuple[str, int], ...]:
        """The IPU-Link domains that have at least one IPU, each with its cluster, in order."""
        return tuple(sorted({(ipu.id.cluster, ipu.id.domain) for ipu in self.ipus}))

    @cached_property
    def clusters(self) -> frozenset[str]:
        """The clusters that the IPUs are said to be in."""
        return frozenset(ipu.cluster for ipu in self.ipus if ipu.cluster)

    @cached_property
    def has_all_places(self) -> bool:
        """Return whether the controller has said of each IPU its place, cluster and allocation."""
        return not self.is_guess and all(ipu.cluster and ipu.allocation for ipu in self.ipus)

    @cached_property
    def allocations(self) -> Mapping[str, str]:
        """The cluster of each allocation, by allocation id."""
        return {ipu.allocation: ipu.cluster for ipu in self.ipus}

    @cached_property
    def closed(self) -> Mapping[IpuId, Ipu]:
        """The IPUs that get no new partition, by address."""
        return {ipu.id: ipu for ipu in self.ipus if ipu.cordon or ipu.fault}

    def only(self, *, cluster: str = "", allocation: str = "") -> Topology:
        """The part of the fleet in that cluster and allocation; an empty text matches any.

        IPUs with an unknown cluster or allocation stay in the result, because the controller
        decides.
        """
        if not cluster and not allocation:
            return self
        ipus = (
            ipu
            for ipu in self.ipus
            if _may_be(cluster, ipu.cluster) and _may_be(allocation, ipu.allocation)
        )
        return Topology(tuple(ipus), self.is_guess)


def size_problem(size: int) -> str:
    """One sentence why no partition has `size` IPUs and which sizes are next; "" if size fits."""
    if size in PARTITION_SIZES:
        return ""
    if size < 1:
        return f"a partition has at least 1 IPU, not {size}"
    if size > MAX_PARTITION_SIZE:
        return (
            f"a partition has at most {MAX_PARTITION_SIZE} IPUs, one IPU-Link domain; "
            f"{size} would span several"
        )
    below = max(smaller for smaller in PARTITION_SIZES if smaller < size)
    return f"the size of a partition is a power of two: {below} or {below * 2}, not {size}"


def fleet_of_parts(
    machines: int, ipus_per_machine: int, parts: Iterable[tuple[str, str]]
) -> Topology:
    """As many machines in each of `parts`, which are a cluster and an allocation of it.

    Agents count through, IPU-Link domains begin with 0 in each cluster. Raises ValueError.
    """
    if machines < 1:
        raise ValueError(f"a fleet has at least 1 IPU-Machine, not {machines}")
    if ipus_per_machine not in PARTITION_SIZES:
        sizes = ", ".join(map(str, PARTITION_SIZES))
        raise ValueError(f"an IPU-Machine has {sizes} IPUs, not {ipus_per_machine}")
    ipus: list[Ipu] = []
    taken: Counter[str] = Counter()
    for cluster, allocation in parts:
        for _ in range(machines):
            agent = f"{AGENT_PREFIX}{len(ipus) // ipus_per_machine}"
            for index in range(ipus_per_machine):
                place = IpuId(*divmod(taken[cluster], DOMAIN_IPUS), cluster)
                ipus.append(Ipu(place, agent, index, cluster, allocation))
                taken[cluster] += 1
    return Topology(tuple(ipus))


def topology_from_attributes(
    attributes: Mapping[str, Mapping[int, Mapping[str, str]]],
) -> Topology:
    """The fleet that a controller's IPU attributes describe: agent -> device number -> attributes.

    Uses the reported places if every IPU reports a valid place. Otherwise IPUs count in agent order
    (ag2 before ag10), 64 in each domain, which is the default cabling of a rack: a guess, because
    the published attributes describe boards and not places.
    """
    stated = list(_stated_places(attributes))
    if all(ipu is not None for ipu in stated):
        try:
            return Topology(tuple(ipu for ipu in stated if ipu is not None))
        except ValueError:
            pass  # contradictory places are no places: the agent order stands in for them
    return Topology(tuple(_in_agent_order(attributes)), is_guess=True)


def agent_order(agent: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that counts the numbers in an agent's name: ag2 before ag10."""
    parts = re.findall(r"\d+|\D+", agent)
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


def _stated_places(
    attributes: Mapping[str, Mapping[int, Mapping[str, str]]],
) -> Iterator[Ipu | None]:
    for agent, index, found in _flat(attributes):
        try:
            place = (int(found[DOMAIN_ATTRIBUTE]), int(found[POSITION_ATTRIBUTE]))
        except (KeyError, ValueError):
            yield None
            continue
        yield _ipu(place, agent, index, found)


def _in_agent_order(attributes: Mapping[str, Mapping[int, Mapping[str, str]]]) -> Iterator[Ipu]:
    for number, (agent, index, found) in enumerate(_flat(attributes)):
        # Not even a stated cluster: IPUs of several would be numbered as if of one cluster.
        place = IpuId(*divmod(number, DOMAIN_IPUS))
        yield Ipu(place, agent, index, hardware=_hardware(found))


def _ipu(place: tuple[int, int], agent: str, index: int, found: Mapping[str, str]) -> Ipu:
    cluster, allocation = found.get(CLUSTER_ATTRIBUTE, ""), found.get(ALLOCATION_ATTRIBUTE, "")
    cordon, fault = found.get(CORDON_ATTRIBUTE, ""), found.get(FAULT_ATTRIBUTE, "")
    return Ipu(
        IpuId(*place, cluster),
        agent,
        index,
        cluster,
        allocation,
        cordon,
        fault,
        lost=found.get(LOST_ATTRIBUTE, ""),
        hardware=_hardware(found),
    )


def _hardware(found: Mapping[str, str]) -> Hardware:
    return _shared(*(found.get(name, "") for name in _MADE_OF))


@lru_cache(maxsize=4096)
def _shared(*fields: str) -> Hardware:
    """One object for the IPUs of a machine, which mostly say the same."""
    return Hardware(*fields)


def _may_be(wanted: str, stated: str) -> bool:
    return not wanted or not stated or wanted == stated


def _flat(
    attributes: Mapping[str, Mapping[int, Mapping[str, str]]],
) -> Iterable[tuple[str, int, Mapping[str, str]]]:
    for agent in sorted(attributes, key=agent_order):
        for index in sorted(attributes[agent]):
            yield agent, index, attributes[agent][index]


@dataclass(frozen=True, slots=True, order=True)
class Block:
    """`size` neighbouring IPUs of one IPU-Link domain, the first of them at position `start`."""

    size: int
    domain: int
    start: int
    cluster: str = ""

    def ipus(self, size: int | None = None) -> tuple[IpuId, ...]:
        """The block's first `size` IPUs, or all of them."""
        end = self.start + (self.size if size is None else size)
        positions = range(self.start, end)
        return tuple(IpuId(self.domain, position, self.cluster) for position in positions)


def free_blocks(topology: Topology, used: Collection[IpuId]) -> tuple[Block, ...]:
    """The largest free buddy blocks, disjoint, by address; together they are all free IPUs."""
    taken = frozenset(used)
    free: dict[tuple[str, int], dict[int, str]] = {domain: {} for domain in topology.domains}
    for ipu in topology.ipus:
        if ipu.id not in taken:
            free[ipu.id.cluster, ipu.id.domain][ipu.id.position] = ipu.allocation
    blocks = [
        block for (cluster, domain), its in free.items() for block in _merged(cluster, domain, its)
    ]
    return tuple(sorted(blocks, key=lambda block: (block.cluster, block.domain, block.start)))


def largest_block(topology: Topology) -> int:
    """Return the number of IPUs of the largest partition in an empty fleet.

    If the places of the IPUs are unknown, all of them may be neighbours.
    """
    if topology.is_guess:
        sizes = (size for size in PARTITION_SIZES if size <= len(topology))
        return max(sizes, default=0)
    return max((block.size for block in free_blocks(topology, ())), default=0)


def count_fitting(blocks: Iterable[Block], size: int) -> int:
    """Return how many partitions of `size` IPUs fit in free blocks now, all at once; 0 for a size
    that none can have."""
    return 0 if size_problem(size) else sum(block.size // size for block in blocks)


def place(topology: Topology, used: Collection[IpuId], size: int) -> tuple[IpuId, ...] | None:
    """The IPUs for a new partition, or None when no block of that size is free; best fit."""
    return None if size_problem(size) else best_fit(free_blocks(topology, used), size)


def best_fit(blocks: Iterable[Block], size: int) -> tuple[IpuId, ...] | None:
    """The first `size` IPUs of the smallest of these blocks that has so many, or None.

    Of equal blocks the lowest address, so that large blocks stay whole for large partitions.
    """
    fitting = min((block for block in blocks if block.size >= size), default=None)
    return None if fitting is None else fitting.ipus(size)


def block_with_fewest(
    blocks: Iterable[Block], passing: Collection[IpuId], size: int
) -> tuple[int, Block] | None:
    """The block of `size` in `blocks` with the fewest IPUs of `passing`, the first of equals, and
    how many; None: there is no such block.
    """
    if size_problem(size):
        return None
    taken = frozenset(passing)
    parts = [
        Block(size, block.domain, start, block.cluster)
        for block in blocks
        for start in range(block.start, block.start + block.size - size + 1, size)
    ]
    counts = ((sum(ipu in taken for ipu in block.ipus()), block) for block in parts)
    return min(counts, key=lambda counted: counted[0], default=None)


def is_buddy_block(topology: Topology, ipus: Collection[IpuId]) -> bool:
    """Return whether exactly these IPUs exist, are in one allocation and form one aligned block."""
    ids = sorted(set(ipus), key=lambda ipu: ipu.order)
    if len(ids) != len(ipus) or size_problem(len(ids)):
        return False
    first = ids[0]
    known = [topology.by_id[ipu].allocation for ipu in ids if ipu in topology.by_id]
    allocations = {allocation for allocation in known if allocation}
    return (
        first.position % len(ids) == 0
        and ids == list(Block(len(ids), first.domain, first.position, first.cluster).ipus())
        and len(known) == len(ids)
        and len(allocations) <= 1
    )


def _merged(cluster: str, domain: int, free: Mapping[int, str]) -> Iterator[Block]:
    """Join free neighbours of one allocation, level by level; yield what finds no buddy.

    `free` maps the position of each free IPU of the domain to its allocation.
    """
    size = 1
    while free:
        joined: dict[int, str] = {}
        for start, allocation in free.items():
            # Buddies differ in one bit of their address; position 64 exists in no domain.
            buddy = free.get(start ^ size)
            if buddy is not None and _may_be_same(buddy, allocation):
                joined[start & ~size] = allocation or buddy
            else:
                yield Block(size, domain, start, cluster)
        free, size = joined, size * 2


def _may_be_same(first: str, second: str) -> bool:
    """Return whether two allocations are the same; of an unknown allocation only the controller can
    say no."""
    return first == second or not first or not second
