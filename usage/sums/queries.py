"""glue: usage over any window by any dimensions, in steps or in one sum."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ipuhub.web.filters import BadFilter, Mistake
from usage.reading import one_snapshot, read_coverage, rows_of, stream_of
from usage.sums.measures import COST, DIMENSIONS, POD_SUMS, TOTAL, Measures
from usage.sums.parts import Coverage, Steps, split
from usage.sums.pieces import HOURLY_NAMES, Prices, closed_steps, tables_of
from usage.sums.sql import (
    TOTAL_COST,
    Query,
    Shape,
    fold,
    joined,
    key_sql,
    page_sql,
    partition_sums,
    pod_sums,
    rows_sql,
)
from usage.time.windows import Window, step_begins

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import date, datetime
    from zoneinfo import ZoneInfo

    from ipuhub.web.access import Scope
    from usage.rates.pricing import Pricing
    from usage.sums.measures import Dimension
    from usage.sums.parts import Parts
    from usage.sums.pieces import ClosedSteps, Tables
    from usage.time.windows import Window


@dataclass(frozen=True, slots=True)
class Question:
    """The question: whose usage, grouped by what, filtered by what, and at which prices.

    `equals`: any of these values of each dimension. Prices are None if the user may not see them.
    `unasked`: a range between two steps whose sums are not needed.
    """

    scope: Scope
    window: Window
    zone: ZoneInfo
    by: tuple[Dimension, ...] = ()
    equals: tuple[tuple[Dimension, tuple[str, ...]], ...] = ()
    pricing: Pricing | None = None
    unasked: tuple[datetime, datetime] | None = None

    @property
    def rolled(self) -> bool:
        """Return whether the day sums know all dimensions in question."""
        return all(each.rolled for each in self._asked)

    @property
    def tables(self) -> Tables:
        """The smallest tables of day and hour sums that know them."""
        needed = [] if self.scope.namespaces is None else ["namespace"]
        has_types = bool(self.pricing and self.pricing.names("instance"))
        return tables_of([*needed, *(each.name for each in self._asked)], has_types=has_types)

    @property
    def _asked(self) -> list[Dimension]:
        return [*self.by, *(each for each, _ in self.equals)]


@dataclass(frozen=True, slots=True)
class SumRow:
    """The sums of one step (0 in a summary) for one value of each dimension; `name`: the name of
    its job where it was looked up."""

    step: int
    key: tuple[str, ...]
    measures: Measures
    name: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a list of sums: after the row of this rank (sum or step) and key."""

    rank: int
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sums:
    """Some rows in order, how many there are in all, and the sum of all. `is_summed`: no lifetimes
    were read for them."""

    rows: Sequence[SumRow]
    count: int
    total: Measures
    is_summed: bool = False


@one_snapshot(read_only=True)
def read_sums(
    question: Question,
    begins: Sequence[datetime],
    order: str,
    limit: int,
    after: Place | None = None,
) -> Sums:
    """Return at most `limit` rows of the steps that begin at `begins`, after a place.

    Raises BadFilter where rows are needed that were deleted, or too many.

    `order` is a sum, largest first, or STEP. What has not happened yet is in no step; in a total
    over steps a lifetime counts in each of its steps.
    """
    shape = Shape(len(question.by), order, after is not None, limited=True)
    found = sums_sql(question, begins)
    if found is None:
        return Sums([], 0, Measures())
    more = {"limit": limit} | after_parameters(after)
    rows = run(found.having(page_sql(found.sql, shape), more))
    count, _, *totals = next(row for row in rows if row[1] is None)
    sums = [row_of(row) for row in rows if row[1] is not None]
    total = total_as_closed(question, begins, measures_of(totals))
    return Sums(sums, count, total, found.is_summed)


@one_snapshot(read_only=True)
def all_sums(question: Question, begins: Sequence[datetime], order: str) -> Iterator[SumRow]:
    """Yield all rows in order, however many. The query runs before the first row is requested."""
    found = sums_sql(question, begins)
    if found is None:
        return iter(())
    query = found.having(rows_sql(found.sql, Shape(len(question.by), order)), {})
    return map(row_of, stream_rows(query))


def with_total(
    question: Question, begins: Sequence[datetime], rows: Iterable[SumRow]
) -> Iterator[SumRow]:
    """Yield the rows, then their sum, which is not rounded: the total that pages show.

    The key of the sum is TOTAL; there is none of nothing, nor of a sum without dimensions.
    """
    sums = None
    for row in rows:
        sums = row.measures if sums is None else sums + row.measures
        yield row
    if sums is not None and question.by:
        key = (TOTAL, *[""] * (len(question.by) - 1))
        yield SumRow(0, key, total_as_closed(question, begins, sums))


def stream_rows(query: Select) -> Iterator[Any]:
    """Yield the rows of a query, which runs before this returns."""
    return stream_of(query.sql, query.parameters, bounded=query.is_dear)


