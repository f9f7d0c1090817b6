"""domain: the Events that wait for PostgreSQL or for the record of their job."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from ipuhub.backoff import exponential

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from jobs.history.eventrows import EventRow

MOST: Final = 5_000
_PATIENCE_SECONDS: Final = 60.0
_FIRST_PAUSE_SECONDS: Final = 1.0


@dataclass(slots=True)
class _Unknown:
    """An Event whose job had no record at `since`."""

    row: EventRow
    since: datetime
    tries: int = 1

    def is_due(self, now: datetime) -> bool:
        """Pauses double: pods of other owners may have such names, too, and many Events."""
        pause = exponential(self.tries - 1, base=_FIRST_PAUSE_SECONDS, maximum=_PATIENCE_SECONDS)
        return self.is_over(now) or (now - self.since).total_seconds() >= pause

    def is_over(self, now: datetime) -> bool:
        return (now - self.since).total_seconds() >= _PATIENCE_SECONDS


class Backlog:
    """Events by UID, each in its newest state: new Events, and Events whose job has no record yet.

    No new Event is dropped: adders wait for `has_room`. An Event whose job stays without a record
    for a minute is dropped.
    """

    def __init__(self) -> None:
        self._new: dict[str, EventRow] = {}
        self._unknown: dict[str, _Unknown] = {}

    def __len__(self) -> int:
        return len(self._new) + len(self._unknown)

    def has_room(self, uid: str) -> bool:
        """Return whether this Event may be put: an update of a waiting Event always may."""
        return uid in self._new or uid in self._unknown or len(self._new) < MOST

    def put(self, row: EventRow) -> None:
        """Add an Event, or its newer state."""
        unknown = self._unknown.get(row.uid)
        known = unknown.row if unknown else self._new.get(row.uid)
        if known is not None and not row.is_newer_than(known):
            return
        if unknown:
            unknown.row = row
        else:
            self._new[row.uid] = row

    def due(self, now: datetime, most: int) -> list[EventRow]:
        """Return what to store now; it stays in the backlog until it is settled."""
        unknown = (each.row for each in self._unknown.values() if each.is_due(now))
        return [*islice(self._new.values(), most), *islice(unknown, most)]

    def settle(self, tried: Iterable[EventRow], unknown: Collection[str], now: datetime) -> int:
        """Remove stored Events; `unknown` are the UIDs whose job has no record.

        Return how many Events were dropped, the longest waiting first, because too many wait for
        their job's record.
        """
        for row in tried:
            if row.uid in self._unknown:
                self._settle_again(row, now, is_unknown=row.uid in unknown)
                continue
            if self._new[row.uid] is row:
                del self._new[row.uid]
                if row.uid in unknown:
                    self._unknown[row.uid] = _Unknown(row, now)
        dropped = [*islice(self._unknown, max(0, len(self._unknown) - MOST))]
        for uid in dropped:
            del self._unknown[uid]
        return len(dropped)

    def _settle_again(self, row: EventRow, now: datetime, *, is_unknown: bool) -> None:
        waiting = self._unknown[row.uid]
        waiting.tries += 1
        if is_unknown and not waiting.is_over(now):
            return
        del self._unknown[row.uid]
        if not is_unknown and waiting.row is not row:  # updated while it was stored
            self._new[row.uid] = waiting.row
