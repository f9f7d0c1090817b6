"""domain: calendar months, ranges of time and the steps of a series; the parts of lifetimes in a
range, in Python and as SQL.

A range is [first, until). Instants are cut to whole seconds before they are subtracted. So the
pieces of a lifetime that is cut at whole seconds add up to the whole exactly, and all sums are
integers. A lifetime without an end lasts to `until`, so callers pass at most the time of the
report. A lifetime that ends before it begins (clocks differ) has length zero, and counts where it
begins.

The SQL selects from the table of pods and the view of holdings (partitions/migrations) by name; its
parameters are `bounds`. It never scans the whole history: lifetimes that begin in the range come
from the index of beginnings, in that order. Lifetimes carried into the range are either short, and
began within the day before, or long or open, for which there are small partial indexes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from zoneinfo import ZoneInfo

_WRITTEN = re.compile(r"([0-9]{4})-([0-9]{2})")
_YEARS = range(1970, 9999)


class MonthError(ValueError):
    """A text is not a month; the message shows the format."""


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """One calendar month; months compare by time."""

    year: int
    number: int

    def __post_init__(self) -> None:
        """Raise MonthError if no calendar has this month."""
        if self.year not in _YEARS or self.number not in range(1, 13):
            raise MonthError(
                f"{self.year}-{self.number} is not a month. Use YYYY-MM, for example 2026-11."
            )

    @classmethod
    def parse(cls, text: str) -> Month:
        """Return the month written as `2026-11`; raise MonthError for anything else."""
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise MonthError(f"{text!r} is not a month. Use YYYY-MM, for example 2026-11.")
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def of(cls, instant: datetime, zone: ZoneInfo) -> Month:
        """Return the month that a calendar in `zone` shows at `instant`."""
        local = instant.astimezone(zone)
        return cls(local.year, local.month)

    def first(self, zone: ZoneInfo) -> datetime:
        """Return the month's first instant in `zone`, in UTC.

        Where the clock is put forward at midnight that is the moment of the change, and where
        midnight comes twice the first midnight, so that months neither overlap nor leave a gap.
        """
        return datetime(self.year, self.number, 1, tzinfo=zone).astimezone(UTC)

    def end(self, zone: ZoneInfo) -> datetime:
        """Return the first instant of the next month in `zone`, in UTC."""
        return self.next().first(zone)

    def next(self) -> Month:
        """Return the following month."""
        return Month(self.year + self.number // 12, self.number % 12 + 1)

    def previous(self) -> Month:
        """Return the preceding month."""
        return Month(self.year - (self.number == 1), (self.number - 2) % 12 + 1)

    def until(self, last: Month) -> Iterator[Month]:
        """Yield this month and those after it, up to and with `last`."""
        month = self
        while month <= last:
            yield month
            month = month.next()

    def __str__(self) -> str:
        return f"{self.year:04}-{self.number:02}"


def named_month(text: str, now: datetime, zone: ZoneInfo) -> Month | None:
    """Return the month that a window's name means; None if it means no month."""
    month = Month.of(now, zone)
    return {"month": month, "lastmonth": month.previous()}.get(text)


MAX_POINTS: Final = 2000
STEPS: Final = ("hour", "day", "week", "month")
_OLDEST: Final = datetime(1970, 1, 2, tzinfo=UTC)
_DAY: Final = timedelta(days=1)
_NEWEST: Final = datetime(9999, 1, 1, tzinfo=UTC)


class WindowError(ValueError):
    """The range or step is invalid; the sentence says which are valid. `parameter`: the name of the
    wrong one, with which the message begins; empty: they do not fit together."""

    def __init__(self, sentence: str, parameter: str = "") -> None:
        super().__init__(f"{parameter}: {sentence}" if parameter else sentence)
        self.sentence, self.parameter = sentence, parameter


@dataclass(frozen=True, slots=True)
class Window:
    """[begin, end), and `until`: how much of it has passed. All in whole seconds, UTC."""

    begin: datetime
    end: datetime
    until: datetime

    @classmethod
    def of(cls, begin: datetime, end: datetime, now: datetime) -> Window:
        """Return the window at `now`. Raises WindowError for a reversed or empty range."""
        begin, end = _second(begin), _second(end)
        if begin >= end:
            raise WindowError(
                f"The range from {begin:%FT%TZ} ends ({end:%FT%TZ}) before or at its beginning. "
                "Choose an earlier beginning or a later end."
            )
        if not _OLDEST <= begin < end <= _NEWEST:
            raise WindowError("The range must lie between the years 1970 and 9999.")
        return cls(begin, end, max(begin, min(end, _second(now))))


