"""glue: what a page says about its figures: until when they are complete, how final they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import connection

from ipuhub.months import Month
from ipuhub.web.freshness import judge
from usage.windows import day_begin

if TYPE_CHECKING:
    from datetime import date, datetime
    from zoneinfo import ZoneInfo

    from ipuhub.web.freshness import Freshness
    from usage.windows import Window

POD_WATCH = "pods"  # checkpoints and gaps of the watch of pods have names that begin so
_FACTS = """
SELECT
  (SELECT min(position_at) FROM ipuhub_watchcheckpoint WHERE starts_with(name, %(watch)s)),
  (SELECT min(began_at) FROM ipuhub_watchgap WHERE starts_with(watch, %(watch)s)
     AND began_at < %(end)s AND ended_at > %(begin)s),
  (SELECT count(*) FROM ipuhub_watchgap WHERE starts_with(watch, %(watch)s)
     AND began_at < %(end)s AND ended_at > %(begin)s),
  (SELECT min(scheduled_at) FROM usage_podlifetime),
  (SELECT max(purged_before) FROM usage_purgestate),
  (SELECT count(*) FROM ipuhub_recordfault),
  r.version, r.state, r.generated_at
FROM (SELECT 1) AS one LEFT JOIN (
  SELECT version, state, generated_at FROM usage_monthreport WHERE month = %(month)s
  ORDER BY version DESC LIMIT 1) AS r ON true"""


@dataclass(frozen=True, slots=True)
class Facts:
    """About one month. `complete_until` None: nobody has watched pods yet; `earliest`: the first
    month with rows; `purged_before`: the day before which rows of this month were deleted;
    `version`, `state`, `made_at`: of its newest report, if there is one;
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
    freshness: Freshness


def month_facts(month: Month, window: Window, now: datetime, zone: ZoneInfo) -> Facts:
    """Return the facts of `month`, in one query."""
    parameters: dict[str, Any] = {
        "watch": POD_WATCH,
        "begin": window.begin,
        "end": window.end,
        "month": str(month),
    }
    with connection.cursor() as cursor:
        cursor.execute(_FACTS, parameters)
        seen, gap, gaps, first, purged, faults, version, state, made_at = cursor.fetchone()
    return Facts(
        _complete_until(seen, gap, window),
        gaps,
        min(Month.of(first or now, zone), month),
        purged if purged and day_begin(purged, zone) > window.begin else None,
        faults,
        version,
        state,
        made_at,
        judge(seen, now),
    )


def _complete_until(seen: Any, gap: Any, window: Window) -> datetime | None:
    if seen is None:
        return None
    return min(instant for instant in (seen, gap, window.end) if instant is not None)
