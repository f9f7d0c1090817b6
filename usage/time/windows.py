"""domain: calendar months, ranges of time, and the steps of a series."""

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
        midnight comes twice the first one, so that months neither overlap nor leave a gap.
        """
        return datetime(self.year, self.number, 1, tzinfo=zone).astimezone(UTC)

    def end(self, zone: ZoneInfo) -> datetime:
        """Return the first instant of the next month in `zone`, in UTC."""
        return self.next().first(zone)

    def next(self) -> Month:
        """Return the month after this one."""
        return Month(self.year + self.number // 12, self.number % 12 + 1)

    def previous(self) -> Month:
        """Return the month before this one."""
        return Month(self.year - (self.number == 1), (self.number - 2) % 12 + 1)

    def until(self, last: Month) -> Iterator[Month]:
        """Yield this month and those after it, up to and with `last`."""
        month = self
        while month <= last:
            yield month
            month = month.next()

    def __str__(self) -> str:
        return f"{self.year:04}-{self.number:02}"


MAX_POINTS: Final = 2000
STEPS: Final = ("hour", "day", "week", "month")
_OLDEST: Final = datetime(1970, 1, 2, tzinfo=UTC)
_DAY: Final = timedelta(days=1)
_NEWEST: Final = datetime(9999, 1, 1, tzinfo=UTC)


class WindowError(ValueError):
    """The range or step is invalid; the message says which are valid."""


@dataclass(frozen=True, slots=True)
class Window:
    """[begin, end), and `until`: how much of it has passed. All in whole seconds, UTC."""

    begin: datetime
    end: datetime
    until: datetime

    @classmethod
    def of(cls, begin: datetime, end: datetime, now: datetime) -> Window:
        """Return the window at `now`. Raises WindowError for a reversed or empty one."""
        begin, end = _second(begin), _second(end)
        if begin >= end:
            raise WindowError(f"The range ends ({end:%FT%TZ}) before or at its beginning.")
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

    Whole months of `zone` follow whole months, whole days as many days; others last as long.
    Of a window that still goes on, as much has passed of the period before: up to the same day and
    time. Raises WindowError where that is before all time.
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
    """Return when the steps of a series over the window begin, the first at its begin.

    Days, weeks (from Monday) and months are those of `zone`. Raises WindowError for an unknown
    step and for more than MAX_POINTS of them.
    """
    if step not in STEPS:
        raise WindowError(f"step: {step!r} is no step. Known: {', '.join(STEPS)}.")
    begins = [window.begin]
    for instant in _later(window.begin, step, zone):
        if instant >= window.end:
            return begins
        if len(begins) == MAX_POINTS:
            raise WindowError(
                f"step: the range has more than {MAX_POINTS} steps of one {step}. "
                "Use a longer step or a shorter range."
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
