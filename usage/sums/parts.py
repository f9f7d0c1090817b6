"""domain: the days of a window that come from daily totals, and those added up from pods.

A daily total is used if the whole day is in the window, is over, and no lifetime of the day has
changed since. Between such days, the totals of hours are used by the same rule: of the current day,
and of all time where hours are kept. If it holds for all days of a span (a third of a month), the
total of the span is used. All other time is added up from the lifetimes: exact, but slower.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from datetime import UTC, date, timedelta
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from usage.time.windows import day_begin, local_day

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    Range = tuple[datetime, datetime]

MAX_STRETCHES: Final = 8  # each is one more SELECT of the query
HOUR: Final = timedelta(hours=1)
DEAR: Final = timedelta(days=2)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Coverage:
    """The summed time: days of `zone` before `until`, then the hours of UTC in `hours` (from and
    to; none where both are equal), except those that touch `dirt`: first and last hour that changed
    since (no last: all up to now). The days before `frozen_before` have lost lifetimes: their sums,
    of days of `frozen_zone`, stay valid whatever changes. `accelerated_from`: the first day with
    valid sums by accelerator name; sums of spans are valid where a span exists. None: an older
    release without either computed the sums. `kept_from`: from when on hours are summed in the
    tables that keep them, which grow towards the past; None: an older release summed, which keeps
    none."""

    zone: str = ""
    until: date = date.min
    dirt: tuple[tuple[datetime, datetime | None], ...] = ()
    hours: tuple[datetime, datetime] | None = None
    frozen_before: date | None = None
    frozen_zone: str = ""
    accelerated_from: date | None = None
    kept_from: datetime | None = None

    @property
    def of_kept_hours(self) -> Coverage:
        """Return what is summed in the tables that keep their hours."""
        if self.hours is None or self.kept_from is None:
            return replace(self, hours=None)
        return replace(self, hours=(self.kept_from, self.hours[1]))

    @property
    def frozen_until(self) -> datetime | None:
        """The instant before which lifetimes are missing; None: none are."""
        if self.frozen_before is None:
            return None
        return day_begin(self.frozen_before, ZoneInfo(self.frozen_zone))

    @property
    def of_accelerators(self) -> Coverage:
        """Return the part that is also summed by the names of accelerators, frozen days apart."""
        return self if self.accelerated_from is not None else Coverage()

    def is_frozen(self, day: date, zone: ZoneInfo) -> bool:
        """Return whether `day` of `zone` has lost lifetimes, so that it can never be summed again,
        or has the sum of a day of `frozen_zone` that has."""
        if self.frozen_before is None or self.frozen_until is None:
            return False
        return day < self.frozen_before or day_begin(day, zone) < self.frozen_until

    def has(self, day: date, zone: ZoneInfo) -> bool:
        """Return whether the sum of `day` is valid."""
        if zone.key != self.zone or day >= self.until:
            return False
        if self.is_frozen(day, zone):
            return zone.key == self.frozen_zone
        return self._is_clean(day_begin(day, zone), day_begin(day + _DAY, zone))

    def has_hour(self, hour: datetime) -> bool:
        """Return whether the sum of the hour that begins then is valid."""
        return bool(self.summed_hours(hour, hour + HOUR))

    def summed_hours(self, begin: datetime, until: datetime) -> list[Range]:
        """Return the ranges of whole hours in [begin, until) whose sums are valid, in order.

        The hour in which the lifetimes that are left begin has lost some and can still change: if
        there is one, no sum up to its end is valid.
        """
        if self.hours is None:
            return []
        begin = ceil_hour(max(begin, self.hours[0]))
        until = floor_hour(min(until, self.hours[1]))
        frozen = self.frozen_until or begin
        if frozen != floor_hour(frozen):
            begin = frozen = max(begin, ceil_hour(frozen))
        ends = ((a, until if b is None else b + HOUR) for a, b in self.dirt)
        stale = sorted((max(a, frozen), end) for a, end in ends if end > frozen)
        return list(gaps_between(stale, begin, until))

    def _is_clean(self, begin: datetime, end: datetime) -> bool:
        return all(end <= a or (b is not None and b + HOUR <= begin) for a, b in self.dirt)


@dataclass(frozen=True, slots=True)
class Stretch:
    """An unbroken range to add up from lifetimes: piece i is [bounds[i], bounds[i + 1]).

    `after`: the hour that ends as it begins, where the sum of that hour stands and there is but one
    piece. The amount carried into the range is then known.
    """

    bounds: tuple[datetime, ...]
    buckets: tuple[int, ...]
    opens: tuple[bool, ...]
    after: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rolled:
    """A span, a day or an hour whose sum counts for one bucket of a series; `opens`: a step begins
    with it. Of a day, or a span of several from it on, `day` is set, of an hour not."""

    begin: datetime
    end: datetime
    bucket: int
    opens: bool
    day: date | None = None

    @property
    def time(self) -> date:
        """Under which its sum is found."""
        return self.day or self.begin


@dataclass(frozen=True, slots=True)
class Parts:
    """A window in parts that overlap nowhere and leave nothing out."""

    days: tuple[Rolled, ...]
    hours: tuple[Rolled, ...]
    stretches: tuple[Stretch, ...]
    spans: tuple[Rolled, ...] = ()

    @property
    def rolled(self) -> tuple[tuple[str, str, tuple[Rolled, ...]], ...]:
        """Return the parts taken from sums, by grain, with the type of its column in the tables."""
        return (
            ("span", "date", self.spans),
            ("day", "date", self.days),
            ("hour", "timestamptz", self.hours),
        )

    @property
    def is_dear(self) -> bool:
        """Return whether lifetimes of more than a day or two are added up."""
        length = sum((each.bounds[-1] - each.bounds[0] for each in self.stretches), timedelta())
        return length > DEAR


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps that begin at `begins`, cut once more at `cuts` into buckets: what is counted counts
    in a step, whatever it is cut into. `unasked`: a range whose buckets may be left out."""

    begins: tuple[datetime, ...]
    cuts: tuple[datetime, ...] = ()
    unasked: Range | None = None

    @property
    def bounds(self) -> list[datetime]:
        """Return the times at which the buckets begin."""
        return sorted({*self.begins, *(each for each in self.cuts if each > self.begins[0])})

    def leaves_out(self, begin: datetime, end: datetime) -> bool:
        """Return whether [begin, end) is within the range that is not needed."""
        return self.unasked is not None and self.unasked[0] <= begin and end <= self.unasked[1]

    @property
    def numbers(self) -> list[int]:
        """The number of the step that contains each bucket."""
        return [bisect_right(self.begins, each) - 1 for each in self.bounds]


