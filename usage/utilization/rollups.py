"""io: keeps sums of utilization by quarter hour and hour, and chooses where a range uses them.

usage/sums/engine.py computes them and knows which are stale. A sum is used if no row of its time
has changed since, and the controllers' state is known as far now as it was then. Rows before
`frozen` were purged: their sums stay in use.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection

from usage.sums.engine import PURGED, Rollup, Work
from usage.sums.parts import DEAR, HOUR, gaps_between
from usage.time.windows import day_begin
from usage.utilization.amounts import NAMES, Utilization
from usage.utilization.rows import CAPACITY_WATCH, KNOWN, read_polls, read_rows
from usage.utilization.weekhours import FIRST, SLOTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from usage.sums.engine import Dirt, Tell
    from usage.utilization.rows import Gaps
    from usage.utilization.weekhours import Week

QUARTER: Final = timedelta(minutes=15)
MAX_STRETCHES: Final = 2  # each takes a query of three statements
EVER: Final = datetime(9999, 1, 1, tzinfo=UTC)
Range = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class SummedTime:
    """The summed time: the quarters of [begin, until), except hours in `dirt` (first and last; no
    last: all up to now).

    `known_then` and `known_now`: the last poll of controllers when it was summed, and now; None:
    never. `with_hours`: whether hours are summed as well as quarters.
    """

    begin: datetime = EVER
    until: datetime = EVER
    dirt: tuple[tuple[datetime, datetime | None], ...] = ()
    known_then: datetime | None = None
    known_now: datetime | None = None
    frozen: datetime | None = None
    with_hours: bool = False

    def summed(self, begin: datetime, until: datetime) -> list[Range]:
        """Return the ranges of whole quarters in [begin, until), in order, whose sums are right."""
        begin, until = max(ceil(begin), self.begin), min(floor(until), self.until)
        frozen = min(max(begin, floor(self.frozen or begin)), until)
        stale = [(max(a, frozen), b) for a, b in self._stale() if b > frozen]
        ranges = [(begin, frozen), *gaps_between(sorted(stale), frozen, until)]
        return [each for each in _joined(ranges) if each[0] < each[1]]

    def missing(self, begin: datetime, until: datetime) -> list[Range]:
        """Return the ranges of whole quarters in [begin, until) that are to be summed."""
        first = max(floor(begin), floor(self.frozen or begin))
        last = floor(until)
        return list(gaps_between(self.summed(first, last), first, last))

    def _stale(self) -> list[Range]:
        found = [(a, self.until if b is None else b + HOUR) for a, b in self.dirt]
        if self.known_then != self.known_now:
            first_known = min(self.known_then or EVER, self.known_now or EVER)
            found.append((floor(first_known), self.until))
        return found


@dataclass(frozen=True, slots=True)
class Plan:
    """A range in parts that overlap nowhere and leave nothing out.

    `sums`: begin and end of whole quarters, and the number of the step that they are in.
    `stretches`: from which to which edge rows are read, with the edges of steps between them, and
    the number of the first step.
    """

    sums: tuple[tuple[datetime, datetime, int], ...]
    stretches: tuple[tuple[tuple[datetime, ...], int], ...]

    @property
    def is_dear(self) -> bool:
        """Return whether rows of more than a day or two are read."""
        return sum((edges[-1] - edges[0] for edges, _ in self.stretches), timedelta()) > DEAR


def plan(edges: Sequence[datetime], standing: SummedTime) -> Plan:
    """Return the parts of steps that begin at `edges`, the last of which is their end."""
    sums = [
        (max(ceil(edges[step]), begin), min(floor(edges[step + 1]), end), step)
        for begin, end in standing.summed(edges[0], edges[-1])
        for step in range(bisect_right(edges, begin) - 1, bisect_left(edges, end))
    ]
    sums = [each for each in sums if each[0] < each[1]]
    gaps = list(gaps_between([(a, b) for a, b, _ in sums], edges[0], edges[-1]))
    while len(gaps) > MAX_STRETCHES:
        holes = [after[0] - gap[1] for gap, after in pairwise(gaps)]
        n = holes.index(min(holes))
        gaps[n : n + 2] = [(gaps[n][0], gaps[n + 1][1])]
    sums = [each for each in sums if not any(a <= each[0] < b for a, b in gaps)]
    return Plan(tuple(sums), tuple(_stretch(a, b, edges) for a, b in gaps))


def floor(instant: datetime, grain: timedelta = QUARTER) -> datetime:
    """Return the beginning of the quarter, or the hour, that contains `instant`."""
    return instant - (instant - datetime(2000, 1, 1, tzinfo=UTC)) % grain


def ceil(instant: datetime, grain: timedelta = QUARTER) -> datetime:
    """Return when the first quarter, or hour, begins that begins at or after `instant`."""
    return floor(instant + grain - timedelta(microseconds=1), grain)


def _stretch(
    begin: datetime, end: datetime, edges: Sequence[datetime]
) -> tuple[tuple[datetime, ...], int]:
    low, high = bisect_right(edges, begin), bisect_left(edges, end)
    return (begin, *edges[low:high], end), low - 1


def _joined(ranges: Iterable[Range]) -> list[Range]:
    found: list[Range] = []
    for begin, end in ranges:
        if found and found[-1][1] == begin:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


_ROLLUP: Final = Rollup(
    0x7574696C,
    "usage_utilizationdirt",
    "Another process is computing the utilization totals. Try again in a minute.",
)
_CHUNK: Final = timedelta(days=7)
"""Time that is summed at once: its holdings are in memory."""
_STATE: Final = f"""
SELECT s.begin, s.until, s.known_until, s.with_hours, {KNOWN}, p.purged_before, p.zone
FROM (SELECT 1) AS one LEFT JOIN usage_utilizationstate AS s ON true{PURGED}"""  # noqa: S608
_STANDING: Final = _STATE.replace("p.zone", "p.zone, d.first_hour, d.last_hour").replace(
    "FROM (SELECT 1) AS one",
    "FROM (SELECT 1) AS one LEFT JOIN (SELECT DISTINCT first_hour, last_hour"
    " FROM usage_utilizationdirt) AS d ON true",
)
_EARLIEST: Final = """
SELECT least((SELECT min(at) FROM partitions_capacity),
             (SELECT min(reserved_at) FROM partitions_holdings))"""
_SUMS: Final = ", ".join(NAMES)
_ADDED_UP: Final = ", ".join(f"sum({name})" for name in NAMES)
_NAMED_SUMS: Final = ", ".join(f"sum({name}) AS {name}" for name in NAMES)
_FILL: Final = f"""
INSERT INTO usage_utilizationquarter (controller, begin, {_SUMS})
SELECT * FROM unnest(%s::text[], %s::timestamptz[], {", ".join(["%s::numeric[]"] * len(NAMES))})
"""  # noqa: S608  # text of this module
_FILL_HOURS: Final = f"""
INSERT INTO usage_utilizationhour (controller, begin, {_SUMS})
SELECT controller, date_trunc('hour', begin, 'UTC'), {_ADDED_UP}
FROM usage_utilizationquarter WHERE begin >= %s AND begin < %s GROUP BY 1, 2
"""  # noqa: S608


def _cut(*of_row: str) -> str:
    """Return the query of sums of cuts, by what is said of a row. Each is summed by itself: of the
    groups of one the planner knows the number, of all cuts at once it expects one for each row, and
    sorts a year on disk."""
    by = ", ".join(str(n + 1) for n in range(len(of_row)))
    return " UNION ALL ".join(
        f"SELECT cut.step, sums.* FROM unnest(%s::timestamptz[], %s::timestamptz[],"  # noqa: S608
        f" %s::int[], %s::int[]) AS cut (begin, until, step, shift)"
        f" CROSS JOIN LATERAL (SELECT {', '.join(of_row)}, {_NAMED_SUMS} FROM {table}"
        f" WHERE {table}.begin >= cut.begin AND {table}.begin < cut.until GROUP BY {by}) AS sums"
        for table in ("usage_utilizationhour", "usage_utilizationquarter")
    )


_READ: Final = f"""
SELECT controller, step, {_ADDED_UP} FROM ({_cut("controller")}) AS part GROUP BY 1, 2
"""  # noqa: S608  # text of this module
_READ_TOTAL: Final = _READ.replace(_cut("controller"), _cut("''::text AS controller"))
"""Of all controllers together, without a row for each."""
_SLOT: Final = f"((date_part('epoch', begin)::bigint + cut.shift) / 3600 + {FIRST}) %% {SLOTS}"
_READ_WEEK: Final = f"""
SELECT controller, step, slot, {_ADDED_UP}
FROM ({_cut("controller", f"{_SLOT} AS slot")}) AS part GROUP BY 1, 2, 3
"""  # noqa: S608  # text of this module
"""By controller, step and hour of the week: a year is read once, for the steps and the week."""
HELD: Final = """
SELECT CASE WHEN sum(capacity) > sum(unknown)
  THEN json_build_array(sum(reserved), sum(capacity)) END
