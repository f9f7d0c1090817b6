"""io: when a month begins and ends: as its zone's calendar says, but for what is closed beside it.

Closed months never change, in whatever zone they were closed. A month beside one begins where that
ended, or ends where it begins, so that each second is billed in exactly one month, also after the
report zone was changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from ipuhub.months import Month
from usage.models import MonthReport, ReportState

if TYPE_CHECKING:
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


def _span(first: datetime, end: datetime) -> str:
    return f"{first:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
