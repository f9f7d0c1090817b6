"""domain: the holder of each IPU of a fleet, and the free blocks.

`free_blocks` computes the same for a whole fleet; here a change costs the work of one IPU-Link
domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from partitions.vipu.topology import Topology, free_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from partitions.vipu.topology import Block, Ipu, IpuId

_Key: TypeAlias = tuple[str, int]  # a cluster and the number of one of its IPU-Link domains


@dataclass(frozen=True)
class _Domain:
    """One IPU-Link domain: its IPUs, the partition that holds each, and why some are closed."""

    topology: Topology
    holders: Mapping[IpuId, str]
    closed: Mapping[IpuId, str]

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The largest free blocks, computed on demand."""
        return free_blocks(self.topology, self.holders.keys() | self.closed.keys())


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The holders and free blocks of a fleet; each change gives a new occupancy.

    Closed IPUs get no new partition, whether a partition holds them or not.
    """

    topology: Topology
    _domains: Mapping[_Key, _Domain]

    @classmethod
    def of(cls, topology: Topology) -> Occupancy:
        """The fleet with every IPU free."""
        ipus: dict[_Key, list[Ipu]] = {}
        for ipu in topology.ipus:
            ipus.setdefault(_key(ipu.id), []).append(ipu)
        domains = {key: _Domain(Topology(tuple(its)), {}, {}) for key, its in ipus.items()}
        return cls(topology, domains)

    def taken(self, ipus: Sequence[IpuId], partition_id: str) -> Occupancy:
        """The fleet once the partition holds these IPUs of one IPU-Link domain."""
        its = self._domains[_key(ipus[0])]
        holders = {**its.holders, **dict.fromkeys(ipus, partition_id)}
        return self._with(_Domain(its.topology, holders, its.closed))

    def freed(self, ipus: Sequence[IpuId]) -> Occupancy:
        """The fleet after these IPUs of one IPU-Link domain are freed."""
        its = self._domains[_key(ipus[0])]
        holders = {ipu: holder for ipu, holder in its.holders.items() if ipu not in ipus}
        return self._with(_Domain(its.topology, holders, its.closed))

    def closed(self, agent: str, why_closed: Callable[[int], str]) -> Occupancy:
        """The fleet once an agent's IPUs are closed: those for whose device number it says why."""
        changed = self
        for its in self._domains.values():
            ours = {
                ipu.id: why_closed(ipu.index) for ipu in its.topology.ipus if ipu.agent == agent
            }
            if ours:
                reasons = {ipu: text for ipu, text in {**its.closed, **ours}.items() if text}
                changed = changed._with(_Domain(its.topology, its.holders, reasons))
        return changed

    def within(self, allocations: Collection[str]) -> Occupancy:
        """The part of the fleet that is in some allocations."""
        domains = {}
        for key, its in self._domains.items():
            ipus = tuple(ipu for ipu in its.topology.ipus if ipu.allocation in allocations)
            if len(ipus) == len(its.topology):  # with the blocks that are computed already
                domains[key] = its
            elif ipus:
                domains[key] = _Domain(Topology(ipus), its.holders, its.closed)
        allowed = (ipu for its in domains.values() for ipu in its.topology.ipus)
        return Occupancy(Topology(tuple(allowed)), domains)

    def holder(self, ipu: IpuId) -> str | None:
        """The id of the partition that holds an IPU of this fleet."""
        return self._domains[_key(ipu)].holders.get(ipu)

    def why_closed(self, ipu: IpuId) -> str | None:
        """Return why an IPU of this fleet gets no new partition; None when it may."""
        return self._domains[_key(ipu)].closed.get(ipu)

    def free_blocks(self, *, cluster: str = "", allocation: str = "") -> Iterator[Block]:
        """The largest free blocks in that cluster and allocation; an empty text takes any."""
        for its in self._domains.values():
            for block in its.blocks:
                # A free block is in one allocation, so its first IPU represents all.
                first = its.topology.by_id[block.ipus(1)[0]]
                if cluster in ("", first.cluster) and allocation in ("", first.allocation):
                    yield block

    def _with(self, changed: _Domain) -> Occupancy:
        key = _key(changed.topology.ipus[0].id)
        return Occupancy(self.topology, {**self._domains, key: changed})


def _key(ipu: IpuId) -> _Key:
    return ipu.cluster, ipu.domain
