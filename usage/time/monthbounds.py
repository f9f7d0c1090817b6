"""io: when a month begins and ends: as its zone's calendar says, but for what is closed beside it.

Closed months never change, in whatever zone they were closed. A month beside one begins where that
ended, or ends where it begins, so that each second is billed in exactly one month, also after the
report zone was changed.

Transactions whose statements all see the same rows.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import psycopg
from django.db import connection, transaction

from ipuhub.months import Month
from usage.models import MonthReport, ReportState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

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
            f" {_span(*calendar)}. The report zone was changed: closed months keep their bounds,"
            " and those beside them begin and end there, so that each second counts in one month."
        )


def month_bounds(month: Month, zone: ZoneInfo) -> MonthBounds:
    """Return when `month` begins and ends: a closed one as it was closed. One query."""
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
        f" {'both' if after.first < before.end else 'neither'}. Closed reports do not change: make"
        " a report of that range to see what it is, and settle it by hand."
        for before, after in pairwise(sorted(closed, key=lambda each: each.month))
        if Month.parse(before.month).next() == Month.parse(after.month)
        and before.end != after.first
    ]


def _span(first: datetime, end: datetime) -> str:
    return f"{first:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"


@contextmanager
def one_snapshot(*, read_only: bool = False) -> Iterator[None]:
    """Run all statements in here, or of a function that it decorates, on one state of the rows.

    Within another transaction, as tests have around them, they see what that sees.
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
