"""glue: until when the record of pods is complete, and how final a month's figures are.

Pages, reports and files all use this answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import connection

from ipuhub.recording.shapes import CHECKPOINT_TABLE, FAULT_TABLE, GAP_TABLE
from ipuhub.web.readings import judge
from usage.rates.pricing import money_of
from usage.time.windows import Month, day_begin

if TYPE_CHECKING:
    from datetime import date, datetime
    from zoneinfo import ZoneInfo

    from ipuhub.web.readings import Freshness
    from usage.rates.pricing import Money
    from usage.time.windows import Window

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
    """About one month. `complete_until` None: nobody has watched pods yet; `earliest`: the first
    month with rows; `purged_before`: the day before which rows of this month were deleted;
    `version`, `state`, `made_at`: of its newest report, if there is one; `cost`: its money, in the
    currency of its tariff; `corrections`: how often something was found after it was closed;
    `freshness`: when the watch of pods was last heard of.
    """

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
        judge(seen, now),
    )
