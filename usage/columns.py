"""glue: the columns of usage in tables, files and API, declared once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipuhub.web.lists import Column
from usage.measures import OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from usage.measures import Measures, Output

EXACT = ("pods", "partitions")


def sums_columns(by: str) -> tuple[Column, ...]:
    """Return the columns of (value, Measures) rows; hours are text with five decimals."""
    return (
        *([Column(by, by, lambda row: row[0])] if by else []),
        *(Column(name, name, _count(name)) for name in EXACT),
        *(Column(o.name, o.label, _hours(o), kind="number") for o in OUTPUTS.values()),
        Column("estimated_percent", "Estimated", lambda row: str(row[1].estimated_percent)),
        Column("unverified_percent", "Unverified", lambda row: str(row[1].unverified_percent)),
    )


def step_columns(by: str) -> tuple[Column, ...]:
    """Return the columns of (value, Measures, begin, end) rows: a series."""
    return (
        Column("begin", "From", lambda row: row[2]),
        Column("end", "Until", lambda row: row[3]),
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


def ranked(sums: Mapping[str, Measures], output: Output) -> list[tuple[str, Measures]]:
    """Return the rows with most of `output` first; equal ones by name."""
    return sorted(sums.items(), key=lambda row: (-getattr(row[1], output.amount), row[0]))


def step_rows(
    begins: list[datetime], end: datetime, sums: Mapping[tuple[int, str], Measures]
) -> list[tuple[str, Measures, datetime, datetime]]:
    """Return a series as rows, in order of time and value."""
    ends = [*begins[1:], end]
    return [(key, found, begins[n], ends[n]) for (n, key), found in sorted(sums.items())]


def _count(name: str) -> Callable[[Any], object]:
    return lambda row: getattr(row[1], name)


def _hours(output: Output) -> Callable[[Any], object]:
    return lambda row: str(output.of(row[1]))
