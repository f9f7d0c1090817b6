"""domain: which days of a window are taken from the day sums and which are added up from pods.

A day sum is used where the whole day lies in the window, is over, and no pod of it has changed
since. All else is added up from the lifetimes themselves: exact, but dearer.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from typing import TYPE_CHECKING, Final

from usage.windows import day_begin, local_day

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

MAX_STRETCHES: Final = 8  # each is one more SELECT of the query
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What is summed: days of `zone` before `until`, but for the UTC days of `dirt`."""

    zone: str = ""
    until: date = date.min
    dirt: tuple[tuple[date, date | None], ...] = ()

    def has(self, day: date, zone: ZoneInfo) -> bool:
        """Whether the sum of `day` stands and is right."""
        if zone.key != self.zone or day >= self.until:
            return False
        first = day_begin(day, zone).date()
        last = (day_begin(day + _DAY, zone) - timedelta(seconds=1)).date()
        return all(last < a or (b is not None and first > b) for a, b in self.dirt)


@dataclass(frozen=True, slots=True)
class Stretch:
    """An unbroken range to add up from lifetimes: piece i is [bounds[i], bounds[i + 1])."""

    bounds: tuple[datetime, ...]
    buckets: tuple[int, ...]
    opens: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class RolledDay:
    """A day whose sum counts for one step of a series; `opens`: the step begins with it."""

    day: date
    bucket: int
    opens: bool


@dataclass(frozen=True, slots=True)
class Parts:
    """A window in parts that overlap nowhere and leave nothing out."""

    days: tuple[RolledDay, ...]
    stretches: tuple[Stretch, ...]


def split(begins: Sequence[datetime], until: datetime, zone: ZoneInfo, cover: Coverage) -> Parts:
    """Return the parts of [begins[0], until) whose steps begin at `begins`."""
    if until <= begins[0]:
        return Parts((), ())
    days = _summed_days(begins, until, zone, cover)
    gaps = list(_gaps([(a, b) for _, a, b in days], begins[0], until))
    if len(gaps) > MAX_STRETCHES:
        gaps = [*gaps[: MAX_STRETCHES - 1], (gaps[MAX_STRETCHES - 1][0], gaps[-1][1])]
        days = [each for each in days if not any(a <= each[1] < b for a, b in gaps)]
    opening = set(begins)
    rolled = [RolledDay(d, bisect_right(begins, a) - 1, a in opening) for d, a, _ in days]
    return Parts(tuple(rolled), tuple(_stretch(a, b, begins) for a, b in gaps))


def _summed_days(
    begins: Sequence[datetime], until: datetime, zone: ZoneInfo, cover: Coverage
) -> list[tuple[date, datetime, datetime]]:
    found = []
    day = local_day(begins[0], zone)
    last = min(local_day(until, zone), cover.until)
    while day <= last:
        begin, end = day_begin(day, zone), day_begin(day + _DAY, zone)
        inside = begin >= begins[0] and end <= until
        whole = inside and bisect_right(begins, begin) == bisect_right(begins, end - _SECOND)
        if whole and cover.has(day, zone):
            found.append((day, begin, end))
        day += _DAY
    return found


_SECOND: Final = timedelta(seconds=1)


def _gaps(
    taken: Iterable[tuple[datetime, datetime]], begin: datetime, until: datetime
) -> Iterable[tuple[datetime, datetime]]:
    for start, end in taken:
        if begin < start:
            yield begin, start
        begin = end
    if begin < until:
        yield begin, until


def _stretch(begin: datetime, end: datetime, begins: Sequence[datetime]) -> Stretch:
    low, high = bisect_right(begins, begin), bisect_right(begins, end - _SECOND)
    starts = (begin, *begins[low:high])
    buckets = tuple(range(low - 1, high))
    opening = set(begins)
    return Stretch((*starts, end), buckets, tuple(start in opening for start in starts))


def days_to_sum(cover: Coverage, earliest: date, now: datetime, zone: ZoneInfo) -> list[date]:
    """Return the days before today's of `zone` that are not summed, or no longer right."""
    today = local_day(now.astimezone(UTC), zone)
    first = min([earliest, *(a - _DAY for a, _ in cover.dirt)])
    every = (first + _DAY * n for n in range((today - first).days))
    return [day for day in every if not cover.has(day, zone)]


def runs(days: Sequence[date]) -> list[tuple[date, date]]:
    """Return sorted days as first and last of unbroken runs."""
    found: list[tuple[date, date]] = []
    for day in days:
        if found and found[-1][1] + _DAY == day:
            found[-1] = (found[-1][0], day)
        else:
            found.append((day, day))
    return found
