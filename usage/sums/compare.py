"""glue: usage of a period beside the period before it, line by line and in total: one query.

Also the sums of the month up to now.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from usage.reading import one_snapshot
from usage.sums.measures import NAMES, Measures
from usage.sums.queries import (
    Question,
    measures_of,
    read_sums,
    run,
    stream_rows,
    sums_sql,
    total_as_closed,
)
from usage.sums.sql import key_array
from usage.time.months import month_bounds
from usage.time.windows import Month, Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from ipuhub.web.access import Scope
    from usage.sums.queries import Select

_JOB: Final = "job"
_NAME: Final = (
    "(SELECT component_name FROM usage_podlifetime WHERE job_uid <> ''"
    " AND job_uid = line.key[{}] LIMIT 1)"
)
"""SQL of the name of a line's job: its pods carry it."""


@dataclass(frozen=True, slots=True)
class Line:
    """The sums of one value of each dimension; `before`: the sums of the period before, None where
    none is compared; `name`: of a line by job, the job's name."""

    key: tuple[str, ...]
    measures: Measures
    before: Measures | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """Some lines in order, how many there are in all, and all of them together."""

    lines: Sequence[Line]
    count: int
    total: Line


def month_to_date(scope: Scope, now: datetime, zone: ZoneInfo) -> Measures:
    """Return the sums since the current month of `zone` began."""
    span = month_bounds(Month.of(now, zone), zone)
    question = Question(scope, Window.of(span.first, span.end, now), zone)
    return read_sums(question, [span.first], "pods", 1).total


@one_snapshot(read_only=True)
def read_lines(question: Question, before: Window | None, order: str, limit: int) -> Lines:
    """Return at most `limit` lines, largest `order` first. Raises BadFilter as `read_sums` does.

    `question.pricing` has to cover `before`, too.
    """
    found = pair_sql(question, before)
    if found is None:
        return Lines([], 0, Line((), Measures(), Measures() if before else None))
    totals = ", ".join(_total(prefix, name) for prefix in ("now", "old") for name in NAMES)
    names = [each.name for each in question.by]
    name = _NAME.format(names.index(_JOB) + 1) if _JOB in names else "NULL"
    key = f"{key_array(len(question.by))} AS key"
    cells = ", ".join(f"{prefix}_{each}" for prefix in ("now", "old") for each in NAMES)
    sql = (
        f"WITH pairs AS MATERIALIZED ({found.sql}) SELECT count(*)::int, NULL::text[], NULL::text,"  # noqa: S608  # our own text
        f" {totals} FROM pairs UNION ALL (SELECT 0, key, {name}, {cells} FROM"
        f" (SELECT {key}, {cells} FROM pairs{_order(order)} LIMIT %(limit)s) AS line)"
    )
    (count, _, _, *total), *rows = run(found.having(sql, {"limit": limit}))
    everything = _line((), total, before)
    if before is None:
        closed = total_as_closed(question, [question.window.begin], everything.measures)
        everything = dataclasses.replace(everything, measures=closed)
    return Lines(
        [_line(key, sums, before, name) for _, key, name, *sums in rows], count, everything
    )


@one_snapshot(read_only=True)
def all_lines(question: Question, before: Window, order: str) -> Iterator[Line]:
    """Yield all lines in order, however many. The query runs before the first is requested."""
    found = pair_sql(question, before)
    if found is None:
        return iter(())
    cells = ", ".join(f"{prefix}_{each}" for prefix in ("now", "old") for each in NAMES)
    key = f"{key_array(len(question.by))} AS key"
    sql = f"SELECT {key}, {cells} FROM ({found.sql}) AS pairs{_order(order)}"  # noqa: S608
    rows = stream_rows(found.having(sql, {}))
    return (_line(key, sums, before) for key, *sums in rows)


def lines_with_total(lines: Iterator[Line], dimensions: int) -> Iterator[Line]:
    """Yield the lines, then their sum, as `with_total` does."""
    total = None
    for line in lines:
        total = _together(total, line) if total else line
        yield line
    if total and dimensions:
        yield dataclasses.replace(total, key=("total", *[""] * (dimensions - 1)))


def _together(line: Line, other: Line) -> Line:
    before = (line.before or Measures()) + (other.before or Measures())
    return Line(line.key, line.measures + other.measures, before)


def _line(
    key: Sequence[str], sums: Sequence[Any], before: Window | None, name: str | None = None
) -> Line:
    width = len(NAMES)
    earlier = measures_of(sums[width:]) if before else None
    return Line(tuple(key), measures_of(sums[:width]), earlier, name or "")


def pair_sql(question: Question, before: Window | None) -> Select | None:
    """Return the SELECT of key and the sums of both periods, `now_` and `old_`."""
    begins, wide = _begins(question, before)
    found = sums_sql(wide, begins)
    if found is None:
        return None
    sides = []
    for prefix, step in (("now", len(begins) - 1), ("old", 0 if before else -1)):
        cells = ", ".join(f"{name} AS {prefix}_{name}" for name in NAMES)
        cells += f", true AS {prefix}_listed"
        side = f"SELECT key, {cells} FROM sums WHERE bucket = {step}"  # noqa: S608
        sides.append(f"({side}) AS {prefix}")
    cells = ", ".join(
        f"COALESCE({side}_{name}, 0) AS {side}_{name}" if name != "cost" else f"{side}_cost"
        for side in ("now", "old")
        for name in NAMES
    )
    joined = " FULL JOIN ".join(sides)
    both = f"SELECT key, now_listed, old_listed, {cells} FROM {joined} USING (key)"  # noqa: S608
    return found.having(f"WITH sums AS MATERIALIZED ({found.sql}) {both}", {})


def _begins(question: Question, before: Window | None) -> tuple[list[datetime], Question]:
    """Return the begins of the steps, the first the period before and the last the question's,
    and the question over both. While the question's has not ended, the rest of the period before
    is between them, and its sums are not needed."""
    window = question.window
    if before is None:
        return [window.begin], question
    begins = sorted({before.begin, before.until, window.begin})
    wide = Window(before.begin, window.end, window.until)
    unasked = (before.until, window.begin) if before.until < window.begin else None
    return begins, dataclasses.replace(question, window=wide, unasked=unasked)


def _total(side: str, name: str) -> str:
    if name != "cost":
        return f"COALESCE(sum({side}_{name}), 0)"
    return f"CASE WHEN count({side}_listed) > 0 THEN sum({side}_cost) ELSE 0 END"


def _order(name: str) -> str:
    ranks = ", ".join(f"COALESCE({side}_{name}, 0) DESC" for side in ("now", "old"))
    return f' ORDER BY {ranks}, key COLLATE "C"'