def split(steps: Steps, until: datetime, zone: ZoneInfo, cover: Coverage) -> Parts:
    """Return the parts of the steps up to `until`; the cuts come before it."""
    begins = steps.bounds
    if until <= begins[0]:
        return Parts((), (), ())
    opening = set(steps.begins)

    def rolled(begin: datetime, end: datetime, day: date | None = None) -> Rolled:
        return Rolled(begin, end, bisect_right(begins, begin) - 1, begin in opening, day)

    def gaps_of(taken: Sequence[Rolled]) -> list[Range]:
        ranges = [(each.begin, each.end) for each in taken]
        unasked = [steps.unasked] if steps.unasked else []
        return list(gaps_between(sorted([*ranges, *unasked]), begins[0], until))

    days = _summed_days(begins, until, zone, cover)
    taken = [rolled(a, b, day) for day, a, b in days if not steps.leaves_out(a, b)]
    if cover.zone == zone.key:
        hours = [hour for gap in gaps_of(taken) for hour in _summed_hours(begins, gap, cover)]
        taken = sorted([*taken, *(rolled(a, a + HOUR) for a in hours)], key=_begin)
    gaps = gaps_of(taken)
    if len(gaps) > MAX_STRETCHES:
        gaps = _joined(gaps)
        taken = [each for each in taken if not any(a <= each.begin < b for a, b in gaps)]
    whole = [each for each in taken if each.day is not None]
    spans, rest = _merged(whole) if cover.accelerated_from is not None else ([], whole)
    return Parts(
        tuple(rest),
        tuple(each for each in taken if each.day is None),
        tuple(_after_hour(_stretch(a, b, begins, opening), cover) for a, b in gaps),
        tuple(spans),
    )


