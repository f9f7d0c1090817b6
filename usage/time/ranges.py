"""glue: parses which time is meant: instants, days of a zone, names such as lastmonth, and months.

Closed months never change, in whatever zone they were closed. A month next to a closed month begins
where that month ended, or ends where it begins, so each second is billed in exactly one month, even
after the report zone changed. Also transactions whose statements all see the same rows, and a limit
on slow ones.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import psycopg
from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from ipuhub.web.filters import BadFilter
from usage.models import MonthReport, ReportState
from usage.sums.measures import DIMENSIONS
from usage.time.windows import Month, WindowError, day_begin, local_day

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NAMED: Final = (
    *("today", "yesterday", "week", "lastweek", "month", "lastmonth"),
    *("quarter", "lastquarter", "year", "lastyear"),
)
"""Windows by name; those of now go on to the end of the day, week, month, quarter or year."""
_DAY: Final = timedelta(days=1)
_MONTHS: Final = {"quarter": (3, 0), "lastquarter": (3, 1), "year": (12, 0), "lastyear": (12, 1)}
_LENGTH: Final = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_UNITS: Final = {"h": timedelta(hours=1), "d": _DAY, "w": 7 * _DAY}
_HOW: Final = (
    f"Use one of {', '.join(NAMED)}, a length up to now such as 12h, 7d or 4w, or two "
    "comma-separated instants."
)


def read_instant(text: str, zone: ZoneInfo, *, end: bool = False) -> datetime:
    """Return the instant of `2026-11-21T10:00:00Z` (RFC 3339) or of a day of `zone`.

    A day means its begin; with `end` its end, so that a range of days includes the last day. A time
    without an offset is in `zone`. Raises WindowError.
    """
    try:
        return _instant(text.replace(" ", "+"), zone, end)  # a `+` not escaped in the URL
    except (ValueError, OverflowError):
        raise WindowError(
            f"{text[:50]!r} is not a date. Use 2026-11-21 or 2026-11-21T10:00:00Z."
        ) from None


def _instant(text: str, zone: ZoneInfo, end: bool) -> datetime:
    if len(text) == len("2026-11-21"):
        day = datetime.fromisoformat(text).date()
        return day_begin(day + _DAY if end else day, zone)
    instant = datetime.fromisoformat(text)
    return (instant if instant.tzinfo else instant.replace(tzinfo=zone)).astimezone(UTC)


def read_window(text: str, now: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return begin and end of a window: by name, by length up to `now`, or by two instants.

    Windows named after months are calendar months: see `named_month`. Raises WindowError.
    """
    if text in NAMED:
        return _named(text, now, zone)
    if length := _LENGTH.fullmatch(text):
        try:
            return now - int(length[1]) * _UNITS[length[2]], now
        except OverflowError:
            raise WindowError(f"window: {text} is too long.") from None
    begin, comma, end = text.partition(",")
    if not comma:
        raise WindowError(f"window: {text[:50]!r} is not a window. {_HOW}")
    return read_instant(begin, zone), read_instant(end, zone, end=True)


def named_month(text: str, now: datetime, zone: ZoneInfo) -> Month | None:
    """Return the month that a window's name means; None if it means no month."""
    month = Month.of(now, zone)
    return {"month": month, "lastmonth": month.previous()}.get(text)


