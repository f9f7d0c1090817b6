"""glue: a calendar month of reports and pages: its bounds, until when its record is complete, and
whether its figures are final.

Closed months never change, whatever time zone they were closed in. A month next to a closed month
begins where that month ended, or ends where it begins, so each second is billed in exactly one
month, even after the report time zone changed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import connection

from ipuhub.recording.shapes import CHECKPOINT_TABLE, FAULT_TABLE, GAP_TABLE
from ipuhub.web.readings import freshness_of
from usage.models import MonthReport, ReportState
from usage.rates.pricing import money_of
from usage.time.windows import Month, day_begin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date, datetime

    from ipuhub.web.readings import Freshness
    from usage.rates.pricing import Money
    from usage.time.windows import Window

CLOCKS_DIFFER: Final = timedelta(hours=1)
POD_WATCH = "pods"
"""Checkpoints and gaps of the watch of pods have names that begin so."""
SEEN_SQL = (
    f"SELECT min(position_at) FROM {CHECKPOINT_TABLE}"  # noqa: S608  # no value is pasted in
    " WHERE starts_with(name, %(watch)s)"
)
GAPS_SQL = (
    f"FROM {GAP_TABLE} WHERE starts_with(watch, %(watch)s)"
    " AND began_at < %(end)s AND ended_at > %(begin)s AND shows_loss"
)
COMPLETE_UNTIL_SQL = (
    "SELECT CASE WHEN seen IS NOT NULL THEN"  # noqa: S608
    f" LEAST(seen, %(end)s, (SELECT min(began_at) {GAPS_SQL})) END"
    f" FROM ({SEEN_SQL}) AS watched (seen)"
)
"""Selects until when in [begin, end) the watch had seen everything; NULL: nobody ever watched."""


def clock_problem(now: datetime) -> str:
    """Return why nothing final may be decided at `now`, the time of this process, or nothing: a
    closed month and a purge cannot be undone."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        ahead: timedelta = now - cursor.fetchone()[0]
    if ahead <= CLOCKS_DIFFER:
        return ""
    return (
        f"The clock of this process is {ahead.total_seconds() / 3600:,.0f} h ahead of the clock of "
        "PostgreSQL: months would be closed and records purged too early. Correct the clocks."
    )


def complete_until(begin: datetime, end: datetime) -> datetime | None:
    """Return until when in [begin, end) the record of pods is complete; None: never."""
    with connection.cursor() as cursor:
        cursor.execute(COMPLETE_UNTIL_SQL, {"watch": POD_WATCH, "begin": begin, "end": end})
        found: datetime | None = cursor.fetchone()[0]
        return found


_COMPLETENESS = f"""
SELECT
  ({SEEN_SQL}), ({COMPLETE_UNTIL_SQL}), (SELECT count(*) {GAPS_SQL}),
  (SELECT min(scheduled_at) FROM usage_podlifetime),
  (SELECT max(purged_before) FROM usage_purgestate),
  (SELECT count(*) FROM {FAULT_TABLE}),
  r.version, r.state, r.generated_at, r.cost, r.tariff,
  (SELECT count(*) FROM usage_monthreport WHERE month = %(month)s AND number > 0)
FROM (SELECT 1) AS one LEFT JOIN (
  SELECT version, state, generated_at, cost, tariff FROM usage_monthreport
  WHERE month = %(month)s AND number = 0 ORDER BY version DESC LIMIT 1) AS r ON true"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Completeness:
    """About one month. `complete_until` None: no prober has watched pods yet; `earliest`: the first
    month with rows; `purged_before`: the day before which rows of this month were deleted;
    `version`, `state`, `made_at`: of its newest report, if any; `cost`: its cost, in the currency
    of its tariff; `corrections`: number of corrections after it was closed; `freshness`: last
    response of the watch of pods."""

    complete_until: datetime | None
    gaps: int
    earliest: Month
    purged_before: date | None
    faults: int
    version: int | None
    state: str | None
    made_at: datetime | None
    cost: Money | None
    corrections: int
    freshness: Freshness


def month_completeness(
    month: Month | None, window: Window, now: datetime, zone: ZoneInfo
) -> Completeness:
    """Return the completeness of `month`, in one query; None: of any other range, which has no
    report."""
    parameters: dict[str, Any] = {
        "watch": POD_WATCH,
        "begin": window.begin,
        "end": window.end,
        "month": str(month or ""),
    }
    with connection.cursor() as cursor:
        cursor.execute(_COMPLETENESS, parameters)
        found = cursor.fetchone()
    seen, complete, gaps, first, purged, faults, *report = found
    version, state, made_at, cost, tariff, corrections = report
    return Completeness(
        complete,
        gaps,
        min(Month.of(first or now, zone), month or Month.of(now, zone)),
        purged if purged and day_begin(purged, zone) > window.begin else None,
        faults,
        version,
        state,
        made_at,
        money_of(cost, json.loads(tariff)) if version else None,
        corrections,
        freshness_of(seen, now),
    )


def usage_zone() -> ZoneInfo:
    """Return the zone of the reports: pages and reports cut months alike."""
    zone: ZoneInfo = settings.REPORT_ZONE
    return zone


_OLDEST: Final = Month(1970, 1)


@dataclass(frozen=True, slots=True)
class MonthBounds:
    """The bounds of `month` in reports made in `zone`, and in every other place that names it:
    [first, end)."""

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
    """Return when `month` begins and ends; a closed month keeps its bounds. One query."""
    beside = [str(month), str(month.next())]
    beside += [str(month.previous())] if month > _OLDEST else []
    rows = MonthReport.objects.filter(state=ReportState.CLOSED, month__in=beside)
    closed = {text: (first, end) for text, first, end in rows.values_list("month", "first", "end")}
    return bounds_among(closed, month, zone)


def bounds_among(
    closed: Mapping[str, tuple[datetime, datetime]], month: Month, zone: ZoneInfo
) -> MonthBounds:
    """Return the bounds of `month`, given the bounds of closed months: it keeps its own if closed,
    and otherwise adjoins closed neighbours."""
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