def day_begin(day: date, zone: ZoneInfo) -> datetime:
    """Return the first instant of `day` in `zone`, in UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def local_day(instant: datetime, zone: ZoneInfo) -> date:
    """Return the day that a calendar in `zone` shows at `instant`."""
    return instant.astimezone(zone).date()


def period_before(window: Window, zone: ZoneInfo) -> Window:
    """Return the period of the same kind that ends where `window` begins.

    Whole months of `zone` follow whole months, whole days as many days; others last as long. For a
    window that has not ended, the period before ends at the same day and time. Raises WindowError
    where that is before all time.
    """
    first, end = (each.astimezone(zone) for each in (window.begin, window.end))
    shift: Callable[[datetime], datetime] = lambda each: each - (window.end - window.begin)  # noqa: E731
    if all(each == each.replace(hour=0, minute=0, second=0) for each in (first, end)):
        months = 12 * (end.year - first.year) + end.month - first.month
        days = (end.date() - first.date()).days
        if first.day == end.day == 1:
            shift = lambda each: _months_earlier(each, months, zone)  # noqa: E731
        else:
            shift = lambda each: _wall(each, zone, each.astimezone(zone).date() - days * _DAY)  # noqa: E731
    passed = min(shift(window.until), window.begin)
    if window.until == window.end:
        passed = window.begin
    return Window.of(shift(window.begin), window.begin, passed)


def _months_earlier(instant: datetime, months: int, zone: ZoneInfo) -> datetime:
    """Return the same day and time `months` earlier; the month's end where it is shorter."""
    local = instant.astimezone(zone)
    year, number = divmod(12 * local.year + local.month - 1 - months, 12)
    first = date(year, number + 1, 1)
    day = first + (local.day - 1) * _DAY
    if day.month == first.month:
        return _wall(instant, zone, day)
    return day_begin((first + 31 * _DAY).replace(day=1), zone)


def _wall(instant: datetime, zone: ZoneInfo, day: date) -> datetime:
    """Return when the clock of `zone` shows the time of `instant` on `day`."""
    local = instant.astimezone(zone)
    return datetime.combine(day, local.time(), tzinfo=zone).astimezone(UTC)


def step_begins(window: Window, step: str, zone: ZoneInfo) -> list[datetime]:
    """Return the beginnings of the steps of a series over the window, the first at its beginning.

    Days, weeks (from Monday) and months are in `zone`. Raises WindowError for an unknown step and
    for more than MAX_POINTS steps.
    """
    if step not in STEPS:
        raise WindowError(f"{step!r} is not one of {', '.join(STEPS)}.", "step")
    begins = [window.begin]
    for instant in _later(window.begin, step, zone):
        if instant >= window.end:
            return begins
        if len(begins) == MAX_POINTS:
            raise WindowError(
                f"the range has more than {MAX_POINTS} steps of one {step}. "
                "Use a longer step or a shorter range.",
                "step",
            )
        begins.append(instant)
    return begins


def _later(begin: datetime, step: str, zone: ZoneInfo) -> Iterator[datetime]:
    if step == "hour":
        instant = begin.replace(minute=0, second=0)
        while True:
            instant += timedelta(hours=1)
            yield instant
    day = local_day(begin, zone)
    while True:
        day = _next_day(day, step)
        if (instant := day_begin(day, zone)) > begin:
            yield instant


def _next_day(day: date, step: str) -> date:
    if step == "day":
        return day + timedelta(days=1)
    if step == "week":
        return day + timedelta(days=7 - day.weekday())
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def _second(instant: datetime) -> datetime:
    return instant.astimezone(UTC).replace(microsecond=0)


SHORT: Final = timedelta(days=1)
"""Longest lifetime that the index of long lifetimes leaves out."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a lifetime that falls into a range."""

    start: datetime
    end: datetime
    running: bool

    @property
    def seconds(self) -> int:
        """The length in whole seconds."""
        return whole_seconds(self.start, self.end)


def whole_seconds(start: datetime, end: datetime) -> int:
    """Return the seconds between the two, each cut to its second."""
    cut = end.replace(microsecond=0) - start.replace(microsecond=0)
    return cut // timedelta(seconds=1)


def clip(
    began: datetime | None, ended: datetime | None, first: datetime, until: datetime
) -> Piece | None:
    """Return the part of [began, ended) in [first, until), or None. `running`: it continues after
    `until`."""
    if began is None or began >= until:
        return None
    if began < first and ended is not None and ended <= first:
        return None
    start = max(began, first)
    end = max(until if ended is None else min(ended, until), start)
    return Piece(start, end, ended is None or ended > until)


def bounds(first: datetime, until: datetime) -> dict[str, datetime]:
    """Return the parameters of POD_PIECES and PARTITION_PIECES for [first, until)."""
    return {"first": first, "until": max(first, until), "day_before": first - SHORT}


