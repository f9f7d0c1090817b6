"""io: keeps the sums of utilization by quarter of an hour, and says which of them can be used.

As usage/sums/rollups.py does with days: triggers note the hours of every change
(usage/migrations/_utilization_dirt.py) in the transaction that makes it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from django.db import connection, transaction

from usage.sums.rollups import HASHED, PURGED, RefreshBusy
from usage.time.windows import day_begin
from usage.utilization.amounts import NAMES, Utilization
from usage.utilization.quarters import EVER, QUARTER, Standing, floor
from usage.utilization.rows import read_asked, read_rows
from usage.utilization.sql import CAPACITY_WATCH, KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from usage.utilization.quarters import Range
    from usage.utilization.rows import Silences

    Dirt = tuple[tuple[datetime, datetime | None], ...]
    Tell = Callable[[int, int], None]

_LOCK: Final = 0x7574696C  # only one refresh at a time
_CHUNK: Final = timedelta(days=7)
"""What is summed at once: its holdings are in memory."""
_STATE: Final = f"""
SELECT s.begin, s.until, s.known_until, {KNOWN}, p.purged_before, p.zone
FROM (SELECT 1) AS one LEFT JOIN usage_utilizationstate AS s ON true{PURGED}"""  # noqa: S608
_STANDING: Final = _STATE.replace("p.zone", "p.zone, d.first_hour, d.last_hour").replace(
    "FROM (SELECT 1) AS one",
    "FROM (SELECT 1) AS one LEFT JOIN (SELECT DISTINCT first_hour, last_hour"
    " FROM usage_utilizationdirt) AS d ON true",
)
_EARLIEST: Final = """
SELECT least((SELECT min(at) FROM partitions_capacitychange),
             (SELECT min(reserved_at) FROM partitions_partitionlifetime))"""
_SUMS: Final = ", ".join(NAMES)
_FILL: Final = f"""
INSERT INTO usage_utilizationquarter (controller, begin, {_SUMS})
SELECT * FROM unnest(%s::text[], %s::timestamptz[], {", ".join(["%s::numeric[]"] * len(NAMES))})
"""  # noqa: S608  # text of this module
_READ: Final = f"""
SELECT q.controller, part.step, {", ".join(f"sum(q.{name})" for name in NAMES)}
FROM unnest(%s::timestamptz[], %s::timestamptz[], %s::int[]) AS part (begin, until, step)
JOIN usage_utilizationquarter AS q ON q.begin >= part.begin AND q.begin < part.until
GROUP BY 1, 2
"""  # noqa: S608


def read_standing() -> Standing:
    """Return which sums stand now."""
    with connection.cursor() as cursor:
        cursor.execute(_STANDING, {"watch": CAPACITY_WATCH})
        rows = cursor.fetchall()
    return _standing(rows[0], tuple((a, b) for *_, a, b in rows if a is not None))


def missing(until: datetime) -> list[Range]:
    """Return the ranges before `until` that are not summed, or no longer right."""
    with connection.cursor() as cursor:
        standing = read_standing()
        begin = _begin(cursor, standing)
    return [] if begin is None or begin >= until else standing.missing(begin, until)


def read_quarters(
    parts: Sequence[tuple[datetime, datetime, int]],
) -> list[tuple[str, int, Utilization]]:
    """Return controller, number and sum of each of `parts`: begin, end and its number."""
    if not parts:
        return []
    with connection.cursor() as cursor:
        cursor.execute(_READ, [list(each) for each in zip(*parts, strict=True)])
        return [(row[0], row[1], Utilization(*map(int, row[2:]))) for row in cursor.fetchall()]


def refresh(now: datetime, tell: Tell = lambda *_: None) -> int:
    """Sum all quarters that are over and new or changed; return how many.

    Cheap when there are few. Where another refresh is at work this one leaves it to it.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        return _refresh(cursor, now, tell) if _has_lock(cursor) else 0