FROM usage_utilizationquarter WHERE begin >= %(since)s"""
"""IPUs held by partitions and capacity, as far as summed; NULL: the capacity is unknown."""


def read_summed_time() -> SummedTime:
    """Return which sums stand now."""
    with connection.cursor() as cursor:
        cursor.execute(_STANDING, {"watch": CAPACITY_WATCH})
        rows = cursor.fetchall()
    return _standing(rows[0], tuple((a, b) for *_, a, b in rows if a is not None))


def missing(until: datetime) -> list[Range]:
    """Return the ranges before `until` that are not summed, or no longer right."""
    with connection.cursor() as cursor:
        standing = read_summed_time()
        begin = _begin(cursor, standing)
    return [] if begin is None or begin >= until else standing.missing(begin, until)


def read_quarters(
    parts: Sequence[tuple[datetime, datetime, int]], standing: SummedTime, *, in_total: bool = False
) -> list[tuple[str, int, Utilization]]:
    """Return controller, number and sum of each of `parts`: begin, end and its number; `in_total`:
    of all controllers together, without a name."""
    if not parts:
        return []
    sql = _READ_TOTAL if in_total else _READ
    with connection.cursor() as cursor:
        cursor.execute(sql, _by_grain([WholeQuarters(*each) for each in parts], standing))
        return [(row[0], row[1], Utilization(*map(int, row[2:]))) for row in cursor.fetchall()]


def read_week(
    parts: Sequence[tuple[datetime, datetime, int]], standing: SummedTime, week: Week
) -> tuple[list[tuple[str, int, Utilization]], dict[int, Utilization]]:
    """Return what `read_quarters` does, and the sums by hour of the week."""
    cuts = [
        WholeQuarters(c.begin, c.until, n, c.seconds) for a, b, n in parts for c in week.cut(a, b)
    ]
    if not cuts:
        return [], {}
    with connection.cursor() as cursor:
        cursor.execute(_READ_WEEK, _by_grain(cuts, standing))
        rows = [(*row[:3], Utilization(*map(int, row[3:]))) for row in cursor.fetchall()]
    slots: dict[int, Utilization] = {}
    for name, _, slot, amounts in rows:
        if week.counts(name):
            slots[slot] = slots.get(slot, Utilization()) + amounts
    return [(name, step, amounts) for name, step, _, amounts in rows], slots


class WholeQuarters(NamedTuple):
    """Whole quarters of a step, while the clocks are `shift` seconds ahead of UTC."""

    begin: datetime
    until: datetime
    step: int
    shift: int = 0


def _by_grain(cuts: Iterable[WholeQuarters], standing: SummedTime) -> list[list[Any]]:
    """Return the parameters of _cut: whole hours, and the remaining quarters.

    In a zone with a fractional offset an hour of UTC is in two local hours.
    """
    hours: list[WholeQuarters] = []
    quarters: list[WholeQuarters] = []
    for cut in cuts:
        first, last = ceil(cut.begin, HOUR), floor(cut.until, HOUR)
        is_split = cut.shift % HOUR.total_seconds() != 0
        if is_split or first >= last or not standing.with_hours:
            quarters.append(cut)
            continue
        hours.append(cut._replace(begin=first, until=last))
        quarters += [cut._replace(until=first), cut._replace(begin=last)]
    found: list[list[Any]] = []
    for each in (hours, [cut for cut in quarters if cut.begin < cut.until]):
        found += map(list, zip(*each, strict=True)) if each else [[]] * len(WholeQuarters._fields)
    return found


def refresh(now: datetime, tell: Tell = lambda *_: None) -> int:
    """Sum all quarters that are over and new or changed; return how many."""
    return _ROLLUP.refresh(lambda cursor, dirt: _plan(cursor, dirt, now), tell)


def rebuild(now: datetime, tell: Tell) -> int:
    """Recompute all sums whose rows exist; return the number of quarters. Raises RefreshBusy."""
    return _ROLLUP.rebuild(_forget, lambda cursor, dirt: _plan(cursor, dirt, now), tell)


def _forget(cursor: Any) -> None:
    standing = _known(cursor, ())
    if standing.frozen is None or standing.frozen <= standing.begin:
        cursor.execute("DELETE FROM usage_utilizationstate")
    else:
        cursor.execute(
            "UPDATE usage_utilizationstate SET until = %s, with_hours = false", [standing.frozen]
        )


def _plan(cursor: Any, dirt: Dirt, now: datetime) -> Work[Range] | None:
    standing = _known(cursor, dirt)
    begin = _begin(cursor, standing)
    if begin is None:
        return None
    gaps = read_polls(cursor, begin, max(begin, now), standing.known_now).gaps

    def fill(chunk: Range) -> None:
        _delete(cursor, chunk)
        _fill(cursor, chunk, gaps)
        if standing.with_hours:
            _fill_hours(cursor, chunk)

    def finish() -> None:
        until = max(begin, floor(now))
        if not standing.with_hours:
            _fill_hours(cursor, (begin, until))
        cursor.execute("DELETE FROM usage_utilizationstate")
        cursor.execute(
            "INSERT INTO usage_utilizationstate (begin, until, known_until, with_hours)"
            " VALUES (%s, %s, %s, true)",
            [begin, until, standing.known_now],
        )

    chunks = _chunks(standing.missing(begin, now))
    return Work([((a, b), (b - a) // QUARTER) for a, b in chunks], fill, finish)


def _known(cursor: Any, dirt: Dirt) -> SummedTime:
    cursor.execute(_STATE, {"watch": CAPACITY_WATCH})
    return _standing(cursor.fetchone(), dirt)


def _standing(row: Sequence[Any], dirt: Dirt) -> SummedTime:
    begin, until, known_then, with_hours, known_now, purged, zone = row[:7]
    frozen = None if purged is None else day_begin(purged, ZoneInfo(zone))
    if begin is None:
        return SummedTime(known_now=known_now, frozen=frozen)
    return SummedTime(begin, until, dirt, known_then, known_now, frozen, with_hours)


def _begin(cursor: Any, standing: SummedTime) -> datetime | None:
    """Return from when on quarters are or can be summed; None: nothing is recorded."""
    begin = standing.begin
    dirty = min((first for first, _ in standing.dirt), default=begin)
    if begin == EVER or dirty < begin:
        cursor.execute(_EARLIEST)
        earliest = cursor.fetchone()[0] or begin
        begin = min(begin, max(floor(earliest), dirty if begin < EVER else earliest))
    if standing.frozen is not None:
        is_consistent = standing.begin <= standing.frozen <= standing.until
        begin = max(begin, standing.begin if is_consistent else standing.frozen)
    return None if begin == EVER else floor(begin)


def _chunks(ranges: Iterable[Range]) -> Iterable[Range]:
    for begin, end in ranges:
        for n in range(-((begin - end) // _CHUNK)):
            yield begin + _CHUNK * n, min(begin + _CHUNK * (n + 1), end)


def _delete(cursor: Any, chunk: Range) -> None:
    cursor.execute(
        "DELETE FROM usage_utilizationquarter WHERE begin >= %s AND begin < %s", list(chunk)
    )


def _fill(cursor: Any, chunk: Range, gaps: Gaps) -> None:
    begin, end = chunk
    edges = [begin + QUARTER * n for n in range((end - begin) // QUARTER + 1)]
    rows = [
        (name, edges[n], *(getattr(amounts, each) for each in NAMES))
        for name, quarters in read_rows(cursor, edges, gaps).items()
        for n, amounts in enumerate(quarters)
        if amounts != Utilization()
    ]
    if rows:
        cursor.execute(_FILL, [list(column) for column in zip(*rows, strict=True)])


def _fill_hours(cursor: Any, chunk: Range) -> None:
    """Sum the hours that quarters of `chunk` are in, whether or not their others are summed: an
    hour is read only where all of it is."""
    touched = [floor(chunk[0], HOUR), ceil(chunk[1], HOUR)]
    cursor.execute("DELETE FROM usage_utilizationhour WHERE begin >= %s AND begin < %s", touched)
    cursor.execute(_FILL_HOURS, touched)
