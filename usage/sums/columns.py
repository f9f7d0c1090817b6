"""glue: the columns of usage in tables, files and API, declared once, and cursors of lists of sums.

A list of sums grows while pods run. All its pages count up to the instant of the first page, so no
row moves between them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ipuhub.text import Figure
from ipuhub.web.columns import Column
from ipuhub.web.filters import BadFilter, Mistake
from ipuhub.web.keyset import as_cursor, values_of
from usage.sums.measures import OUTPUTS, TOTAL, Measures
from usage.sums.queries import Place, SumRow, total_as_closed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from usage.rates.pricing import Money, Pricing
    from usage.sums.measures import Output
    from usage.sums.queries import Question

EXACT = ("pods", "partitions")
JOB = "job"


@dataclass(frozen=True, slots=True)
class StepRow:
    """A row of a series with the times of its step; the row of totals begins at TOTAL."""

    key: tuple[str, ...]
    measures: Measures
    begin: datetime | str
    end: datetime | None
    name: str = ""


def sums_columns(by: Sequence[str], pricing: Pricing | None) -> tuple[Column, ...]:
    """Return the columns of SumRows by these dimensions; hours are text with five decimals.

    Cost and currency are empty where there is no price, or none that may be known.
    """

    def money(row: Any) -> Money | None:
        return pricing.money(row.measures.cost) if pricing else None

    return (
        *(Column(name, name, _value(number)) for number, name in enumerate(by)),
        *([Column("job_name", "Job", lambda row: row.name)] if JOB in by else []),
        *(Column(name, name, _count(name)) for name in EXACT),
        *(Column(o.name, o.label, _hours(o), kind="number") for o in OUTPUTS.values()),
        Column(
            "estimated_percent", "Estimated", lambda row: Figure(row.measures.estimated_percent)
        ),
        Column(
            "unverified_percent", "Unverified", lambda row: Figure(row.measures.unverified_percent)
        ),
        Column("cost", "Cost", lambda row: _amount(money(row)), kind="number"),
        Column("currency", "Currency", lambda row: _currency(money(row))),
    )


def pair_columns(by: Sequence[str], pricing: Pricing | None) -> tuple[Column, ...]:
    """Return the columns of Lines: the sums, then the sums of the period before."""

    def before(column: Column) -> Column:
        return Column(
            f"{column.key}_before",
            f"{column.label} before",
            lambda row: column.value(SumRow(0, row.key, row.before or Measures())),
            kind=column.kind,
        )

    columns = sums_columns(by, pricing)
    compared = {*EXACT, *OUTPUTS, "cost"}
    return (*columns, *(before(each) for each in columns if each.key in compared))


def step_columns(by: Sequence[str], pricing: Pricing | None) -> tuple[Column, ...]:
    """Return the columns of StepRows: a series.

    A pod counts in each step in which it ran, so the line of totals has no numbers of pods and
    partitions.
    """

    def in_steps(column: Column) -> Column:
        def value(row: Any) -> object:
            return None if row.begin == TOTAL else column.value(row)

        return dataclasses.replace(column, value=value) if column.key in EXACT else column

    return (
        Column("begin", "From", lambda row: row.begin),
        Column("end", "Until", lambda row: row.end),
        *map(in_steps, sums_columns(by, pricing)),
    )


def measures_record(measures: Measures, money: Money | None) -> dict[str, Any]:
    """Return the sums as the API prints them: hours beside the exact whole numbers, and money."""
    record: dict[str, Any] = {name: getattr(measures, name) for name in EXACT}
    record |= {output.name: str(output.of(measures)) for output in OUTPUTS.values()}
    record["estimated_percent"] = str(measures.estimated_percent)
    record["unverified_percent"] = str(measures.unverified_percent)
    record |= {"cost": _amount(money), "currency": _currency(money)}
    amounts = [output.amount for output in OUTPUTS.values()]
    return record | {"exact": {name: getattr(measures, name) for name in amounts}}


def step_rows(
    rows: Iterable[SumRow], begins: Sequence[datetime], end: datetime
) -> Iterator[StepRow]:
    """Yield the rows of a series with the times of their steps."""
    ends = [*begins[1:], end]
    for row in rows:
        yield StepRow(row.key, row.measures, begins[row.step], ends[row.step], row.name)


def steps_with_total(
    question: Question, begins: Sequence[datetime], rows: Iterable[StepRow]
) -> Iterator[StepRow]:
    """Yield the rows of a series, then their exact sum, if there are any."""
    sums = None
    for row in rows:
        sums = row.measures if sums is None else sums + row.measures
        yield row
    if sums is not None:
        total = total_as_closed(question, begins, sums)
        yield StepRow(("",) * len(question.by), total, TOTAL, None)


def _amount(money: Money | None) -> str | None:
    return Figure(money.amount) if money else None


def _currency(money: Money | None) -> str | None:
    return money.currency if money else None


def _value(number: int) -> Callable[[Any], object]:
    return lambda row: row.key[number]


def _count(name: str) -> Callable[[Any], object]:
    return lambda row: getattr(row.measures, name)


def _hours(output: Output) -> Callable[[Any], object]:
    return lambda row: Figure(output.of(row.measures))


_MOST = 10**100  # no sum of this database comes near


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place where a list continues: after `place`, with everything counted up to `until`."""

    until: datetime
    place: Place


def write_cursor(cursor: Cursor) -> str:
    """Return a cursor as text for a URL."""
    record = [cursor.until.isoformat(), cursor.place.rank, *cursor.place.key]
    return as_cursor(record)


def read_cursor(text: str, dimensions: int, now: datetime) -> Cursor:
    """Return the cursor of a list by this many dimensions. Raises BadFilter for any other."""
    try:
        until, rank, *key = values_of(text)
        instant = datetime.fromisoformat(until)
        is_ours = (
            instant.utcoffset() == timedelta(0)
            and instant <= now
            and type(rank) is int
            and abs(rank) < _MOST
            and len(key) == dimensions
            and all(isinstance(each, str) and "\0" not in each for each in key)
        )
        # Half of a surrogate pair can be written in JSON and is no text for a database.
        "".join(key).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise BadFilter(_NO_CURSOR) from error
    if not is_ours:
        raise BadFilter(_NO_CURSOR)
    return Cursor(instant, Place(rank, tuple(key)))


_NO_CURSOR = Mistake("cursor", "not a cursor of this list. Start again without it.")
