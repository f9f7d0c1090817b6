"""domain: estimates the location of IPUs whose controller does not report it, from its partitions.

The published attributes of an IPU describe its board, not its cluster, allocation or location. The
partitions that a controller lists report these for the IPUs that they hold. Of all other IPUs only
the number is known: they get their most probable location, and the controller decides.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain, count
from typing import TYPE_CHECKING, Final

from partitions.vipu.topology import DOMAIN_IPUS, Ipu, IpuId, Topology

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from partitions.vipu.types import VipuPartition

_MACHINE_IPUS: Final = 4  # holes are filled a machine at a time


def with_places(topology: Topology, partitions: Iterable[VipuPartition]) -> Topology:
    """The fleet with the places that its partitions report for their IPUs."""
    if topology.has_all_places:
        return topology
    seen = {ipu: partition.allocation_id for partition in partitions for ipu in partition.ipus}
    if not seen:
        return topology
    clusters = {ipu.cluster for ipu in seen}
    if topology.is_guess:
        return _guessed(topology, seen)
    if any(ipu.cluster for ipu in topology.ipus):
        return Topology(tuple(_told(ipu, ipu.id, seen) for ipu in topology.ipus))
    if len(clusters) > 1:  # the reported places are of one unknown cluster only
        return _guessed(topology, seen)
    (cluster,) = clusters
    places = (replace(ipu, id=ipu.id._replace(cluster=cluster)) for ipu in topology.ipus)
    return Topology(tuple(_told(ipu, ipu.id, seen) for ipu in places))


def _guessed(topology: Topology, seen: Mapping[IpuId, str]) -> Topology:
    places = sorted(_places(len(topology), seen), key=lambda place: place.order)
    # A controller may list partitions of IPUs that it does not let this user see.
    spare = (Ipu(place, "", 0) for place in places[len(topology) :])
    ipus = [*topology.ipus, *spare]
    placed = (_told(ipu, place, seen) for ipu, place in zip(ipus, places, strict=True))
    return Topology(tuple(placed), is_guess=True)


def _told(ipu: Ipu, place: IpuId, seen: Mapping[IpuId, str]) -> Ipu:
    """The IPU of that place, with what a partition says of it."""
    if place not in seen:
        return replace(ipu, id=place)
    cluster, allocation = ipu.cluster or place.cluster, ipu.allocation or seen[place]
    return replace(ipu, id=place, cluster=cluster, allocation=allocation)


def _places(number: int, seen: Mapping[IpuId, str]) -> set[IpuId]:
    """As many places, all that are `seen` among them; clusters are taken to be of like size."""
    places = set(seen)
    sizes = Counter(place.cluster for place in seen)
    holes = {cluster: _holes(cluster, seen) for cluster in sorted(sizes)}
    while len(places) < number:
        cluster = min(holes, key=lambda cluster: (sizes[cluster], cluster))
        machine = next(holes[cluster])[: number - len(places)]
        places |= set(machine)
        sizes[cluster] += len(machine)
    return places


def _holes(cluster: str, seen: Mapping[IpuId, str]) -> Iterator[list[IpuId]]:
    """The places of a cluster that no partition has reported, machine by machine, without end:
    places in partly known domains first."""
    known = sorted({place.domain for place in seen if place.cluster == cluster})
    others = (domain for domain in count() if domain not in known)
    for domain in chain(known, others):
        yield from _machines(cluster, domain, seen)


def _machines(cluster: str, domain: int, seen: Mapping[IpuId, str]) -> Iterator[list[IpuId]]:
    for first in range(0, DOMAIN_IPUS, _MACHINE_IPUS):
        places = (IpuId(domain, first + n, cluster) for n in range(_MACHINE_IPUS))
        if machine := [place for place in places if place not in seen]:
            yield machine
