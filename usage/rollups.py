"""io: keeps the day sums of pods, and says which of them can be used.

Triggers note the days of every change (usage/rollupsql.py) in the transaction that makes it, so a
reader never takes a sum that lacks a committed change: those days are added up from the pods
until `refresh` has summed them anew.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.db import connection, transaction

from usage.parts import Coverage, Stretch, days_to_sum, runs
from usage.usagesql import REFILL, stretch_parameters
from usage.windows import day_begin, local_day

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date, datetime
    from zoneinfo import ZoneInfo

_LOCK: Final = 0x75736167  # only one refresh at a time
_DAY: Final = timedelta(days=1)
_RUN_DAYS: Final = 62  # of one statement
_COVERAGE: Final = """
SELECT s.zone, s.until, d.first_day, d.last_day FROM usage_rollupstate s
LEFT JOIN (SELECT DISTINCT first_day, last_day FROM usage_rollupdirt) d
  ON d.first_day <= s.until + 1"""


def read_coverage() -> Coverage:
    """Return which day sums stand now."""
    with connection.cursor() as cursor:
        cursor.execute(_COVERAGE)
        return _coverage(cursor.fetchall())


def refresh(now: datetime, zone: ZoneInfo) -> int:
    """Sum all days of `zone` before today's that are new or changed; return how many.

    Cheap when there are none. Where another refresh is at work this one leaves it to it.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
        if not cursor.fetchone()[0]:
            return 0
        # The dirt first: a change that commits after this statement keeps its own for next time,
        # and whether the sums below already have it does not matter then.
        cursor.execute("DELETE FROM usage_rollupdirt RETURNING first_day, last_day")
        dirt = tuple({(first, last) for first, last in cursor.fetchall()})
        days = _stale_days(cursor, dirt, now, zone)
        cursor.execute("DELETE FROM usage_usageday WHERE day = ANY(%s)", [days])
        for chunk in _chunks(days):
            cursor.execute(REFILL, _refill_parameters(chunk, zone))
        _write_state(cursor, zone, local_day(now, zone))
        return len(days)


def _stale_days(
    cursor: Any, dirt: tuple[tuple[date, date | None], ...], now: datetime, zone: ZoneInfo
) -> list[date]:
    cursor.execute("SELECT zone, until FROM usage_rollupstate")
    state = cursor.fetchone()
    cover = Coverage(state[0], state[1], dirt) if state else Coverage()
    if cover.zone != zone.key:
        cursor.execute("DELETE FROM usage_usageday")
        cover = Coverage()
    cursor.execute("SELECT min(scheduled_at) FROM usage_podlifetime")
    earliest = cursor.fetchone()[0]
    if earliest is None and not dirt:
        return []
    first = local_day(earliest or now, zone)
    return days_to_sum(cover, first, now, zone)


def _chunks(days: Sequence[date]) -> Iterable[list[date]]:
    for first, last in runs(days):
        run = [first + _DAY * n for n in range((last - first).days + 1)]
        for start in range(0, len(run), _RUN_DAYS):
            yield run[start : start + _RUN_DAYS]


def _refill_parameters(days: Sequence[date], zone: ZoneInfo) -> dict[str, Any]:
    bounds = [day_begin(day, zone) for day in (*days, days[-1] + _DAY)]
    stretch = Stretch(tuple(bounds), tuple(range(len(days))), (True,) * len(days))
    return {"days": list(days), **stretch_parameters("s", stretch)}


def _write_state(cursor: Any, zone: ZoneInfo, until: date) -> None:
    cursor.execute("DELETE FROM usage_rollupstate")
    cursor.execute("INSERT INTO usage_rollupstate (zone, until) VALUES (%s, %s)", [zone.key, until])


def _coverage(rows: Sequence[tuple[Any, ...]]) -> Coverage:
    if not rows:
        return Coverage()
    dirt = tuple((first, last) for _, _, first, last in rows if first is not None)
    return Coverage(rows[0][0], rows[0][1], dirt)
