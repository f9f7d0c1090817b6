"""domain: whose turn it is when a large partition waits and small ones would take each free block.

Once the oldest of those who wait has waited for so long, newer requests are held back from ONE
V-IPU controller: that on which the fewest IPUs of our own partitions are in its way. Whatever
would not put more in its way goes on there, and everything on all others.

It is served in the end: what is in its way on the chosen controller never grows, and another one
is chosen only where less is in the way, so that the number falls each time one of those ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from partitions.proxy.lifecycle import Phase
from partitions.vipu.allocator import fewest_in_the_way, place

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.tracker import Holder, TrackerEntry
    from partitions.vipu.topology import IpuId, Topology

_COMING = frozenset({Phase.RESERVING, Phase.CREATING})


@dataclass(frozen=True, slots=True)
class Waiter:
    """Who waits for `size` IPUs since `since` (aware UTC), and asked last at `asked_at`."""

    holder: Holder
    size: int
    since: datetime
    asked_at: datetime


@dataclass(frozen=True, slots=True)
class Room:
    """One controller: its IPUs, those that partitions of ours hold or are about to, and those that
    others hold, for ever as far as we know. `refused_from` (0: none): the smallest size that the
    controller has no room for, whatever we see."""

    address: str
    topology: Topology
    ours: frozenset[IpuId]
    others: frozenset[IpuId]
    refused_from: int = 0

    def in_the_way(self, size: int) -> int | None:
        """How many IPUs of ours must come free for `size`, at least; None: it never fits."""
        fewest = fewest_in_the_way(self.topology, self.ours, self.others, size)
        # Room that looks free and is refused is not kept from anybody: it would be for ever.
        return None if fewest == 0 and 0 < self.refused_from <= size else fewest

    def with_another(self, size: int) -> Room | None:
        """The room once a partition of `size` is made; None: there is no place for it now."""
        ipus = place(self.topology, self.ours | self.others, size)
        if ipus is None:
            return None
        return replace(self, ours=self.ours | set(ipus))


@dataclass(frozen=True, slots=True)
class Kept:
    """The controller that is kept for a waiter."""

    waiter: Waiter
    room: Room

    def is_open_to(self, size: int) -> bool:
        """Whether a partition of `size` may be made there all the same: it delays nothing."""
        after = self.room.with_another(size)
        if after is None:
            return False
        before, then = self.room.in_the_way(self.waiter.size), after.in_the_way(self.waiter.size)
        return before is not None and then is not None and then <= before


def room_of(view: ControllerView, entries: Iterable[TrackerEntry]) -> Room | None:
    """What a controller's answer and the tracker's `entries` say of it; None: it did not answer,
    or no node reaches it."""
    topology = view.reach
    if topology is None or not view.has_node:
        return None
    live = [e for e in entries if e.controller == view.spec.address]
    ids = {entry.id for entry in live if entry.phase is not Phase.RELEASED}
    ours = {ipu for one in view.partitions if one.id in ids for ipu in one.ipus}
    refused = view.refused_from if topology.is_guess else 0
    room = Room(view.spec.address, topology, frozenset(ours), frozenset(view.used - ours), refused)
    listed = {one.id for one in view.partitions}
    for entry in live:
        if entry.phase in _COMING and entry.id not in listed:
            room = room.with_another(entry.size) or room
    return room


def keep_room(
    waiters: Collection[Waiter], rooms: Sequence[Room], now: datetime, after_seconds: float
) -> Kept | None:
    """For whom which controller is kept, if for anybody: the first who has waited for so long and
    fits somewhere, were everything of ours gone."""
    long_ago = now - timedelta(seconds=after_seconds)
    for waiter in in_turn(waiters):
        if waiter.since > long_ago:
            return None
        costs = [(room.in_the_way(waiter.size), room) for room in rooms]
        fitting = [(cost, room) for cost, room in costs if cost is not None]
        if fitting:
            return Kept(waiter, min(fitting, key=lambda one: one[0])[1])
    return None


def in_turn(waiters: Collection[Waiter]) -> list[Waiter]:
    """Those who wait, oldest first."""
    return sorted(waiters, key=lambda one: (one.since, one.holder))