def _parts(table: str, began: str, ended: str) -> tuple[str, ...]:
    """Return SELECTs of all columns of `table`, and `start`, `stop`, `going_on`, `seconds`."""
    first, until = "%(first)s::timestamptz", "%(until)s::timestamptz"
    length = f"{ended} - {began}"
    spans = f"tstzrange({began}, GREATEST({ended}, {began}), '()')"

    def select(start: str, condition: str) -> str:
        stop = f"GREATEST(LEAST({ended}, {until}), {start})"
        seconds = f"floor(date_part('epoch', {stop})) - floor(date_part('epoch', {start}))"
        return (
            f"SELECT {table}.*, {start} AS start, {stop} AS stop,"  # noqa: S608
            f" ({ended} IS NULL OR {ended} > {until}) AS going_on, ({seconds})::bigint AS seconds"
            f" FROM {table} WHERE {condition}"
        )

    return (
        select(began, f"{began} >= {first} AND {began} < {until}"),
        select(
            first,
            f"{began} >= %(day_before)s::timestamptz AND {began} < {first} AND {ended} > {first}"
            f" AND {length} <= interval '1 day'",
        ),
        select(first, f"{length} > interval '1 day' AND {spans} @> {first}"),
        select(first, f"{ended} IS NULL AND {began} < {first}"),
    )


POD_PARTS: Final = _parts("usage_podlifetime", "scheduled_at", "finished_at")
"""Disjoint parts of POD_PIECES: what begins in the range (in order, from an index), and what is
carried into it: short, long, open."""

POD_ENDS: Final = (
    "SELECT usage_podlifetime.*, finished_at AS start, %(until)s::timestamptz AS stop"
    " FROM usage_podlifetime WHERE finished_at >= %(first)s::timestamptz"
    " AND finished_at < %(until)s::timestamptz AND scheduled_at < %(first)s::timestamptz"
)
"""Pods that were carried into the range, or end as it begins, and end in it, with the rest of the
range as `start` and `stop`: what they no longer hold."""

PARTITION_PARTS: Final = _parts("partitions_holdings", "reserved_at", "released_at")
"""Likewise of PARTITION_PIECES."""

POD_PIECES: Final = "\nUNION ALL\n".join(POD_PARTS)
"""Pods allocated in the range: every column of PodLifetime, with `start`, `stop` (clipped to the
range), `going_on` (beyond `until`) and `seconds`. Use as `FROM ({POD_PIECES}) AS pods`."""

PARTITION_PIECES: Final = "\nUNION ALL\n".join(PARTITION_PARTS)
"""Partitions held in the range, from reserved to released, likewise."""

_AMOUNT: Final = (
    "sum(pod.micro_ipus::numeric * GREATEST("
    "floor(date_part('epoch', LEAST(COALESCE(pod.finished_at, {held}.stop), {held}.stop)))"
    " - floor(date_part('epoch', GREATEST(pod.scheduled_at, {held}.start))), 0)::bigint)"
)
_TOGETHER: Final = (
    "pod.job_uid = {held}.job_uid AND pod.job_uid <> '' AND pod.namespace = {held}.namespace"
    " AND pod.partition = {held}.partition AND pod.scheduled_at < {held}.stop"
    " AND (pod.finished_at IS NULL OR pod.finished_at > {held}.start)"
)
_IDLE: Final = "GREATEST({held}.size * 1000000::numeric * {held}.seconds - COALESCE({used}, 0), 0)"


def idle_sql(held: str) -> str:
    """Return SQL of the micro-IPU-seconds that a partition was held beyond the IPUs of its pods.

    `held` names a row of PARTITION_PIECES. Pods of the same job, partition and namespace (elsewhere
    it is a stranger's claim) count for the time in which both were there; more IPUs than the
    partition has make no negative rest.
    """
    used = f"(SELECT {_AMOUNT} FROM usage_podlifetime AS pod WHERE {_TOGETHER})"  # noqa: S608
    return _IDLE.format(held=held, used=used.format(held=held))


IDLE_PIECES: Final = (
    f"WITH held AS MATERIALIZED ({PARTITION_PIECES}), used AS ("  # noqa: S608
    f"SELECT held.id, {_AMOUNT.format(held='held')} AS micro FROM held"
    f" JOIN ({POD_PIECES}) AS pod ON {_TOGETHER.format(held='held')} GROUP BY held.id)"
    f" SELECT held.*, {_IDLE.format(held='held', used='used.micro')} AS idle"
    " FROM held LEFT JOIN used USING (id)"
)
"""PARTITION_PIECES with that sum as `idle`, for all of them at once: one join of the range's pods
where `idle_sql` looks for those of each partition by itself."""
