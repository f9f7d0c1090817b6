"""domain: where a partition of a given size goes: aligned buddy blocks inside an IPU-Link domain.

A block of 2^k IPUs starts at a multiple of 2^k, lies in one domain and in one allocation. Every
answer about capacity and every placement comes from `free_blocks`, so that they cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from partitions.vipu.topology import PARTITION_SIZES, IpuId, size_problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from partitions.vipu.topology import Topology


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
    return tuple(sorted(blocks, key=lambda one: (one.cluster, one.domain, one.start)))


def largest_block(topology: Topology) -> int:
    """How many IPUs the largest partition can have in an empty fleet.

    Where nobody has said where the IPUs stand, all of them may be neighbours.
    """
    if topology.is_guess:
        sizes = (size for size in PARTITION_SIZES if size <= len(topology))
        return max(sizes, default=0)
    return max((block.size for block in free_blocks(topology, ())), default=0)


def count_fitting(topology: Topology, used: Collection[IpuId], size: int) -> int:
    """How many partitions of `size` IPUs fit now, all at once; 0 for a size that none can have."""
    if size_problem(size):
        return 0
    return sum(block.size // size for block in free_blocks(topology, used))


def place(topology: Topology, used: Collection[IpuId], size: int) -> tuple[IpuId, ...] | None:
    """The IPUs for a new partition, or None when no block of that size is free.

    Best fit: out of the smallest free block that is large enough, the lowest address first, so
    that large blocks stay whole for large partitions.
    """
    if size_problem(size):
        return None
    fitting = [block for block in free_blocks(topology, used) if block.size >= size]
    return min(fitting).ipus(size) if fitting else None


def fewest_in_the_way(
    topology: Topology, passing: Collection[IpuId], fixed: Collection[IpuId], size: int
) -> int | None:
    """How many IPUs of `passing` must come free until a block of `size` is, at least.

    None: there is no such block, or each has IPUs of `fixed`.
    """
    if size_problem(size):
        return None
    taken = frozenset(passing)
    counts = [
        sum(ipu in taken for ipu in Block(size, block.domain, start, block.cluster).ipus())
        for block in free_blocks(topology, fixed)
        for start in range(block.start, block.start + block.size - size + 1, size)
    ]
    return min(counts, default=None)


def is_buddy_block(topology: Topology, ipus: Collection[IpuId]) -> bool:
    """Whether exactly these IPUs exist, lie in one allocation and form one aligned block."""
    ids = sorted(set(ipus), key=lambda one: one.order)
    if len(ids) != len(ipus) or size_problem(len(ids)):
        return False
    first = ids[0]
    known = [topology.by_id[one].allocation for one in ids if one in topology.by_id]
    told = {allocation for allocation in known if allocation}
    return (
        first.position % len(ids) == 0
        and ids == list(Block(len(ids), first.domain, first.position, first.cluster).ipus())
        and len(known) == len(ids)
        and len(told) <= 1
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
            if buddy is not None and _may_be_one(buddy, allocation):
                joined[start & ~size] = allocation or buddy
            else:
                yield Block(size, domain, start, cluster)
        free, size = joined, size * 2


def _may_be_one(one: str, other: str) -> bool:
    """Whether two allocations are the same; of an unknown one only the controller can say no."""
    return one == other or not one or not other
