"""io: keeps sums by span of days, by day and by hour, and chooses which of them can be used.

usage/sums/engine.py computes them and knows which are stale.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from usage.reading import coverage_of
from usage.sums.engine import PURGED, Rollup, Work
from usage.sums.parts import (
    HOUR,
    Coverage,
    Stretch,
    ceil_hour,
    days_to_sum,
    floor_hour,
    hours_begin,
    hours_to_sum,
    kept_to_sum,
    runs,
    spans_to_sum,
    whole_hours,
)
from usage.sums.pieces import FULL, PARTITIONS, stretch_parameters
from usage.sums.refill import (
    KEPT_TABLES,
    REFILL,
    REFILL_KEPT,
    REFILL_SPANS,
    TABLES,
    TODAY_TABLES,
)
from usage.time.windows import day_begin, local_day

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from zoneinfo import ZoneInfo

    from usage.sums.engine import Dirt, Tell
    from usage.sums.parts import Range

_ROLLUP: Final = Rollup(
    0x75736167,
    "usage_rollupdirt",
    "Another process is computing the daily totals. Try again in a minute.",
)
_DAY: Final = timedelta(days=1)
_EVER: Final = date(1970, 1, 1)
_ALWAYS: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RUN_DAYS: Final = 31  # of one statement
_RUN_HOURS: Final = 3 * 24  # whose sums by kind fit in `work_mem`
_STATE: Final = (
    """
SELECT s.zone, s.until, s.hours_from, s.hours_until, s.accelerated_from, s.kept_from,
  p.purged_before, p.zone