def _named(text: str, now: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    today = local_day(now, zone)
    monday = today - today.weekday() * _DAY
    if month := named_month(text, now, zone):
        return month.first(zone), month.end(zone)
    if text in _MONTHS:
        length, ago = _MONTHS[text]
        number = (12 * today.year + today.month - 1) // length - ago
        begins = (divmod(each * length, 12) for each in (number, number + 1))
        first, end = (Month(year, month + 1).first(zone) for year, month in begins)
        return first, end
    day, days = {
        "today": (today, 1),
        "yesterday": (today - _DAY, 1),
        "week": (monday, 7),
        "lastweek": (monday - 7 * _DAY, 7),
    }[text]
    return day_begin(day, zone), day_begin(day + days * _DAY, zone)


def usage_zone() -> ZoneInfo:
    """Return the zone of the reports: pages and reports cut months alike."""
    zone: ZoneInfo = settings.REPORT_ZONE
    return zone


_OLDEST: Final = Month(1970, 1)


@dataclass(frozen=True, slots=True)
class MonthBounds:
    """What `month` is in reports made in `zone`, and wherever else it is named: [first, end)."""

    month: Month
    zone: ZoneInfo
    first: datetime
    end: datetime

    @property
    def note(self) -> str:
        """A sentence for people where the calendar says otherwise; empty where it says the same."""
        calendar = self.month.first(self.zone), self.month.end(self.zone)
        if calendar == (self.first, self.end):
            return ""
        return (
            f"{self.month} is {_span(self.first, self.end)}; the calendar of {self.zone.key} has"
            f" {_span(*calendar)}. The report zone was changed. Closed months keep their bounds, "
            "and the months next to them begin and end there, so that each second counts in "
            "exactly one month."
        )


def month_bounds(month: Month, zone: ZoneInfo) -> MonthBounds:
    """Return when `month` begins and ends; for a closed month as it was closed. One query."""
    beside = [str(month), str(month.next())]
    beside += [str(month.previous())] if month > _OLDEST else []
    rows = MonthReport.objects.filter(state=ReportState.CLOSED, month__in=beside)
    closed = {text: (first, end) for text, first, end in rows.values_list("month", "first", "end")}
    if own := closed.get(str(month)):
        return MonthBounds(month, zone, *own)
    first, end = month.first(zone), month.end(zone)
    if month > _OLDEST and (before := closed.get(str(month.previous()))):
        first = before[1]
    if after := closed.get(str(month.next())):
        end = after[0]
    return MonthBounds(month, zone, first, end)


def bounds_of(report: MonthReport) -> MonthBounds:
    """Return the bounds that a stored report has."""
    zone = ZoneInfo(report.zone)
    return MonthBounds(Month.parse(report.month), zone, report.first, report.end)


def bad_seams(reports: Iterable[MonthReport]) -> list[str]:
    """Return a sentence for each two closed months of `reports` that share time or leave some
    between them, as those could that were closed in two zones before bounds were kept."""
    closed = (each for each in reports if each.state == ReportState.CLOSED)
    return [
        f"{before.month} was closed up to {before.end:%Y-%m-%d %H:%M} UTC and {after.month} from"
        f" {after.first:%Y-%m-%d %H:%M} UTC on: what lies between is in"
        f" {'both' if after.first < before.end else 'neither'}. Closed reports do not change. "
        "Generate a range report of that time and settle the difference manually."
        for before, after in pairwise(sorted(closed, key=lambda each: each.month))
        if Month.parse(before.month).next() == Month.parse(after.month)
        and before.end != after.first
    ]


def _span(first: datetime, end: datetime) -> str:
    return f"{first:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"


@contextmanager
def one_snapshot(*, read_only: bool = False) -> Iterator[None]:
    """Run all statements of the block, or of the decorated function, on one snapshot of the rows.

    Within another transaction (as in tests) they see what that transaction sees.
    """
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    connection.ensure_connection()
    own: psycopg.Connection[Any] = connection.connection
    # Said in the BEGIN itself: SET TRANSACTION would be one more message of each page.
    own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    own.read_only = read_only or None
    try:
        with transaction.atomic():
            yield
    finally:
        if not own.closed:
            own.isolation_level = own.read_only = None


@contextmanager
def patience(*, bounded: bool) -> Iterator[None]:
    """Let PostgreSQL work on each statement of the transaction around this for USAGE_QUERY_SECONDS
    where it is `bounded`; the limit ends with the transaction.

    Raises BadFilter with the remedy when a statement in here takes longer.
    """
    seconds = settings.USAGE_QUERY_SECONDS
    if not bounded:
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute(_limit(seconds))
    with _remedy(seconds):
        yield


def rows_of(statement: str, parameters: Mapping[str, Any], *, bounded: bool) -> list[Any]:
    """Return the rows of one SELECT, likewise `bounded`, in one message to PostgreSQL."""
    seconds = settings.USAGE_QUERY_SECONDS
    limit = f"{_limit(seconds)}; " if bounded else ""
    with _remedy(seconds), connection.cursor() as cursor:
        cursor.execute(limit + statement, parameters)
        if limit:
            cursor.nextset()
        rows: list[Any] = cursor.fetchall()
        return rows


def _limit(seconds: int) -> str:
    return f"SET LOCAL statement_timeout = {1000 * seconds}"


@contextmanager
def _remedy(seconds: int) -> Iterator[None]:
    try:
        yield
    except (OperationalError, QueryCanceled) as error:  # of Django's cursor, of psycopg's
        if isinstance(error, QueryCanceled) or isinstance(error.__cause__, QueryCanceled):
            raise BadFilter([_sentence(seconds)]) from error
        raise


def _sentence(seconds: int) -> str:
    known = ", ".join(name for name, each in DIMENSIONS.items() if each.rolled)
    return (
        f"The query was stopped after {seconds} s of adding up individual pods. Request a "
        "shorter range, or one that daily totals cover: whole days of the report zone, in steps "
        f"of a day or longer, by {known}. If such queries are slow, too, run `sum_usage_days`. "
        "An administrator can raise USAGE_QUERY_SECONDS."
    )
