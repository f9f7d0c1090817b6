"""glue: pages of a series: of many steps, only those that have rows on the page are added up."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Final

from django.db import connection

from usage.reading import one_snapshot, read_coverage_with
from usage.sums.queries import after_parameters, read_sums, row_of, run, sums_sql
from usage.sums.sql import STEP, Shape, counts_sql, rows_sql
from usage.time.windows import Window
from usage.unchanged import SUMS_VERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from usage.sums.queries import Place, Question, SumRow

    Inputs = tuple[Question, tuple[datetime, ...], str]

MANY: Final = 100
"""From so many steps on, rows are counted first; a month of days is added up as fast."""
_MOST: Final = 64
_kept: Final[dict[object, tuple[Inputs, Mapping[int, int]]]] = {}
"""Counts with what they were counted from: each page of a series needs the same."""
_lock: Final = Lock()


@dataclass(frozen=True, slots=True)
class SeriesPage:
    """Some rows of a series in order, and how many there are in all. `is_summed`: no lifetimes were
    read for them."""

    rows: Sequence[SumRow]
    count: int
    is_summed: bool = False


def read_series(
    question: Question, begins: Sequence[datetime], limit: int, after: Place | None = None
) -> SeriesPage:
    """Return at most `limit` rows, after a place, of the steps that begin at `begins`.

    Raises BadFilter where rows are needed that were deleted, or too many.
    """
    if len(begins) >= MANY:
        # A transaction has changes of its own, whose counts nobody else may have.
        keeps = not connection.in_atomic_block
        found = _read_counted(question, begins, limit, after, keeps=keeps)
        if found is not None:
            return found
    sums = read_sums(question, begins, STEP, limit, after)
    return SeriesPage(sums.rows, sums.count, sums.is_summed)


@one_snapshot(read_only=True)
def _read_counted(
    question: Question, begins: Sequence[datetime], limit: int, after: Place | None, *, keeps: bool
) -> SeriesPage | None:
    """Return the page by way of the number of rows of each step; None: that takes as long as to add
    up all of them, since many lifetimes are read."""
    cover, versions = read_coverage_with(SUMS_VERSIONS)
    inputs = (question, tuple(begins), versions)
    counts, is_summed = _kept_counts(inputs) if keeps else None, True
    if counts is None:
        every = sums_sql(question, begins, cover)
        if every is None or every.is_dear:
            return None
        counts, is_summed = dict(run(every.having(counts_sql(every.sql), {}))), every.is_summed
        if keeps and is_summed:
            _keep_counts(inputs, counts)
    steps = _steps_of_page(counts, limit, after)
    if not steps:
        return SeriesPage([], sum(counts.values()), is_summed)
    first, window = steps.start, question.window
    end = begins[steps.stop] if steps.stop < len(begins) else window.end
    part = dataclasses.replace(question, window=Window.of(begins[first], end, window.until))
    page = sums_sql(part, begins[first : steps.stop], cover)
    place = after and dataclasses.replace(after, rank=after.rank - first)
    shape = Shape(len(question.by), STEP, after is not None, limited=True)
    more = {"limit": limit} | after_parameters(place)
    rows = run(page.having(rows_sql(page.sql, shape), more)) if page else []
    return SeriesPage([row_of(row, first) for row in rows], sum(counts.values()), is_summed)


def _kept_counts(inputs: Inputs) -> Mapping[int, int] | None:
    """Return how many rows each step has, if they were counted from the same inputs."""
    with _lock:
        known, counts = _kept.get(_place(inputs), (None, None))
    return counts if known == inputs else None


def _keep_counts(inputs: Inputs, counts: Mapping[int, int]) -> None:
    with _lock:
        if len(_kept) >= _MOST:
            _kept.clear()
        _kept[_place(inputs)] = (inputs, counts)


def _place(inputs: Inputs) -> object:
    question, begins, _ = inputs
    return question.window, question.by, len(begins)


def _steps_of_page(counts: Mapping[int, int], limit: int, after: Place | None) -> range:
    """Return the steps that have the next `limit` rows: of the step of `after`, none is sure."""
    left = sorted(step for step in counts if after is None or step >= after.rank)
    if not left:
        return range(0)
    sure = accumulate(0 if after and step == after.rank else counts[step] for step in left)
    needed = 1 + sum(so_far < limit for so_far in sure)
    return range(left[0], left[:needed][-1] + 1)
