"""io: who waits for a partition, as this process remembers it, and whom that holds back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from partitions.proxy.controllers import Shortage
from partitions.proxy.lifecycle import Phase, Reason
from partitions.proxy.turns import Waiter, keep_room, room_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.tracker import Draft, Holder

_LOOK = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """After how many seconds of waiting a controller is kept for a request (0: never), and when a
    request that is not made again is forgotten: operators ask at least every half minute."""

    reserve_after_seconds: float = 0.0
    forget_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Offer:
    """What the controllers said, and those of them that have room, in the order to try them."""

    views: Sequence[ControllerView]
    candidates: Sequence[ControllerView]


class WaitingList:
    """Who was told to wait, and since when. Another process that leads begins with none: what
    waits asks again, and has its time from then on."""

    def __init__(self, options: TurnOptions) -> None:
        self._options = options
        self._waiters: dict[Holder, Waiter] = {}
        self._held_back: set[Holder] = set()
        self._look_at = datetime.min.replace(tzinfo=UTC)

    def note(self, holder: Holder, size: int, now: datetime) -> None:
        """Somebody is told to wait, since he does not fit; another size begins anew."""
        known = self._waiters.get(holder)
        if known is None or known.size != size:
            known = Waiter(holder, size, now, now)
        self._waiters[holder] = replace(known, asked_at=now)
        self._held_back.discard(holder)
        self._expire(now)

    def forget(self, holder: Holder) -> None:
        """Somebody waits no more."""
        self._waiters.pop(holder, None)
        self._held_back.discard(holder)

    def held_back(self, now: datetime) -> int:
        """How many there are who would fit but for somebody older."""
        self._expire(now)
        return len(self._held_back)

    def open_to(
        self, holder: Holder, size: int, offer: Offer, draft: Draft, now: datetime
    ) -> tuple[Sequence[ControllerView], Shortage | None]:
        """The candidates that may take this request; where there is none, why not."""
        self._held_back.discard(holder)
        if not self._options.reserve_after_seconds:
            return offer.candidates, None
        self._expire(now)
        waiters = [
            one
            for one in self._waiters.values()
            if one.holder == holder or not _has_one(draft, one.holder)
        ]
        entries = list(draft.entries())
        rooms = [room for view in offer.views if (room := room_of(view, entries)) is not None]
        kept = keep_room(waiters, rooms, now, self._options.reserve_after_seconds)
        if kept is None or kept.waiter.holder == holder:
            return offer.candidates, None
        left = [
            view
            for view in offer.candidates
            if view.spec.address != kept.room.address or kept.is_open_to(size)
        ]
        if left:
            return left, None
        self.note(holder, size, now)
        self._held_back.add(holder)
        free = sum(view.free for view in offer.views if view.has_node)
        # Nothing of whom: it may be a job of a namespace that this user may not look into.
        sentence = f"held back for an older job that needs {kept.waiter.size} IPUs"
        return (), Shortage(Reason.NO_CAPACITY, sentence, free)

    def _expire(self, now: datetime) -> None:
        if now < self._look_at:
            return
        self._look_at = now + _LOOK  # not at each of thousands of calls
        limit = now - timedelta(seconds=self._options.forget_seconds)
        for gone in [one.holder for one in self._waiters.values() if one.asked_at < limit]:
            self.forget(gone)


def _has_one(draft: Draft, holder: Holder) -> bool:
    entry = draft.newest(holder)
    return entry is not None and entry.phase is not Phase.RELEASED
