"""io: keeps sums by span of days, by day and by hour, and chooses which of them can be used.

usage/sums/engine.py computes them and knows which are stale.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
    hours_to_add,
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


def refresh(
    now: datetime,
    zone: ZoneInfo,
    tell: Tell = lambda *_: None,
    has_time: Callable[[], bool] = lambda: True,
) -> int:
    """Sum all days of `zone` before today's, hours since `hours_begin` and hours that are kept,
    that are new or changed. Return how many days.

    Then sum the hours before those that are kept while the caller `has_time`; `tell` is called
    with how many of them are done, of how many.
    """
    days = _ROLLUP.refresh(lambda cursor, dirt: _plan(cursor, dirt, now, zone))
    _add_hours(zone, tell, has_time)
    return days


def rebuild(now: datetime, zone: ZoneInfo, tell: Tell) -> int:
    """Sum everything again, except hours that are still to be added; return how many days. Raises
    RefreshBusy."""

    def forget(cursor: Any) -> None:
        cursor.execute("UPDATE usage_rollupstate SET zone = ''")

    return _ROLLUP.rebuild(forget, lambda cursor, dirt: _plan(cursor, dirt, now, zone), tell)


def _add_hours(zone: ZoneInfo, tell: Tell, has_time: Callable[[], bool]) -> None:
    """Sum the hours before those that are kept, the newest first, each piece in a transaction of
    its own: after a release that kept none a transaction for all of them would take minutes, and
    lose everything when it is ended. Until then their lifetimes are read."""
    done = 0
    while has_time():
        added = _ROLLUP.make_piece(lambda cursor: _add_piece(cursor, zone))
        if added is None:
            return
        done += added.hours
        tell(done, done + added.left)


class _Added(NamedTuple):
    """The numbers of hours that were added to those that are kept, and that are left to add."""

    hours: int
    left: int


def _add_piece(cursor: Any, zone: ZoneInfo) -> _Added | None:
    """Sum the newest hours before those that are kept; None: there are none to add."""
    cursor.execute(_STATE)
    cover = coverage_of([(*cursor.fetchone(), None, None)])
    last = ceil_hour(cover.frozen_until or _ALWAYS)
    if cover.zone != zone.key or cover.kept_from is None or cover.kept_from <= last:
        return None
    earliest = _earliest(cursor)
    found = None if earliest is None else hours_to_add(cover, earliest)
    if found is None:
        _write_kept_from(cursor, last)
        return None
    hours = whole_hours(*found)
    piece = hours[-_RUN_HOURS:]
    # A change meanwhile leaves its dirt, which the next refresh takes.
    _fill_kept(cursor, piece)
    left = len(hours) - len(piece)
    _write_kept_from(cursor, piece[0] if left else last)
    return _Added(len(piece), left)


def _write_kept_from(cursor: Any, first: datetime) -> None:
    cursor.execute("UPDATE usage_rollupstate SET kept_from = %s", [first])


def _plan(cursor: Any, dirt: Dirt, now: datetime, zone: ZoneInfo) -> Work[Callable[[], None]]:
    cover = _known(cursor, dirt, now, zone)
    earliest = _earliest(cursor) or (now if cover.dirt else None)  # its rows were deleted
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


def _known(cursor: Any, dirt: Dirt, now: datetime, zone: ZoneInfo) -> Coverage:
    """Return the valid coverage; if there is none, delete all sums except frozen ones. Hours of UTC
    that are kept stay whatever the zone.

    Sums of an older release are never valid: it has no sums of accelerators and spans, or keeps no
    hours.
    """
    cursor.execute(_STATE)
    known = coverage_of([(*cursor.fetchone(), None, None)])
    frozen = known.frozen_before or _EVER
    is_current = known.zone == zone.key and known.accelerated_from is not None
    keeps_hours = bool(known.zone) and known.kept_from is not None
    if not is_current:
        _delete_from(cursor, TABLES["day"], "day", frozen)
        _delete_from(cursor, TABLES["span"], "span", None)
        since = known.accelerated_from
        known = Coverage(
            frozen_before=known.frozen_before,
            frozen_zone=known.frozen_zone,
            accelerated_from=frozen if since is None else since,
            hours=known.hours and (known.hours[1], known.hours[1]),
            kept_from=known.kept_from,
        )
    if not is_current or not keeps_hours:
        _delete_from(cursor, TODAY_TABLES, "hour", None)
    if not keeps_hours:
        rows_from = known.frozen_until if known.kept_from else None
        _delete_from(cursor, KEPT_TABLES, "hour", rows_from)
        known = replace(known, hours=None)
    return replace(known, dirt=dirt, kept_from=_kept_from(known, now, zone))


def _kept_from(known: Coverage, now: datetime, zone: ZoneInfo) -> datetime:
    """Return from when on hours are kept; `_add_hours` adds those before. Where rows were deleted
    before an instant within an hour, that hour is not whole."""
    first = known.kept_from or ceil_hour(hours_begin(now, zone))
    frozen = known.frozen_until or first
    return first if frozen == floor_hour(frozen) else max(first, ceil_hour(frozen))


def _delete_from(cursor: Any, tables: Iterable[str], grain: str, first: Any) -> None:
    condition = "" if first is None else f" WHERE {grain} >= %(first)s"
    for table in tables:
        cursor.execute(f"DELETE FROM {table}{condition}", {"first": first})  # noqa: S608


def _earliest(cursor: Any) -> datetime | None:
    """Return when the first lifetime begins; None: there are none."""
    cursor.execute(
        "SELECT least((SELECT min(scheduled_at) FROM usage_podlifetime),"
        " (SELECT min(reserved_at) FROM partitions_holdings))"
    )
    earliest: datetime | None = cursor.fetchone()[0]
    return earliest


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