def _begin(rolled: Rolled) -> datetime:
    return rolled.begin


def _joined(gaps: Sequence[Range]) -> list[Range]:
    """Return MAX_STRETCHES gaps: those with the least time between them become one."""
    by_distance = sorted(range(1, len(gaps)), key=lambda n: gaps[n - 1][1] - gaps[n][0])
    firsts = [0, *sorted(by_distance[: MAX_STRETCHES - 1]), len(gaps)]
    return [(gaps[a][0], gaps[b - 1][1]) for a, b in pairwise(firsts)]


SPAN_DAYS: Final = (1, 11, 21)
"""On which days of a month spans begin."""


def span_of(day: date) -> tuple[date, date]:
    """Return the first day of the span of `day`, and the first day of the next span."""
    first = day.replace(day=max(each for each in SPAN_DAYS if each <= day.day))
    later = next((each for each in SPAN_DAYS if each > day.day), None)
    following = (first.replace(day=28) + 4 * _DAY).replace(day=1)
    return first, following if later is None else day.replace(day=later)


def _merged(days: Sequence[Rolled]) -> tuple[list[Rolled], list[Rolled]]:
    """Return the spans all of whose days are among these, for one bucket, and the other days."""
    spans: list[Rolled] = []
    rest: list[Rolled] = []
    for (bucket, (first, following)), each in groupby(days, _bucket_and_span):
        own = list(each)
        if len(own) == (following - first).days:
            spans.append(Rolled(own[0].begin, own[-1].end, bucket, own[0].opens, first))
        else:
            rest += own
    return spans, rest


def _bucket_and_span(rolled: Rolled) -> tuple[int, tuple[date, date]]:
    return rolled.bucket, span_of(rolled.day or rolled.begin.date())


def spans_to_sum(days: Iterable[date]) -> list[tuple[date, date]]:
    """Return the spans that a change of these days changes, as `span_of` does, in order."""
    return sorted({span_of(day) for day in days})


def _summed_days(
    begins: Sequence[datetime], until: datetime, zone: ZoneInfo, cover: Coverage
) -> list[tuple[date, datetime, datetime]]:
    found = []
    day = local_day(begins[0], zone)
    last = min(local_day(until, zone), cover.until)
    while day <= last:
        begin, end = day_begin(day, zone), day_begin(day + _DAY, zone)
        if _is_whole(begins, until, begin, end) and cover.has(day, zone):
            found.append((day, begin, end))
        day += _DAY
    return found


def _summed_hours(begins: Sequence[datetime], gap: Range, cover: Coverage) -> list[datetime]:
    return [
        hour
        for begin, end in cover.summed_hours(*gap)
        for hour in whole_hours(begin, end)
        if _is_whole(begins, end, hour, hour + HOUR)
    ]


def _is_whole(begins: Sequence[datetime], until: datetime, begin: datetime, end: datetime) -> bool:
    """Return whether [begin, end) is within the window and within one of its steps."""
    inside = begin >= begins[0] and end <= until
    return inside and bisect_right(begins, begin) == bisect_right(begins, end - _SECOND)


