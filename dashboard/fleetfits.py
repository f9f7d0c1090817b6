"""domain: from the fleet map: which sizes fit, where and when, and how fragmented free IPUs are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dashboard.fleetqueue import current_fits, free_by, in_the_way, silent_of
from partitions.vipu.topology import PARTITION_SIZES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from dashboard.fleetqueue import Holding
    from partitions.fleetjson import BlockJson, ControllerJson, FitJson, FleetJson, PlaceJson

FIT_KINDS: Final = ("now", "later", "shut", "never", "unknown")
_WHOLE: Final = 100


@dataclass(frozen=True, slots=True)
class Place:
    """A place where a partition fits: `count` of them on the controller, and the machines of the
    block that the next partition gets (empty: they have no names)."""

    controller: str
    count: int
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SizeFit:
    """A size. `kind`: now, later (`blockers` as (name, UID) hold the block that comes free first,
    `free_by` as in the queue, `others`: a holder that the reader may not see is among them), shut
    (no block can come free), never (no block of the fleet is so large) or unknown (a controller
    that does not answer may have the block)."""

    size: int
    count: int
    kind: str
    places: tuple[Place, ...] = ()
    blockers: tuple[tuple[str, str], ...] = ()
    others: bool = False
    free_by: datetime | None = None


@dataclass(frozen=True, slots=True)
class Fragments:
    """The free IPUs of a controller: `blocks` as (size, how many), the largest first; `largest`:
    the largest block that a job gets; `possible`: the block that so many IPUs could form."""

    controller: str
    free: int
    largest: int
    possible: int
    blocks: tuple[tuple[int, int], ...]

    @property
    def percent(self) -> int:
        """Return by how many per cent the largest block is smaller than possible."""
        return round(_WHOLE * (1 - self.largest / self.possible)) if self.possible else 0


def size_fits(fleet: FleetJson, holdings: Mapping[tuple[str, str], Holding]) -> tuple[SizeFit, ...]:
    """Return all possible partition sizes and their availability from `/v1/fleet`."""
    fits, silent = {each["size"]: each for each in current_fits(fleet)}, silent_of(fleet)
    if not fits:
        return ()
    controllers = {each["address"]: each for each in fleet.get("controllers") or ()}
    return tuple(
        _size_fit(fits[size], controllers, holdings, silent)
        if size in fits
        else SizeFit(size, 0, "unknown" if silent else "never")
        for size in PARTITION_SIZES
    )


def _size_fit(
    fit: FitJson,
    controllers: Mapping[str, ControllerJson],
    holdings: Mapping[tuple[str, str], Holding],
    silent: Collection[str],
) -> SizeFit:
    size, count = fit["size"], fit["count"]
    if count:
        places = tuple(_places(fit.get("places") or (), controllers))
        return SizeFit(size, count, "now", places)
    block = fit.get("block")
    if block is None or block["controller"] in silent:
        return SizeFit(size, 0, "unknown" if silent else "shut")
    found = in_the_way(fit, holdings)
    named = {each.job.uid: each.job.name for each in found if each is not None and each.job}
    place = Place(block["controller"], 0, _machines(controllers.get(block["controller"]), block))
    return SizeFit(
        size,
        0,
        "later",
        (place,),
        tuple((name, uid) for uid, name in named.items()),
        others=any(each is None or each.job is None for each in found),
        free_by=free_by(found),
    )


def _places(
    places: Sequence[PlaceJson], controllers: Mapping[str, ControllerJson]
) -> Iterator[Place]:
    for each in places:
        address = each["controller"]
        machines = _machines(controllers.get(address), each) if "start" in each else ()
        yield Place(address, each["count"], machines)


def _machines(controller: ControllerJson | None, block: BlockJson | PlaceJson) -> tuple[str, ...]:
    """The names of the machines of a block, in IPU-Link order; none where places are guessed."""
    if controller is None or not controller["placesKnown"]:
        return ()
    wanted = range(block["start"], block["start"] + block["size"])
    return tuple(
        machine["agent"]
        for machine in controller["machines"]
        if (machine["cluster"], machine["domain"]) == (block["cluster"], block["domain"])
        and machine["agent"]
        and any(ipu["position"] in wanted for ipu in machine["ipus"])
    )


def fragments_of(fleet: FleetJson) -> tuple[Fragments, ...]:
    """Return the fragmentation of free IPUs on each controller that answers and that jobs can
    reach."""
    silent = silent_of(fleet)
    return tuple(
        found
        for controller in fleet.get("controllers") or ()
        if controller["hasNode"] and controller["address"] not in silent
        if (found := _fragments(controller, fleet)) is not None
    )


def _fragments(controller: ControllerJson, fleet: FleetJson) -> Fragments | None:
    blocks_by_size = controller.get("freeBlocks")
    if blocks_by_size is None or not controller["machines"]:
        return None
    blocks = tuple((each["size"], each["count"]) for each in blocks_by_size)
    free = sum(size * count for size, count in blocks)
    address = controller["address"]
    fitting = [
        fit["size"]
        for fit in fleet.get("fits") or ()
        if any(place["controller"] == address for place in fit.get("places") or ())
    ]
    most = min(free, controller["largestBlock"])
    possible = max((size for size in PARTITION_SIZES if size <= most), default=0)
    return Fragments(address, free, max(fitting, default=0), possible, blocks)