def rebuild(now: datetime, tell: Tell) -> int:
    """Sum everything anew whose rows are there, in one transaction; return how many quarters.

    Readers see the old sums until it is done, writers do not wait. `tell` is called with how many
    quarters are done, of how many. Raises RefreshBusy.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        if not _has_lock(cursor):
            raise RefreshBusy("Utilization is summed by somebody else: try again in a minute.")
        standing = _known(cursor, ())
        if standing.frozen is None or standing.frozen <= standing.begin:
            cursor.execute("DELETE FROM usage_utilizationstate")
        else:
            cursor.execute("UPDATE usage_utilizationstate SET until = %s", [standing.frozen])
        return _refresh(cursor, now, tell)


def _has_lock(cursor: Any) -> bool:
    cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
    return bool(cursor.fetchone()[0])


def _refresh(cursor: Any, now: datetime, tell: Tell) -> int:
    cursor.execute(HASHED)
    # The dirt first: a change that commits after this statement keeps its own for next time.
    cursor.execute("DELETE FROM usage_utilizationdirt RETURNING first_hour, last_hour")
    standing = _known(cursor, tuple(set(cursor.fetchall())))
    begin = _begin(cursor, standing)
    if begin is None:
        return 0
    stale = standing.missing(begin, now)
    whole = sum((b - a) // QUARTER for a, b in stale)
    silences = read_asked(cursor, begin, max(begin, now), standing.known_now).silences
    done = 0
    for chunk in _chunks(stale):
        tell(done, whole)
        _delete(cursor, chunk)
        _fill(cursor, chunk, silences)
        done += (chunk[1] - chunk[0]) // QUARTER
    tell(done, whole)
    cursor.execute("DELETE FROM usage_utilizationstate")
    cursor.execute(
        "INSERT INTO usage_utilizationstate (begin, until, known_until) VALUES (%s, %s, %s)",
        [begin, max(begin, floor(now)), standing.known_now],
    )
    return done


def _known(cursor: Any, dirt: Dirt) -> Standing:
    cursor.execute(_STATE, {"watch": CAPACITY_WATCH})
    return _standing(cursor.fetchone(), dirt)


def _standing(row: Sequence[Any], dirt: Dirt) -> Standing:
    begin, until, known_then, known_now, purged, zone = row[:6]
    frozen = None if purged is None else day_begin(purged, ZoneInfo(zone))
    if begin is None:
        return Standing(known_now=known_now, frozen=frozen)
    return Standing(begin, until, dirt, known_then, known_now, frozen)


def _begin(cursor: Any, standing: Standing) -> datetime | None:
    """Return from when on quarters are or can be summed; None: nothing is recorded."""
    begin = standing.begin
    dirty = min((first for first, _ in standing.dirt), default=begin)
    if begin == EVER or dirty < begin:
        cursor.execute(_EARLIEST)
        earliest = cursor.fetchone()[0] or begin
        begin = min(begin, max(floor(earliest), dirty if begin < EVER else earliest))
    if standing.frozen is not None:
        kept = standing.begin <= standing.frozen <= standing.until
        begin = max(begin, standing.begin if kept else standing.frozen)
    return None if begin == EVER else floor(begin)


def _chunks(ranges: Iterable[Range]) -> Iterable[Range]:
    for begin, end in ranges:
        for n in range(-((begin - end) // _CHUNK)):
            yield begin + _CHUNK * n, min(begin + _CHUNK * (n + 1), end)


def _delete(cursor: Any, chunk: Range) -> None:
    cursor.execute(
        "DELETE FROM usage_utilizationquarter WHERE begin >= %s AND begin < %s", list(chunk)
    )


def _fill(cursor: Any, chunk: Range, silences: Silences) -> None:
    begin, end = chunk
    edges = [begin + QUARTER * n for n in range((end - begin) // QUARTER + 1)]
    rows = [
        (name, edges[n], *(getattr(amounts, each) for each in NAMES))
        for name, quarters in read_rows(cursor, edges, silences).items()
        for n, amounts in enumerate(quarters)
        if amounts != Utilization()
    ]
    if rows:
        cursor.execute(_FILL, [list(column) for column in zip(*rows, strict=True)])
