"""io: the queue of requests that wait for a partition, in this process's memory.

Also reservation: small partitions could take each free block before a large one fits. Once the
oldest request has waited for a set time, newer requests are kept off ONE V-IPU controller: the
controller that needs the fewest IPUs of our own partitions freed. A newer request that delays
nothing there still proceeds, and so does everything on the other controllers.

The oldest request is served in the end: what must be freed on the chosen controller never grows,
and another controller is chosen only if less must be freed there. So the number falls each time one
of those partitions ends.

Also how long partitions take to become ACTIVE, measured, to poll at the right time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

from ipuhub.partition import Phase, Reason
from partitions.proxy.drift import scope_of_settings
from partitions.proxy.lifecycle import Shortage
from partitions.proxy.shortage import explain_shortage
from partitions.vipu.topology import block_with_fewest, free_blocks, place

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.lifecycle import Holder, TrackerEntry
    from partitions.proxy.tracker import Draft
    from partitions.vipu.topology import Block, IpuId, Topology


@dataclass(frozen=True, slots=True)
class Waiter:
    """A request for `size` IPUs that waits since `since` (aware UTC), last sent at `asked_at`."""

    holder: Holder
    size: int
    since: datetime
    asked_at: datetime


@dataclass(frozen=True)
class Room:
    """One controller: its IPUs, those that partitions of ours hold or are about to, and those that
    others hold, without end as far as we know. `refused_from` (0: none): the smallest size that the
    controller has no room for, whatever we see."""

    address: str
    topology: Topology
    ours: frozenset[IpuId]
    others: frozenset[IpuId]
    refused_from: int = 0

    @cached_property
    def _blocks(self) -> tuple[Block, ...]:
        """Return the blocks left beside the partitions of others; computed once for all sizes."""
        return free_blocks(self.topology, self.others)

    def in_the_way(self, size: int) -> int | None:
        """Return how many of our IPUs must be freed for `size`, at least; None: it never fits."""
        found = self.best_block(size)
        return None if found is None else found[0]

    def best_block(self, size: int) -> tuple[int, Block] | None:
        """The block of `size` with the fewest IPUs of ours in it, and how many; None: as above."""
        found = block_with_fewest(self._blocks, self.ours, size)
        # Room that looks free but is refused is not reserved: the reservation would never end.
        is_refused = found is not None and found[0] == 0 and 0 < self.refused_from <= size
        return None if is_refused else found

    def with_another(self, size: int) -> Room | None:
        """Return the room once a partition of `size` is made; None: it does not fit now."""
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
        """Return whether a partition of `size` may be made there all the same: it delays
        nothing."""
        after = self.room.with_another(size)
        if after is None:
            return False
        before, then = self.room.in_the_way(self.waiter.size), after.in_the_way(self.waiter.size)
        return before is not None and then is not None and then <= before


def room_of(view: ControllerView, entries: Iterable[TrackerEntry]) -> Room | None:
    """Return a controller's room by its answer and the tracker's `entries`. None: neither it nor
    its last creations were answered, or no node reaches it."""
    topology = view.reach
    if topology is None or not view.has_node or not view.creates:
        return None
    live = [e for e in entries if e.controller == view.spec.address]
    ids = {entry.id for entry in live if entry.phase is not Phase.RELEASED}
    ours = {ipu for partition in view.partitions if partition.id in ids for ipu in partition.ipus}
    refused = view.refused_from if topology.is_guess else 0
    fixed = (view.used - ours).union(view.closed)
    room = Room(view.spec.address, topology, frozenset(ours), frozenset(fixed), refused)
    listed = {partition.id for partition in view.partitions}
    for entry in live:
        if entry.is_coming and entry.id not in listed:
            room = room.with_another(entry.size) or room
    return room


def sizes_left(blocks: Iterable[int], reserved: Iterable[int]) -> Counter[int]:
    """Return how many free blocks of each size are left once partitions of these sizes are made.

    At most so many: best fit splits no larger block than needed, so that no other placement leaves
    more room for any size. A partition that finds no block is refused and takes none. The smallest
    go first: a larger partition that is refused for their sake leaves room that it would have had.
    """
    free = Counter(blocks)
    for size in sorted(reserved):
        block = min((block for block, count in free.items() if count and block >= size), default=0)
        if not block:
            break
        free[block] -= 1
        while block > size:
            block //= 2
            free[block] += 1
    return free


def has_block_left(view: ControllerView, size: int, coming: Iterable[TrackerEntry]) -> bool:
    """Return whether a partition of `size` fits beside those that are `coming` on the controller.

    Its list does not show them yet. Entries that may fail or get other IPUs do not count: entries
    without an answer, or requested in another cluster or allocation.
    """
    scope = scope_of_settings(view.spec.settings)
    reserved = [
        entry.size
        for entry in coming
        if (entry.controller, entry.scope, entry.reason) == (view.spec.address, scope, "")
        and entry.id not in view.by_id
    ]
    if not reserved:
        return True  # it is a candidate
    if view.topology is not None and view.topology.is_guess:
        # Only the number is certain: a larger partition may find its IPUs free, and not in a block.
        return view.free - sum(other for other in reserved if other <= size) >= size
    free = sizes_left((block.size for block in view.free_blocks), reserved)
    return any(count for block, count in free.items() if block >= size)


def keep_room(
    waiters: Collection[Waiter], rooms: Sequence[Room], now: datetime, after_seconds: float
) -> Kept | None:
    """The request for which a controller is reserved, if any: the first that has waited long enough
    and would fit on a controller without our partitions."""
    long_ago = now - timedelta(seconds=after_seconds)
    for waiter in in_turn(waiters):
        if waiter.since > long_ago:
            return None
        costs = [(room.in_the_way(waiter.size), room) for room in rooms]
        fitting = [(cost, room) for cost, room in costs if cost is not None]
        if fitting:
            return Kept(waiter, min(fitting, key=lambda fit: fit[0])[1])
    return None


def in_turn(waiters: Collection[Waiter]) -> list[Waiter]:
    """Those who wait, oldest first."""
    return sorted(waiters, key=lambda waiter: (waiter.since, waiter.holder))


_LOOK = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """After how many seconds of waiting a controller is kept for a request (0: never), and when a
    request that is not made again is forgotten: operators ask at least every half minute."""

    reserve_after_seconds: float = 0.0
    forget_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Offer:
    """The controllers' answers, and the controllers with room, in the order to try them."""

    views: Sequence[ControllerView]
    candidates: Sequence[ControllerView]