def series_begins(question: Question, step: str) -> list[datetime]:
    """Return when the steps of a series begin. Raises WindowError."""
    return step_begins(question.window, step, question.zone)


@dataclass(frozen=True, slots=True)
class Chart:
    """The begins of steps, and sums by number of step and value; `is_summed` as in `Sums`."""

    begins: Sequence[datetime]
    sums: Mapping[tuple[int, str | tuple[str, ...] | None], int]
    is_summed: bool = False


@one_snapshot(read_only=True)
def chart(question: Question, step: str, amount: str, top: int) -> Chart:
    """Return one exact sum by number of step and by value.

    Only the `top` values with most of it stand apart; all others are under None. Raises
    WindowError.
    """
    begins = step_begins(question.window, step, question.zone)
    if amount != COST.amount:
        question = dataclasses.replace(question, pricing=None)
    if begins[0] >= question.window.until:
        return Chart(begins, {})
    cut = _cut(question, _steps(question, begins))
    if amount == COST.amount:
        found = _charted_cost(question, cut, begins)
    elif amount == "partition_ipu_seconds":
        found = Select(*_partition_sql(question, cut), cut.is_dear, cut.is_summed)
    else:
        found = Select(*_pod_sql(question, cut, (amount,)), cut.is_dear, cut.is_summed)
    rows = run(found.having(fold(found.sql, amount), {"top": top}))
    sums = {(n, tuple(k) if isinstance(k, list) else k): int(held) for n, k, held in rows}
    return Chart(begins, sums, found.is_summed)


def _charted_cost(question: Question, cut: _Cut, begins: Sequence[datetime]) -> Select:
    """Return the costs of a chart; of a month that is closed and a step of it, as in its report."""
    if closed_steps(question.pricing, begins, question.window.end) is None or not question.rolled:
        return _cost_sql(question, cut)
    return sums_sql(question, begins) or _cost_sql(question, cut)


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT and its parameters; `is_dear`: it reads many lifetimes, `is_summed`: none."""

    sql: str
    parameters: dict[str, Any]
    is_dear: bool
    is_summed: bool = False

    def having(self, sql: str, more: Mapping[str, Any]) -> Select:
        """Return another around it, with `more` parameters."""
        return Select(sql, self.parameters | dict(more), self.is_dear, self.is_summed)


def sums_sql(
    question: Question, begins: Sequence[datetime], cover: Coverage | None = None
) -> Select | None:
    if begins[0] >= question.window.until:
        return None
    closed = closed_steps(question.pricing, begins, question.window.end)
    if closed is None or question.pricing is None or not question.rolled:
        return _both_sql(question, _cut(question, _steps(question, begins), cover))
    others = dataclasses.replace(question, pricing=closed.priced_by_reports(question.pricing))
    found = _both_sql(others, _cut(others, _steps(others, begins), cover))
    return _as_closed(question, found, closed)


def _as_closed(question: Question, found: Select, closed: ClosedSteps) -> Select:
    """Return the sums with the cost of whole closed months as their reports have it, whose lines
    know the dimensions of the day sums."""
    where, parameters = _conditions(question, "pods")
    costs = closed.costs(key_sql([each.pods for each in question.by]), where)
    return found.having(closed.in_place(found.sql, costs), parameters | closed.parameters)


def total_as_closed(question: Question, begins: Sequence[datetime], total: Measures) -> Measures:
    """Return a total with the cost of a closed month as its report has it, also of dimensions that
    the report's lines do not know, and of steps that are shorter."""
    window = question.window
    closed = closed_steps(question.pricing, [window.begin], window.end)
    undivided = dataclasses.replace(question, by=())
    spans = [(e.first, e.end) for e in question.pricing.closed] if question.pricing else []
    if closed is None or (window.begin, window.end) not in spans or not undivided.rolled:
        return total
    if question.rolled and len(begins) == 1:
        return total  # its rows cost what the report says
    where, parameters = _conditions(undivided, "pods")
    sql = f"SELECT {TOTAL_COST} FROM ({closed.costs(key_sql([]), where)}) AS lines"  # noqa: S608  # our own text
    ((cost,),) = run(Select(sql, parameters | closed.parameters, is_dear=False))
    return dataclasses.replace(total, cost=None if cost is None else int(cost))


def _steps(question: Question, begins: Sequence[datetime]) -> Steps:
    """Return the steps that have begun, cut where a price changes."""
    until = question.window.until
    cuts = [each.begin for each in question.pricing.usable] if question.pricing else []
    begun, cut = ([each for each in instants if each < until] for instants in (begins, cuts))
    return Steps(tuple(begun), tuple(cut), question.unasked)


def _both_sql(question: Question, cut: _Cut) -> Select:
    pods, parameters = _pod_sql(question, cut)
    partitions, more = _partition_sql(question, cut)
    return Select(joined(pods, partitions), parameters | more, cut.is_dear, cut.is_summed)