def whole_hours(begin: datetime, end: datetime) -> list[datetime]:
    """Return the beginnings of the hours of UTC that are completely within [begin, end)."""
    first = ceil_hour(begin)
    return [first + HOUR * n for n in range(max(0, (end - first) // HOUR))]


def floor_hour(instant: datetime) -> datetime:
    """Return the beginning of the hour of UTC that contains `instant`."""
    return instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def ceil_hour(instant: datetime) -> datetime:
    """Return when the first hour of UTC begins that begins at or after `instant`."""
    hour = floor_hour(instant)
    return hour if hour == instant else hour + HOUR


_SECOND: Final = timedelta(seconds=1)


def gaps_between(
    taken: Iterable[tuple[datetime, datetime]], begin: datetime, until: datetime
) -> Iterable[tuple[datetime, datetime]]:
    """Yield the parts of [begin, until) that no range touches; ranges are in order and may
    overlap."""
    for start, end in taken:
        if begin < min(start, until):
            yield begin, min(start, until)
        begin = max(begin, end)
    if begin < until:
        yield begin, until


def _stretch(
    begin: datetime, end: datetime, begins: Sequence[datetime], opening: set[datetime]
) -> Stretch:
    low, high = bisect_right(begins, begin), bisect_right(begins, end - _SECOND)
    starts = (begin, *begins[low:high])
    buckets = tuple(range(low - 1, high))
    return Stretch((*starts, end), buckets, tuple(start in opening for start in starts))


def _after_hour(stretch: Stretch, cover: Coverage) -> Stretch:
    hour = stretch.bounds[0] - HOUR
    # A purge also deletes what ended at that instant, which the hour before still held as it ended.
    frozen = cover.frozen_until
    is_complete = frozen is None or frozen < stretch.bounds[0]
    is_known = len(stretch.buckets) == 1 and is_complete and cover.has_hour(hour)
    return replace(stretch, after=hour) if is_known else stretch


def days_to_sum(cover: Coverage, earliest: date, now: datetime, zone: ZoneInfo) -> list[date]:
    """Return the days before today's of `zone` that are not summed, or no longer right."""
    today = local_day(now.astimezone(UTC), zone)
    first = min([earliest, *(local_day(a, zone) for a, _ in cover.dirt)])
    every = (first + _DAY * n for n in range((today - first).days))
    return [day for day in every if not cover.is_frozen(day, zone) and not cover.has(day, zone)]


def hours_begin(now: datetime, zone: ZoneInfo) -> datetime:
    """Return the start of hourly sums: today in `zone`, and the hour before, which the first hour
    of today builds on."""
    return day_begin(local_day(now, zone), zone) - HOUR


def kept_to_sum(cover: Coverage, earliest: datetime, now: datetime, zone: ZoneInfo) -> list[Range]:
    """Return the ranges of hours before `hours_begin` that are to be kept and are not summed, or no
    longer right."""
    begin = _first_kept(cover, min([earliest, *(a for a, _ in cover.dirt)]))
    if cover.kept_from is not None:
        begin = max(begin, cover.kept_from)
    until = ceil_hour(hours_begin(now, zone))
    return list(gaps_between(cover.of_kept_hours.summed_hours(begin, until), begin, until))


def hours_to_add(cover: Coverage, earliest: datetime) -> Range | None:
    """Return the hours before those that are kept which lifetimes can still fill; None: there are
    none."""
    begin = _first_kept(cover, earliest)
    return None if cover.kept_from is None or begin >= cover.kept_from else (begin, cover.kept_from)


def _first_kept(cover: Coverage, earliest: datetime) -> datetime:
    frozen = cover.frozen_until
    return floor_hour(earliest) if frozen is None else max(floor_hour(earliest), ceil_hour(frozen))


def hours_to_sum(cover: Coverage, now: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return the hours since `hours_begin` that are over and not summed, or no longer right."""
    begin = hours_begin(now, zone)
    return [hour for hour in whole_hours(begin, now) if not cover.has_hour(hour)]


def runs(days: Sequence[date]) -> list[tuple[date, date]]:
    """Return sorted days as first and last of unbroken runs."""
    found: list[tuple[date, date]] = []
    for day in days:
        if found and found[-1][1] + _DAY == day:
            found[-1] = (found[-1][0], day)
        else:
            found.append((day, day))
    return found