FROM (SELECT 1) AS one LEFT JOIN usage_rollupstate s ON true"""
    + PURGED  # text of this module
)


def refresh(now: datetime, zone: ZoneInfo) -> int:
    """Sum all days of `zone` before today's, hours since `hours_begin` and hours that are kept,
    that are new or changed.

    Return how many days.
    """
    return _ROLLUP.refresh(lambda cursor, dirt: _plan(cursor, dirt, now, zone))


def rebuild(now: datetime, zone: ZoneInfo, tell: Tell) -> int:
    """Sum everything again; return how many days. Raises RefreshBusy."""

    def forget(cursor: Any) -> None:
        cursor.execute("UPDATE usage_rollupstate SET zone = ''")

    return _ROLLUP.rebuild(forget, lambda cursor, dirt: _plan(cursor, dirt, now, zone), tell)


def _plan(cursor: Any, dirt: Dirt, now: datetime, zone: ZoneInfo) -> Work[Callable[[], None]]:
    cover = _known(cursor, dirt, zone)
    earliest = _earliest(cursor, cover, now)
    days = [] if earliest is None else days_to_sum(cover, local_day(earliest, zone), now, zone)
    hours = [] if earliest is None else kept_to_sum(cover, earliest, now, zone)
    _delete(cursor, "day", days)

    def fill_days(chunk: list[date]) -> None:
        edges = [day_begin(day, zone) for day in (*chunk, chunk[-1] + _DAY)]
        _refill(cursor, REFILL["day"], chunk, edges)

    def finish() -> None:
        _refill_spans(cursor, days if cover.zone else _summed_days(cursor), local_day(now, zone))
        _delete_hours_before(cursor, hours_begin(now, zone))
        hours = hours_to_sum(cover, now, zone)
        _delete(cursor, "hour", hours)
        for run in _hour_runs(hours):
            _refill(cursor, REFILL["hour"], run, [*run, run[-1] + HOUR])
        _write_state(cursor, zone, now, cover)

    chunks = [(day_begin(run[0], zone), partial(fill_days, run), len(run)) for run in _chunks(days)]
    chunks += [(run[0], partial(_fill_kept, cursor, run), 0) for run in _kept_runs(hours)]
    chunks.sort(key=lambda chunk: chunk[0])
    return Work([(fill, size) for _, fill, size in chunks], lambda fill: fill(), finish)


def _known(cursor: Any, dirt: Dirt, zone: ZoneInfo) -> Coverage:
    """Return the valid coverage; if there is none, delete all sums except frozen ones.

    Sums of an older release are never valid: it has no sums of accelerators and spans, or keeps no
    hours.
    """
    cursor.execute(_STATE)
    known = coverage_of([(*cursor.fetchone(), None, None)])
    frozen = known.frozen_before or _EVER
    is_current = known.zone == zone.key and known.accelerated_from is not None
    if not is_current:
        _delete_from(cursor, TABLES["day"], "day", frozen)
        _delete_from(cursor, TABLES["span"], "span", None)
        since = known.accelerated_from
        known = Coverage(
            frozen_before=known.frozen_before,
            frozen_zone=known.frozen_zone,
            accelerated_from=frozen if since is None else since,
            kept_from=known.kept_from,
        )
    if not is_current or known.kept_from is None:
        rows_from = known.frozen_until if known.kept_from else None
        _delete_from(cursor, TODAY_TABLES, "hour", None)
        _delete_from(cursor, KEPT_TABLES, "hour", rows_from)
        known = replace(known, hours=None)
    return replace(known, dirt=dirt, kept_from=_kept_from(known))


def _kept_from(known: Coverage) -> datetime:
    """Return from when on hours can be kept: none before is whole, or can be summed any more."""
    frozen = known.frozen_until or _ALWAYS
    if known.kept_from is None or frozen != floor_hour(frozen):
        return max(known.kept_from or frozen, ceil_hour(frozen))
    return known.kept_from


def _delete_from(cursor: Any, tables: Iterable[str], grain: str, first: Any) -> None:
    condition = "" if first is None else f" WHERE {grain} >= %(first)s"
    for table in tables:
        cursor.execute(f"DELETE FROM {table}{condition}", {"first": first})  # noqa: S608


def _earliest(cursor: Any, cover: Coverage, now: datetime) -> datetime | None:
    """Return when the first lifetime begins; now, if rows were deleted and none is left; None:
    there is nothing to sum."""
    cursor.execute(
        "SELECT least((SELECT min(scheduled_at) FROM usage_podlifetime),"
        " (SELECT min(reserved_at) FROM partitions_holdings))"
    )
    earliest: datetime | None = cursor.fetchone()[0]
    return now if earliest is None and cover.dirt else earliest


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
    for table in TODAY_TABLES:
        cursor.execute(f"DELETE FROM {table} WHERE hour < %s", [begin])  # noqa: S608


def _fill_kept(cursor: Any, run: list[datetime]) -> None:
    for table in KEPT_TABLES:
        cursor.execute(
            f"DELETE FROM {table} WHERE hour >= %s AND hour <= %s",  # noqa: S608
            [run[0], run[-1]],
        )
    _refill(cursor, REFILL_KEPT, run, [*run, run[-1] + HOUR])


def _refill(
    cursor: Any, statements: Sequence[str], times: Sequence[date], edges: Sequence[datetime]
) -> None:
    stretch = Stretch(tuple(edges), tuple(range(len(times))), (True,) * len(times))
    parameters = {"times": list(times), **stretch_parameters("s", stretch)}
    for statement in statements:
        cursor.execute(statement, parameters)


def _kept_runs(ranges: Iterable[Range]) -> Iterable[list[datetime]]:
    for begin, end in ranges:
        hours = whole_hours(begin, end)
        for start in range(0, len(hours), _RUN_HOURS):
            yield hours[start : start + _RUN_HOURS]


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


def _write_state(cursor: Any, zone: ZoneInfo, now: datetime, cover: Coverage) -> None:
    begin = hours_begin(now, zone)
    until = max(begin, floor_hour(now))
    columns = "zone, until, hours_from, hours_until, accelerated_from, kept_from"
    cursor.execute("DELETE FROM usage_rollupstate")
    cursor.execute(
        f"INSERT INTO usage_rollupstate ({columns}) VALUES (%s, %s, %s, %s, %s, %s)",  # noqa: S608
        [zone.key, local_day(now, zone), begin, until, cover.accelerated_from, cover.kept_from],
    )
