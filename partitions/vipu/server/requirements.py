"""domain: the valid partition requests, and their defaults."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from partitions.vipu.errors import InvalidRequest, NoCapacity, quoted
from partitions.vipu.topology import (
    MAX_PARTITION_SIZE,
    Topology,
    best_fit,
    is_buddy_block,
    largest_block,
    size_problem,
)
from partitions.vipu.types import GatewayRouting, IpuLinkRouting, SyncType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from partitions.vipu.server.occupancy import Occupancy
    from partitions.vipu.topology import Ipu, IpuId
    from partitions.vipu.types import CreateRequest

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


_MOST_REASONS: Final = 2
_GS2: Final = {SyncType.UNDEFINED, SyncType.GS2_DEFAULT}
_RING: Final = IpuLinkRouting.RINGSWNC
# What no partition can have, and why; the first that applies is said. What the published interface
# only names is refused: to carry it out would be a guess at how the IPUs are joined. Loop links,
# which depend on the cluster, are for `choose_ipus`.
_RULES: Final[tuple[tuple[Callable[[CreateRequest], bool], str], ...]] = (
    (
        lambda request: request.routing is IpuLinkRouting.BTNC,
        (
            "ipulink_routing_type BTNC is not supported: no rule is published for its IPUs; use "
            "DNC or SWNC, or leave it out"
        ),
    ),
    (
        lambda request: request.routing is _RING and request.size < MAX_PARTITION_SIZE,
        (
            "ipulink_routing_type RINGSWNC needs the loop links of a whole IPU-Link domain, "
            f"{MAX_PARTITION_SIZE} IPUs, not {{0.size}}; use SWNC, or leave it out"
        ),
    ),
    (
        lambda request: request.gateway_routing is not GatewayRouting.UNDEFINED,
        (
            "gw_routing_type {0.gateway_routing}: a partition in one IPU-Link domain has no "
            "gateway links; leave it out"
        ),
    ),
    (
        lambda request: request.sync_type is SyncType.GS2_INDEPENDENT_RAILS,
        "sync_type {0.sync_type} is not supported; use GS2_DEFAULT, or leave it out",
    ),
    (
        lambda request: request.reconfigurable and request.sync_type not in _GS2,
        (
            "sync_type {0.sync_type}: a reconfigurable partition has GS2_DEFAULT; leave one of "
            "the two out"
        ),
    ),
    (
        lambda request: request.sync_type not in _GS2,
        (
            "sync_type {0.sync_type} is not supported: no rule is published for its sync groups; "
            "use GS2_DEFAULT, or leave it out"
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class CompleteRequest:
    """A request with a default for everything left out."""

    num_gcds: int
    num_replicas: int
    sync_type: SyncType


def complete_request(request: CreateRequest) -> CompleteRequest:
    """Judge a request on its own; raises InvalidRequest with what to write instead."""
    if not NAME.fullmatch(request.id):
        raise InvalidRequest(
            f"partition id {quoted(request.id)}: write 1 to 63 letters, digits, '.', '_' and '-', "
            "with a letter or digit first and last"
        )
    if problem := size_problem(request.size):
        raise InvalidRequest(f"partition {request.id}: size: {problem}")
    if request.num_ipulink_segments > 1:
        raise InvalidRequest(
            f"partition {request.id}: num_ipulink_segments {request.num_ipulink_segments}: "
            f"a partition lies in one IPU-Link domain, at most {MAX_PARTITION_SIZE} IPUs; leave it "
            "out"
        )
    for breaks, sentence in _RULES:
        if breaks(request):
            raise InvalidRequest(f"partition {request.id}: {sentence.format(request)}")
    return CompleteRequest(*_shares(request), SyncType.GS2_DEFAULT)


def routing_of(request: CreateRequest, *, has_loops: bool) -> IpuLinkRouting:
    """The routing of a partition in a cluster with or without loop links."""
    if request.routing is not IpuLinkRouting.UNDEFINED:
        return request.routing
    if request.size < MAX_PARTITION_SIZE:
        return IpuLinkRouting.DNC
    # Only a whole domain has its loop links to itself.
    return IpuLinkRouting.RINGSWNC if has_loops else IpuLinkRouting.SWNC


def choose_ipus(
    request: CreateRequest, occupancy: Occupancy, meshes: Collection[str] = ()
) -> tuple[IpuId, ...]:
    """The IPUs for the request, in the order of their routing ids.

    `meshes` are the clusters without loop links. Raises InvalidRequest for a cluster, allocation
    or IPU that does not exist or lacks these links, NoCapacity when nothing fits now.
    """
    _check_place(request, occupancy.topology)
    unfit = _unfit_clusters(request, occupancy.topology, meshes)
    if request.ipus:
        return _explicit_ipus(request, occupancy)
    blocks = occupancy.free_blocks(cluster=request.cluster_id, allocation=request.allocation_id)
    found = best_fit((block for block in blocks if block.cluster not in unfit), request.size)
    if found is None:
        raise NoCapacity(_shortage(request, occupancy))
    return found


def _shares(request: CreateRequest) -> tuple[int, int]:
    gcds = request.num_gcds or 1
    if request.size % gcds:
        raise InvalidRequest(
            f"partition {request.id}: num_gcds {gcds} does not divide its {request.size} IPUs; "
            f"use a power of two of at most {request.size}"
        )
    replicas = request.num_replicas or gcds
    if replicas % gcds or replicas > request.size:
        raise InvalidRequest(
            f"partition {request.id}: num_replicas {replicas}: use a multiple of its {gcds} GCDs, "
            f"at most one for each of its {request.size} IPUs"
        )
    return gcds, replicas


def _unfit_clusters(
    request: CreateRequest, topology: Topology, meshes: Collection[str]
) -> Collection[str]:
    """The clusters whose links the request cannot be routed over; raises InvalidRequest if that
    is true of all that it may be in."""
    if request.routing is not IpuLinkRouting.RINGSWNC or not meshes:
        return ()
    where = topology.allocations.get(request.allocation_id) or request.cluster_id
    if where in meshes if where else topology.clusters <= set(meshes):
        raise InvalidRequest(
            f"partition {request.id}: ipulink_routing_type RINGSWNC needs loop links, which "
            f"{'cluster ' + where if where else 'no cluster'} {'does not have' if where else 'has'}"
            "; use SWNC, or a cluster with topology torus"
        )
    return meshes


def _check_place(request: CreateRequest, topology: Topology) -> None:
    """Check that cluster and allocation exist, and that the allocation is in the cluster."""
    allocations = topology.allocations
    clusters = sorted(topology.clusters)
    if request.cluster_id and request.cluster_id not in clusters:
        raise InvalidRequest(
            f"cluster_id: cluster {quoted(request.cluster_id)} does not exist; {_one_of(clusters)}"
        )
    if request.allocation_id and request.allocation_id not in allocations:
        raise InvalidRequest(
            f"allocation_id: allocation {quoted(request.allocation_id)} does not exist; "
            f"{_one_of(sorted(filter(None, allocations)))}"
        )
    if request.cluster_id and request.allocation_id:
        where = allocations[request.allocation_id]
        if where != request.cluster_id:
            raise InvalidRequest(
                f"cluster_id: allocation {request.allocation_id!r} is in cluster {where!r}, "
                f"not in {request.cluster_id!r}; use {where!r}, or leave it out"
            )


def _one_of(known: Sequence[str]) -> str:
    few = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
    return f"use {few}" if known else "there is none yet: see an administrator"


def _explicit_ipus(request: CreateRequest, occupancy: Occupancy) -> tuple[IpuId, ...]:
    if not request.cluster_id:
        raise InvalidRequest(
            f"partition {request.id}: ipus need a cluster_id: name the cluster they are in"
        )
    if len(request.ipus) != request.size:
        raise InvalidRequest(
            f"partition {request.id}: size {request.size}, but {len(request.ipus)} ipus; leave the "
            "size out, or name as many"
        )
    topology = occupancy.topology
    for ipu in request.ipus:
        if not _is_reachable(topology.by_id.get(ipu), request):
            raise InvalidRequest(
                f"partition {request.id}: ipus: there is no IPU {ipu.position} in IPU-Link domain "
                f"{ipu.domain} of cluster {request.cluster_id}; use the topology ids in vipu list "
                "ipu-attrs"
            )
    if not is_buddy_block(topology, request.ipus):
        raise InvalidRequest(
            f"partition {request.id}: ipus must be {request.size} neighbours in one IPU-Link "
            f"domain and one allocation, the first at a multiple of {request.size}"
        )
    holders = {occupancy.holder(ipu) for ipu in request.ipus}
    if taken := sorted(holder for holder in holders if holder is not None):
        raise NoCapacity(
            f"partition {request.id}: ipus: they are held by {', '.join(taken)}; name others, or "
            "leave ipus out"
        )
    for ipu in request.ipus:
        if cause := occupancy.why_closed(ipu):
            raise NoCapacity(
                f"partition {request.id}: ipus: {cause}; name others, or leave ipus out"
            )
    return request.ipus


def _is_reachable(ipu: Ipu | None, request: CreateRequest) -> bool:
    return (
        ipu is not None
        and request.cluster_id in ("", ipu.cluster)
        and request.allocation_id in ("", ipu.allocation)
    )


def _shortage(request: CreateRequest, occupancy: Occupancy) -> str:
    """Return why no block of that size is free, and what to do about it."""
    where = {"cluster": request.cluster_id, "allocation": request.allocation_id}
    sizes = [block.size for block in occupancy.free_blocks(**where)]
    usable = [ipu for ipu in occupancy.topology.only(**where).ipus if ipu.allocation]
    largest = max(sizes, default=0)
    return (
        f"size: partition {request.id} needs {request.size} IPUs in one block; "
        f"{sum(sizes)} of {len(usable)} are free, the largest free block has {largest}; "
        f"{_remedy(request.size, largest, largest_block(Topology(tuple(usable))))}"
        f"{_closed(usable, occupancy)}"
    )


def _remedy(size: int, largest: int, ever: int) -> str:
    if size > ever:
        reason = "no block has so many, even if all were free"
        return f"use at most {ever}: {reason}" if ever else f"see an administrator: {reason}"
    return f"use at most {largest}, or wait" if 0 < largest < size else "wait"


def _closed(ipus: Sequence[Ipu], occupancy: Occupancy) -> str:
    """Return how many of these IPUs get no partition, and why."""
    counts = Counter(reason for ipu in ipus if (reason := occupancy.why_closed(ipu.id)))
    few = [f"{number} closed: {reason}" for reason, number in counts.most_common(_MOST_REASONS)]
    more = [f"{len(counts) - len(few)} more reasons"] if len(counts) > len(few) else []
    return "".join(f". {each}" for each in (*few, *more))
