"""domain: `/v1/fleet`: the place of each IPU, the job that holds it, and the queue for blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from ipuhub.partition import Phase, format_time
from partitions.proxy.capacity import stats
from partitions.proxy.queue import room_of
from partitions.proxy.shortage import never_fits, out_of_service
from partitions.vipu.topology import PARTITION_SIZES
from partitions.vipu.types import OperationState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from partitions.fleetjson import (
        ControllerJson,
        FitJson,
        FleetJson,
        FreeBlockJson,
        HardwareJson,
        HolderJson,
        IpuJson,
        MachineJson,
        PlaceJson,
        WaiterJson,
        WantedJson,
    )
    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.proxy.queue import Room, Waiter
    from partitions.vipu.topology import Block, Hardware, Ipu, IpuId

_MACHINE_IPUS = 4  # of an IPU-M2000, where the controller does not name the agents


@dataclass(frozen=True, slots=True)
class _Target:
    """The block that comes free first by the number of IPUs: the fewest IPUs in the way."""

    in_the_way: int
    room: Room
    block: Block


def fleet_to_json(
    views: Sequence[ControllerView],
    entries: Collection[TrackerEntry],
    waiting: Sequence[tuple[Waiter, bool]],
    removals: Collection[tuple[str, str]] = (),
    *,
    reserve_after_seconds: float = 0.0,
) -> FleetJson:
    """The fleet from one snapshot, so that all numbers are consistent.

    `controllers` in the order of the list, each with its partitions, partitions in `removals` (by
    controller and id) with the state REMOVING, its IPU-Machines in IPU-Link order (`hardware`:
    their components as reported by the controller), and in `unansweredOrders` the writes without an
    answer; `fits`: how many partitions of each size fit now and where, up to the largest that ever
    could; `queue`: waiting jobs in order of service (`waiting`: and whether an older job blocks
    each); `outOfService`: which IPUs get no new partition, in a sentence; `reserveAfterSeconds`:
    after how long a wait newer jobs are kept off one controller (0: never); `stats` as `/stats` has
    them.
    """
    live = [entry for entry in entries if entry.phase is not Phase.RELEASED]
    served = {entry.holder for entry in live}
    waiters = [(waiter, held) for waiter, held in waiting if waiter.holder not in served]
    rooms = [room for view in views if (room := room_of(view, live)) is not None]
    return {
        "controllers": [_controller(view, live, removals) for view in views],
        "fits": _fits(views, rooms),
        "queue": _queue(views, rooms, waiters),
        "outOfService": out_of_service(views),
        "reserveAfterSeconds": reserve_after_seconds,
        "stats": stats(entries, views),
    }


def _controller(
    view: ControllerView, live: Iterable[TrackerEntry], removals: Collection[tuple[str, str]]
) -> ControllerJson:
    key, _, value = view.spec.label.partition("=")
    jobs = {entry.id: entry for entry in live if entry.controller == view.spec.address}
    return {
        "address": view.spec.address,
        "nodeSelector": {key: value},
        "reachable": view.is_reachable and not view.age_seconds,
        "message": view.problem,
        "version": view.version,
        "unansweredOrders": view.circuit.held_orders,
        "ageSeconds": round(view.age_seconds),
        "hasNode": view.has_node,
        "placesKnown": view.topology is not None and not view.topology.is_guess,
        "largestBlock": view.largest_block,
        "freeBlocks": _free_blocks(view),
        "machines": list(_machines(view)),
        "partitions": [
            {
                "id": partition.id,
                "size": partition.size,
                "state": (
                    OperationState.REMOVING.value
                    if (view.spec.address, partition.id) in removals
                    else partition.ready_state.value
                ),
                "job": _job(jobs.get(partition.id)),
            }
            for partition in view.partitions
        ],
    }


def _free_blocks(view: ControllerView) -> list[FreeBlockJson]:
    """The free IPUs as blocks, the largest first."""
    counts = Counter(block.size for block in view.free_blocks)
    return [{"size": size, "count": count} for size, count in sorted(counts.items(), reverse=True)]


def _job(entry: TrackerEntry | None) -> HolderJson | None:
    """The job that holds a partition; None: it was made by hand."""
    if entry is None:
        return None
    return {
        "uid": entry.uid,
        "namespace": entry.namespace,
        "name": entry.name,
        "instance": entry.instance,
        "phase": entry.phase.value,
        "since": format_time(entry.reserved_at),
    }


def _machines(view: ControllerView) -> Iterable[MachineJson]:
    if view.topology is None or view.reach is None:
        return
    holders = {ipu: partition.id for partition in view.partitions for ipu in partition.ipus}
    ours = view.reach.by_id
    for (cluster, domain, agent, _), found in groupby(view.topology.ipus, _machine_of):
        ipus = list(found)
        lost, hardware = ipus[0].lost, ipus[0].hardware
        machine: MachineJson = {
            "agent": agent,
            "cluster": cluster,
            "domain": domain,
            "ipus": [_ipu(ipu, hardware, holders, ours) for ipu in ipus],
        }
        if lost:
            machine["lost"] = lost
        if made_of := _made_of(hardware):
            machine["hardware"] = made_of
        yield machine


def _made_of(hardware: Hardware) -> HardwareJson:
    board_type, board_serial, clock, firmware, software = hardware
    found: HardwareJson = {}
    if board_type:
        found["boardType"] = board_type
    if board_serial:
        found["boardSerial"] = board_serial
    if clock:
        found["clock"] = clock
    if firmware:
        found["firmware"] = firmware
    if software:
        found["software"] = software
    return found


def _machine_of(ipu: Ipu) -> tuple[str, int, str, int]:
    place = 0 if ipu.agent else ipu.id.position // _MACHINE_IPUS
    return ipu.id.cluster, ipu.id.domain, ipu.agent, place


def _ipu(
    ipu: Ipu, usual: Hardware, holders: Mapping[IpuId, str], ours: Collection[IpuId]
) -> IpuJson:
    """An IPU of a machine whose IPUs have the `usual` hardware: what differs stands with it."""
    found: IpuJson = {
        "position": ipu.id.position,
        "device": ipu.index,
        "partition": holders.get(ipu.id),
    }
    if ipu.cordon:
        found["cordon"] = ipu.cordon
    if ipu.fault:
        found["fault"] = ipu.fault
    if ipu.id not in ours:
        found["outside"] = True
    if ipu.hardware != usual and (made_of := _made_of(ipu.hardware)):
        found["hardware"] = made_of
    return found


def _fits(views: Sequence[ControllerView], rooms: Sequence[Room]) -> list[FitJson]:
    """`places`: on which controllers it fits, with the block that the next partition gets there
    where that is known. Of a size that fits nowhere the block that comes free first, as in the
    queue."""
    usable = [view for view in views if view.has_node]
    largest = max((view.largest_block for view in usable), default=0)
    listed = {view.spec.address: view for view in views}
    found: list[FitJson] = []
    for size in (each for each in PARTITION_SIZES if each <= largest):
        fitting = [(view, count) for view in usable if (count := view.fitting(size))]
        fit: FitJson = {
            "size": size,
            "count": sum(count for _, count in fitting),
            "places": [_place(view, size, count) for view, count in fitting],
        }
        if not fitting:
            fit = {**fit, **_wanted(_target(rooms, size), listed, size)}
        found.append(fit)
    return found


def _place(view: ControllerView, size: int, count: int) -> PlaceJson:
    place: PlaceJson = {"controller": view.spec.address, "count": count}
    if view.topology is None or view.topology.is_guess:
        return place
    block = min(block for block in view.free_blocks if block.size >= size)  # as `place` has it
    place |= {"cluster": block.cluster, "domain": block.domain, "start": block.start, "size": size}
    return place


def _queue(
    views: Sequence[ControllerView],
    rooms: Sequence[Room],
    waiters: Sequence[tuple[Waiter, bool]],
) -> list[WaiterJson]:
    sizes = {waiter.size for waiter, _ in waiters}
    targets = {size: _target(rooms, size) for size in sizes}
    never = {size: never_fits(views, size) for size in sizes}
    listed = {view.spec.address: view for view in views}
    return [
        {
            "uid": waiter.holder[0],
            "instance": waiter.holder[1],
            "size": waiter.size,
            "since": format_time(waiter.since),
            "heldBack": held_back,
            "never": never[waiter.size],
            **_wanted(targets[waiter.size], listed, waiter.size),
        }
        for waiter, held_back in waiters
    ]


def _target(rooms: Iterable[Room], size: int) -> _Target | None:
    found = [
        _Target(fewest[0], room, fewest[1])
        for room in rooms
        if (fewest := room.best_block(size)) is not None
    ]
    return min(found, key=lambda target: target.in_the_way, default=None)


def _wanted(target: _Target | None, listed: Mapping[str, ControllerView], size: int) -> WantedJson:
    if target is None:
        return {"inTheWay": None, "block": None, "blockers": []}
    ipus = set(target.block.ipus())
    return {
        "inTheWay": target.in_the_way,
        "block": {
            "controller": target.room.address,
            "cluster": target.block.cluster,
            "domain": target.block.domain,
            "start": target.block.start,
            "size": size,
        },
        "blockers": [
            partition.id
            for partition in listed[target.room.address].partitions
            if ipus & set(partition.ipus)
        ],
    }
