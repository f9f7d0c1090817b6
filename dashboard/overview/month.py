"""io: cost and IPU-hours of this month so far, day by day, and of last month up to the same time.

Computed at most every 30 s for each group of readers: the sum grows every second, and recomputing
it each time would load the database and change the pages' ETags.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from ipuhub.web.filters import BadFilter
from ipuhub.web.readings import Shared
from usage.reading import pricing_at
from usage.sums.compare import month_to_date
from usage.sums.measures import Measures, spell_change
from usage.sums.queries import Question, read_sums
from usage.sums.sql import STEP
from usage.time.months import bounds_among, month_bounds
from usage.time.windows import Month, Window, step_begins

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from ipuhub.web.access import Scope
    from usage.rates.pricing import Money, Pricing
    from usage.time.months import MonthBounds

_MICRO_IPU_HOUR: Final = 3600 * 10**6
_EARLIER, _REST = 0, 1  # the steps before those of the days


@dataclass(frozen=True, slots=True)
class MonthSoFar:
    """A month up to now: IPU-hours of pods and what all cost (None: no prices, or not for this
    reader), and the same of the month before up to the same time, `same_time`.

    `days`: hours or cost up to the end of each day. `is_refused`: it would take too long to add up.
    """

    first: datetime
    hours: Decimal | None = None
    cost: Money | None = None
    same_time: datetime | None = None
    earlier_hours: Decimal = Decimal(0)
    earlier_cost: Money | None = None
    days: tuple[float, ...] = ()
    is_refused: bool = False

    @property
    def change(self) -> str:
        """The difference in cost, else in hours, from the same time of last month."""
        if self.hours is None or self.same_time is None:
            return ""
        now, then = self.hours, self.earlier_hours
        if self.cost and self.earlier_cost:
            now, then = self.cost.amount, self.earlier_cost.amount
        return spell_change(now, then) if then else ""


_KEPT: Final[Shared[tuple[frozenset[str] | None, bool], MonthSoFar]] = Shared(seconds=30, most=1000)


def read_month(scope: Scope, now: datetime, zone: ZoneInfo, *, costed: bool) -> MonthSoFar:
    """Return this month so far, for a reader who may see cost if `costed`."""

    def read() -> MonthSoFar:
        try:
            return _compared(scope, now, zone, costed=costed)
        except BadFilter:  # raw rows of last month were purged, or its days have no sums
            return _alone(scope, now, zone)

    return _KEPT.get((scope.namespaces, costed), now, read)


def month_begin(now: datetime, zone: ZoneInfo) -> datetime:
    """The 1st, as the reports' zone has it."""
    return Month.of(now, zone).first(zone)


def _compared(scope: Scope, now: datetime, zone: ZoneInfo, *, costed: bool) -> MonthSoFar:
    month = Month.of(now, zone)
    before = month.previous().first(zone)
    pricing = pricing_at(before, now, zone) if costed else None
    span = _bounds(month, zone, pricing)
    # Whole hours: these are added up already.
    passed = int((now - span.first).total_seconds()) // 3600
    same_time = min(before + timedelta(hours=passed), span.first)
    days = step_begins(Window.of(span.first, span.end, now), "day", zone)
    begins = [before, max(same_time, before + timedelta(seconds=1)), *days]
    if begins[_REST] >= span.first:
        begins[_REST] = span.first - timedelta(seconds=1)
    window = Window.of(before, span.end, now)
    pricing = pricing and pricing.within(before, window.until)
    question = Question(scope, window, zone, pricing=pricing)
    rows = {row.step: row.measures for row in read_sums(question, begins, STEP, len(begins)).rows}
    return _so_far(span.first, same_time, rows, pricing)


def _bounds(month: Month, zone: ZoneInfo, pricing: Pricing | None) -> MonthBounds:
    """Return the bounds of the current month. Prices since the beginning of last month come with
    its closed months, so they need no query of their own."""
    if pricing is None:
        return month_bounds(month, zone)
    closed = {each.month: (each.first, each.end) for each in pricing.closed}
    return bounds_among(closed, month, zone)


def _so_far(
    first: datetime, same_time: datetime, rows: Mapping[int, Measures], pricing: Pricing | None
) -> MonthSoFar:
    days = [measures for step, measures in sorted(rows.items()) if step > _REST]
    total = sum(days, Measures(cost=None))
    earlier = rows.get(_EARLIER, Measures(cost=None))
    cost = pricing.money(total.cost) if pricing else None
    return MonthSoFar(
        first=first,
        hours=_hours(total),
        cost=cost,
        same_time=same_time,
        earlier_hours=_hours(earlier),
        earlier_cost=pricing.money(earlier.cost) if pricing else None,
        days=tuple(
            accumulate(float(each.cost or 0) if cost else float(_hours(each)) for each in days)
        ),
    )


def _alone(scope: Scope, now: datetime, zone: ZoneInfo) -> MonthSoFar:
    first = month_begin(now, zone)
    try:
        return MonthSoFar(first, hours=_hours(month_to_date(scope, now, zone)))
    except BadFilter:  # the page of usage, to which the figure links, says why
        return MonthSoFar(first, is_refused=True)


def _hours(measures: Measures) -> Decimal:
    return Decimal(measures.micro_ipu_seconds) / _MICRO_IPU_HOUR