def _cost_sql(question: Question, cut: _Cut) -> Select:
    """Return the costs of pods and of partitions in one column, by bucket and key. PostgreSQL does
    not compute sums of them that the query does not select."""
    pods, parameters = _pod_sql(question, cut)
    partitions, more = _partition_sql(question, cut)
    both = " UNION ALL ".join(
        f"SELECT bucket, key, cost FROM ({each}) AS {name}"  # noqa: S608  # our own SELECTs
        for each, name in ((pods, "p"), (partitions, "h"))
    )
    return Select(both, parameters | more, cut.is_dear, cut.is_summed)


def after_parameters(place: Place | None) -> dict[str, Any]:
    if place is None:
        return {}
    key = list(place.key) if len(place.key) > 1 else "".join(place.key)
    return {"after_rank": place.rank, "after_key": key}


def row_of(row: Sequence[Any], first: int = 0) -> SumRow:
    step, key, *sums = row
    return SumRow(first + step, tuple(key), measures_of(sums))


def measures_of(sums: Sequence[Any]) -> Measures:
    """Return the sums of a row; only their last, the cost, may be none."""
    exact: list[Any] = [None if each is None else int(each) for each in sums]
    return Measures(*exact)


def _pod_sql(
    question: Question, cut: _Cut, names: Sequence[str] = POD_SUMS
) -> tuple[str, dict[str, Any]]:
    key = key_sql([each.pods for each in question.by])
    where, parameters = _conditions(question, "pods")
    query = Query(key, where, _prices(question, cut.steps), cut.named)
    # Where many lifetimes are read, none is read twice.
    tables = question.tables.undivided if cut.is_dear else question.tables
    statement, own = pod_sums(query, cut.parts, names, tables)
    return statement, parameters | own


def _partition_sql(question: Question, cut: _Cut) -> tuple[str, dict[str, Any]]:
    key = key_sql([each.partitions for each in question.by])
    where, parameters = _conditions(question, "partitions")
    query = Query(key, where, _prices(question, cut.steps))
    statement, own = partition_sums(query, cut.parts, question.tables.partitions)
    return statement, parameters | own


def _prices(question: Question, steps: Steps) -> Prices | None:
    pricing = question.pricing
    return Prices(pricing, steps) if pricing and pricing.usable else None


@dataclass(frozen=True, slots=True)
class _Cut:
    """Steps, the parts in which they are added up, and those in which accelerators are that have
    prices by name; None: none has."""

    steps: Steps
    parts: Parts
    named: Parts | None

    @property
    def is_dear(self) -> bool:
        """Return whether many lifetimes are added up."""
        return self.parts.is_dear or (self.named is not None and self.named.is_dear)

    @property
    def is_summed(self) -> bool:
        """Return whether no lifetimes are added up, so that all is read from sums."""
        return not self.parts.stretches and not (self.named and self.named.stretches)


def _cut(question: Question, steps: Steps, cover: Coverage | None = None) -> _Cut:
    cover = cover or read_coverage()
    known = cover.of_kept_hours if question.tables.keeps_hours else cover
    usable = known if question.rolled else Coverage()
    until, zone = question.window.until, question.zone
    parts = split(steps, until, zone, usable)
    if cover.frozen_before is not None and cover.frozen_until is not None:
        _refuse_purged(parts, cover.frozen_until, cover.frozen_before)
    if question.pricing is None or not question.pricing.names("accelerator"):
        return _Cut(steps, parts, None)
    return _Cut(steps, parts, split(steps, until, zone, usable.of_accelerators))


def _refuse_purged(parts: Parts, kept_from: datetime, day: date) -> None:
    """Raise BadFilter where rows are needed that retention deleted."""
    if any(stretch.bounds[0] < kept_from for stretch in parts.stretches):
        known = ", ".join(name for name, each in DIMENSIONS.items() if each.rolled)
        hourly = ", ".join(HOURLY_NAMES)
        sentence = (
            f"Raw rows before {day} were purged; daily totals remain. For that time, request whole "
            f"days of the report zone, in steps of a day or longer, by {known}; or whole hours, by "
            f"{hourly}."
        )
        raise BadFilter(Mistake("", sentence))


def _conditions(question: Question, source: str) -> tuple[str, dict[str, Any]]:
    """Return the condition on rows of `source` and its parameters."""
    texts = ["true"]
    parameters: dict[str, Any] = {}
    for number, (dimension, values) in enumerate(question.equals):
        texts.append(f"{getattr(dimension, source)} = ANY(%(equals_{number})s)")
        parameters[f"equals_{number}"] = list(values)
    if question.scope.namespaces is not None:
        texts.append("namespace = ANY(%(namespaces)s)")
        parameters["namespaces"] = sorted(question.scope.namespaces)
    return " AND ".join(texts), parameters


def run(query: Select) -> list[Any]:
    return rows_of(query.sql, query.parameters, bounded=query.is_dear)
