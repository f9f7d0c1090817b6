"""io: keeps sums by span of days, by day and by hour, and chooses which of them can be used.

usage/sums/engine.py computes them and knows which are stale.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

from usage.reading import coverage_of
from usage.sums.engine import PURGED, Rollup, Work
from usage.sums.parts import (
    HOUR,
    Coverage,
    Stretch,
    days_to_sum,
    hours_begin,
    hours_to_sum,
    runs,
    spans_to_sum,
)
from usage.sums.pieces import FULL, PARTITIONS, stretch_parameters
from usage.sums.refill import REFILL, REFILL_SPANS, TABLES
from usage.time.windows import day_begin, local_day

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from usage.sums.engine import Dirt, Tell

_ROLLUP: Final = Rollup(
    0x75736167,
    "usage_rollupdirt",
    "Another process is computing the daily totals. Try again in a minute.",
)
_DAY: Final = timedelta(days=1)
_EVER: Final = date(1970, 1, 1)
_RUN_DAYS: Final = 31  # of one statement
_STATE: Final = (
    """
SELECT s.zone, s.until, s.hours_from, s.hours_until, s.accelerated_from,
  p.purged_before, p.zone
FROM (SELECT 1) AS one LEFT JOIN usage_rollupstate s ON true"""
    + PURGED  # text of this module
)


def refresh(now: datetime, zone: ZoneInfo) -> int:
    """Sum all days of `zone` before today's and hours since `hours_begin` that are new or changed.

    Return how many days.
    """
    return _ROLLUP.refresh(lambda cursor, dirt: _plan(cursor, dirt, now, zone))


def rebuild(now: datetime, zone: ZoneInfo, tell: Tell) -> int:
    """Sum everything again; return how many days. Raises RefreshBusy."""

    def forget(cursor: Any) -> None:
        cursor.execute("UPDATE usage_rollupstate SET zone = ''")

    return _ROLLUP.rebuild(forget, lambda cursor, dirt: _plan(cursor, dirt, now, zone), tell)


def _plan(cursor: Any, dirt: Dirt, now: datetime, zone: ZoneInfo) -> Work[list[date]]:
    cover = _known(cursor, dirt, zone)
    days = _stale_days(cursor, cover, now, zone)
    _delete(cursor, "day", days)

    def fill(chunk: list[date]) -> None:
        edges = [day_begin(day, zone) for day in (*chunk, chunk[-1] + _DAY)]
        _refill(cursor, "day", chunk, edges)

    def finish() -> None:
        _refill_spans(cursor, days if cover.zone else _summed_days(cursor), local_day(now, zone))
        _delete_hours_before(cursor, hours_begin(now, zone))
        hours = hours_to_sum(cover, now, zone)
        _delete(cursor, "hour", hours)
        for run in _hour_runs(hours):
            _refill(cursor, "hour", run, [*run, run[-1] + HOUR])
        _write_state(cursor, zone, now, cover.accelerated_from)

    return Work([(chunk, len(chunk)) for chunk in _chunks(days)], fill, finish)


def _known(cursor: Any, dirt: Dirt, zone: ZoneInfo) -> Coverage:
    """Return the valid coverage; if there is none, delete all sums except frozen ones.

    Sums of an older release are never valid: it has no sums of accelerators and spans.
    """
    cursor.execute(_STATE)
    known = coverage_of([(*cursor.fetchone(), None, None)])
    frozen = known.frozen_before or _EVER
    if known.zone != zone.key or known.accelerated_from is None:
        for grain, first in (("hour", None), ("day", frozen), ("span", None)):
            for table in TABLES[grain]:
                condition = "" if first is None else f" WHERE {grain} >= %(first)s"
                cursor.execute(f"DELETE FROM {table}{condition}", {"first": first})  # noqa: S608
        since = known.accelerated_from
        return Coverage(
            dirt=dirt,
            frozen_before=known.frozen_before,
            frozen_zone=known.frozen_zone,
            accelerated_from=frozen if since is None else since,
        )
    return replace(known, dirt=dirt)


def _stale_days(cursor: Any, cover: Coverage, now: datetime, zone: ZoneInfo) -> list[date]:
    cursor.execute(
        "SELECT least((SELECT min(scheduled_at) FROM usage_podlifetime),"
        " (SELECT min(reserved_at) FROM partitions_holdings))"
    )
    earliest = cursor.fetchone()[0]
    if earliest is None and not cover.dirt:
        return []
    return days_to_sum(cover, local_day(earliest or now, zone), now, zone)


def _summed_days(cursor: Any) -> list[date]:
    cursor.execute(f"SELECT day FROM {FULL}day UNION SELECT day FROM {PARTITIONS}day")  # noqa: S608
    return [day for (day,) in cursor.fetchall()]


def _refill_spans(cursor: Any, days: Sequence[date], until: date) -> None:
    """Recompute the sums of the spans of these summed days; delete spans that are not over."""
    spans = spans_to_sum(days)
    _delete(cursor, "span", [first for first, _ in spans])
    ended = [(first, end) for first, end in spans if end <= until]
    parameters = {"spans": [first for first, _ in ended], "ends": [end for _, end in ended]}
    for statement in REFILL_SPANS if ended else ():
        cursor.execute(statement, parameters)


def _delete(cursor: Any, grain: str, times: Sequence[date]) -> None:
    for table in TABLES[grain] if times else ():
        cursor.execute(f"DELETE FROM {table} WHERE {grain} = ANY(%s)", [list(times)])  # noqa: S608


def _delete_hours_before(cursor: Any, begin: datetime) -> None:
    for table in TABLES["hour"]:
        cursor.execute(f"DELETE FROM {table} WHERE hour < %s", [begin])  # noqa: S608


def _refill(cursor: Any, grain: str, times: Sequence[date], edges: Sequence[datetime]) -> None:
    stretch = Stretch(tuple(edges), tuple(range(len(times))), (True,) * len(times))
    parameters = {"times": list(times), **stretch_parameters("s", stretch)}
    for statement in REFILL[grain]:
        cursor.execute(statement, parameters)


def _chunks(days: Sequence[date]) -> Iterable[list[date]]:
    for first, last in runs(days):
        run = [first + _DAY * n for n in range((last - first).days + 1)]
        for start in range(0, len(run), _RUN_DAYS):
            yield run[start : start + _RUN_DAYS]


def _hour_runs(hours: Sequence[datetime]) -> list[list[datetime]]:
    found: list[list[datetime]] = []
    for hour in hours:
        if found and found[-1][-1] + HOUR == hour:
            found[-1].append(hour)
        else:
            found.append([hour])
    return found


def _write_state(cursor: Any, zone: ZoneInfo, now: datetime, accelerated: date | None) -> None:
    begin = hours_begin(now, zone)
    until = now.replace(minute=0, second=0, microsecond=0)
    cursor.execute("DELETE FROM usage_rollupstate")
    cursor.execute(
        "INSERT INTO usage_rollupstate (zone, until, hours_from, hours_until, accelerated_from)"
        " VALUES (%s, %s, %s, %s, %s)",
        [zone.key, local_day(now, zone), begin, max(begin, until), accelerated],
    )
