"""glue: the columns of usage in tables, files and API, declared once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ipuhub.web.lists import Column
from usage.sums.measures import OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from usage.sums.measures import Measures, Output
    from usage.sums.selectors import SumRow

EXACT = ("pods", "partitions")


@dataclass(frozen=True, slots=True)
class StepRow:
    """A row of a series with the times of its step."""

    key: tuple[str, ...]
    measures: Measures
    begin: datetime
    end: datetime


def sums_columns(by: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of SumRows by these dimensions; hours are text with five decimals."""
    return (
        *(Column(name, name, _value(number)) for number, name in enumerate(by)),
        *(Column(name, name, _count(name)) for name in EXACT),
        *(Column(o.name, o.label, _hours(o), kind="number") for o in OUTPUTS.values()),
        Column("estimated_percent", "Estimated", lambda row: str(row.measures.estimated_percent)),
        Column(
            "unverified_percent", "Unverified", lambda row: str(row.measures.unverified_percent)
        ),
    )


def step_columns(by: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of StepRows: a series."""
    return (
        Column("begin", "From", lambda row: row.begin),
        Column("end", "Until", lambda row: row.end),
        *sums_columns(by),
    )


def measures_record(measures: Measures) -> dict[str, Any]:
    """Return the sums as the API prints them: hours beside the exact whole numbers."""
    record: dict[str, Any] = {name: getattr(measures, name) for name in EXACT}
    record |= {output.name: str(output.of(measures)) for output in OUTPUTS.values()}
    record["estimated_percent"] = str(measures.estimated_percent)
    record["unverified_percent"] = str(measures.unverified_percent)
    amounts = [output.amount for output in OUTPUTS.values()]
    return record | {"exact": {name: getattr(measures, name) for name in amounts}}


def step_rows(
    rows: Iterable[SumRow], begins: Sequence[datetime], end: datetime
) -> Iterator[StepRow]:
    """Yield the rows of a series with the times of their steps."""
    ends = [*begins[1:], end]
    for row in rows:
        yield StepRow(row.key, row.measures, begins[row.step], ends[row.step])


def _value(number: int) -> Callable[[Any], object]:
    return lambda row: row.key[number]


def _count(name: str) -> Callable[[Any], object]:
    return lambda row: getattr(row.measures, name)


def _hours(output: Output) -> Callable[[Any], object]:
    return lambda row: str(output.of(row.measures))