class WaitingQueue:
    """The requests that wait, and since when.

    A new leader begins with an empty queue: waiting jobs ask again, and their time starts then.
    """

    def __init__(self, options: QueueOptions) -> None:
        self._options = options
        self._waiters: dict[Holder, Waiter] = {}
        self._held_back: set[Holder] = set()
        self._look_at = datetime.min.replace(tzinfo=UTC)

    @property
    def reserve_after_seconds(self) -> float:
        """After how many seconds of waiting a controller is kept for a request; 0: never."""
        return self._options.reserve_after_seconds

    def note(self, holder: Holder, size: int, now: datetime) -> None:
        """Record that a request has to wait; a request for another size starts a new wait."""
        known = self._waiters.get(holder)
        if known is None or known.size != size:
            known = Waiter(holder, size, now, now)
        self._waiters[holder] = replace(known, asked_at=now)
        self._held_back.discard(holder)
        self._expire(now)

    def forget(self, holder: Holder) -> None:
        """Remove a request from the queue."""
        self._waiters.pop(holder, None)
        self._held_back.discard(holder)

    def held_back(self, now: datetime) -> int:
        """Return how many requests would fit, but are held back for an older request."""
        self._expire(now)
        return len(self._held_back)

    def in_turn(self, now: datetime) -> list[tuple[Waiter, bool]]:
        """Return the waiting requests, oldest first, each with whether only an older request holds
        it back."""
        self._expire(now)
        return [
            (waiter, waiter.holder in self._held_back) for waiter in in_turn(self._waiters.values())
        ]

    def open_to(
        self, holder: Holder, size: int, offer: Offer, draft: Draft, now: datetime
    ) -> tuple[Sequence[ControllerView], Shortage | None]:
        """Return the candidates that may serve this request; if there are none, why."""
        self._held_back.discard(holder)
        coming = list(draft.coming())
        roomy = [view for view in offer.candidates if has_block_left(view, size, coming)]
        if not roomy:
            self.note(holder, size, now)
            return (), explain_shortage(offer.views, size)
        if not self._options.reserve_after_seconds:
            return roomy, None
        self._expire(now)
        waiters = [
            waiter
            for waiter in self._waiters.values()
            if waiter.holder == holder or not _has_one(draft, waiter.holder)
        ]
        entries = list(draft.entries())
        rooms = [room for view in offer.views if (room := room_of(view, entries)) is not None]
        reserved = keep_room(waiters, rooms, now, self._options.reserve_after_seconds)
        if reserved is None or reserved.waiter.holder == holder:
            return roomy, None
        targets = [
            view
            for view in roomy
            if view.spec.address != reserved.room.address or reserved.is_open_to(size)
        ]
        if targets:
            return targets, None
        self.note(holder, size, now)
        self._held_back.add(holder)
        free = sum(view.free for view in offer.views if view.has_node)
        # Without the job's name: this user may not have access to its namespace.
        sentence = f"held back for an older job that needs {reserved.waiter.size} IPUs"
        return (), Shortage(Reason.NO_CAPACITY, sentence, free)

    def _expire(self, now: datetime) -> None:
        if now < self._look_at:
            return
        self._look_at = now + _LOOK  # not at each of thousands of calls
        limit = now - timedelta(seconds=self._options.forget_seconds)
        for gone in [waiter.holder for waiter in self._waiters.values() if waiter.asked_at < limit]:
            self.forget(gone)


def _has_one(draft: Draft, holder: Holder) -> bool:
    entry = draft.newest(holder)
    return entry is not None and entry.phase is not Phase.RELEASED


_SHORTER: Final = 0.9
_FIRST_SECONDS: Final = 0.05


class Readiness:
    """Knowledge of the time that controllers take to create and to reset partitions.

    Looking too early costs controller and proxy a call, too late costs a job the time: the next
    first look comes a little earlier after each look that was in time, and later after a look too
    early.
    """

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, bool], float] = {}

    def first_look_seconds(self, controller: str, *, is_reset: bool) -> float:
        """Return the seconds from the controller's acceptance to the first look.

        0: at once, since nothing is known yet.
        """
        return self._seconds.get((controller, is_reset), 0.0)

    def learn(self, controller: str, seconds: float, looks: int, *, is_reset: bool) -> None:
        """A partition was found ACTIVE at look number `looks`, so long after its acceptance.

        A single partition that took very long does not make all that follow wait as long.
        """
        known = self.first_look_seconds(controller, is_reset=is_reset)
        slower = min(seconds, 2 * known + _FIRST_SECONDS)
        self._seconds[controller, is_reset] = slower if looks > 1 else known * _SHORTER
