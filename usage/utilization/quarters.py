"""domain: which quarters of an hour of a range are taken from sums, and which from the rows.

A sum is used where no row of its time has changed since and what is known of the controllers
reached as far then as now. What lies before `frozen` has lost rows: its sums stand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from usage.sums.parts import DEAR, HOUR, gaps_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

QUARTER: Final = timedelta(minutes=15)
MAX_STRETCHES: Final = 2  # each takes three queries
EVER: Final = datetime(9999, 1, 1, tzinfo=UTC)
Range = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Standing:
    """What is summed: the quarters of [begin, until), but for hours in `dirt` (first and last; no
    last: all up to now).

    `known_then` and `known_now`: until when controllers had been asked when it was summed, and
    are now; None: nobody ever asked.
    """

    begin: datetime = EVER
    until: datetime = EVER
    dirt: tuple[tuple[datetime, datetime | None], ...] = ()
    known_then: datetime | None = None
    known_now: datetime | None = None
    frozen: datetime | None = None

    def summed(self, begin: datetime, until: datetime) -> list[Range]:
        """Return the ranges of whole quarters in [begin, until), in order, whose sums are right."""
        begin, until = max(ceil(begin), self.begin), min(floor(until), self.until)
        frozen = min(max(begin, floor(self.frozen or begin)), until)
        stale = [(max(a, frozen), b) for a, b in self._stale() if b > frozen]
        kept = [(begin, frozen), *_without(stale, frozen, until)]
        return [each for each in _joined(kept) if each[0] < each[1]]

    def missing(self, begin: datetime, until: datetime) -> list[Range]:
        """Return the ranges of whole quarters in [begin, until) that are to be summed."""
        first = max(floor(begin), floor(self.frozen or begin))
        last = floor(until)
        return list(gaps_between(self.summed(first, last), first, last))

    def _stale(self) -> list[Range]:
        found = [(a, self.until if b is None else b + HOUR) for a, b in self.dirt]
        if self.known_then != self.known_now:
            told = min(self.known_then or EVER, self.known_now or EVER)
            found.append((floor(told), self.until))
        return found


@dataclass(frozen=True, slots=True)
class Plan:
    """A range in parts that overlap nowhere and leave nothing out.

    `sums`: begin and end of whole quarters, and the number of the step that they are in.
    `stretches`: from which to which edge rows are read, with the edges of steps between them, and
    the number of the first step.
    """

    sums: tuple[tuple[datetime, datetime, int], ...]
    stretches: tuple[tuple[tuple[datetime, ...], int], ...]

    @property
    def is_dear(self) -> bool:
        """Whether rows of more than a day or two are read."""
        return sum((edges[-1] - edges[0] for edges, _ in self.stretches), timedelta()) > DEAR


def plan(edges: Sequence[datetime], standing: Standing) -> Plan:
    """Return the parts of steps that begin at `edges`, the last of which is their end."""
    sums = [
        (max(ceil(edges[step]), begin), min(floor(edges[step + 1]), end), step)
        for begin, end in standing.summed(edges[0], edges[-1])
        for step in range(bisect_right(edges, begin) - 1, bisect_left(edges, end))
    ]
    sums = [each for each in sums if each[0] < each[1]]
    gaps = list(gaps_between([(a, b) for a, b, _ in sums], edges[0], edges[-1]))
    while len(gaps) > MAX_STRETCHES:
        holes = [after[0] - gap[1] for gap, after in pairwise(gaps)]
        n = holes.index(min(holes))
        gaps[n : n + 2] = [(gaps[n][0], gaps[n + 1][1])]
    sums = [each for each in sums if not any(a <= each[0] < b for a, b in gaps)]
    return Plan(tuple(sums), tuple(_stretch(a, b, edges) for a, b in gaps))


def floor(instant: datetime) -> datetime:
    """Return when the quarter begins in which `instant` lies."""
    return instant - (instant - datetime(2000, 1, 1, tzinfo=UTC)) % QUARTER


def ceil(instant: datetime) -> datetime:
    """Return when the first quarter begins that begins at or after `instant`."""
    return floor(instant + QUARTER - timedelta(microseconds=1))


def _stretch(
    begin: datetime, end: datetime, edges: Sequence[datetime]
) -> tuple[tuple[datetime, ...], int]:
    low, high = bisect_right(edges, begin), bisect_left(edges, end)
    return (begin, *edges[low:high], end), low - 1


def _without(stale: Iterable[Range], begin: datetime, until: datetime) -> list[Range]:
    """Return what of [begin, until) no range of `stale`, which may overlap, touches."""
    found = []
    for start, end in sorted(stale):
        if begin < min(start, until):
            found.append((begin, min(start, until)))
        begin = max(begin, end)
    if begin < until:
        found.append((begin, until))
    return found


def _joined(ranges: Iterable[Range]) -> list[Range]:
    found: list[Range] = []
    for begin, end in ranges:
        if found and found[-1][1] == begin:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found
