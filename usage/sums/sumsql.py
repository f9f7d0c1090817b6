"""domain: the SQL that puts sums of pods and of partitions side by side, in pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from usage.sums.measures import NAMES

TOTAL_COST: Final = "CASE WHEN count(*) > 0 THEN sum(cost) ELSE 0 END"
"""SQL of the cost of all rows: none where there are rows and none of them has one."""
STEP: Final = "bucket"
"""The order of a series: by step, then by value. Any other order is a sum, largest first."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What is selected: how many dimensions a key has, the order, and whether it begins later."""

    dimensions: int
    order: str
    goes_on: bool = False
    limited: bool = False


def joined(pods: str, partitions: str) -> str:
    """Return the SELECT of bucket, key and all sums of two SELECTs; both have a cost."""
    cells = ", ".join(f"COALESCE({name}, 0) AS {name}" for name in NAMES if name != "cost")
    return (
        f"SELECT bucket, key, {cells}, COALESCE(p.cost + h.cost, p.cost, h.cost) AS cost"  # noqa: S608  # our own SELECTs
        f" FROM ({pods}) AS p"
        f" FULL JOIN ({partitions}) AS h USING (bucket, key)"
    )


def rows_sql(sums: str, shape: Shape) -> str:
    """Return the SELECT of bucket, key (an array) and sums, in order.

    Parameters: `after_rank` and `after_key` where it goes on, `limit` where it is limited.
    """
    return f"WITH sums AS MATERIALIZED ({sums}) {_rows(shape)}"


def page_sql(sums: str, shape: Shape) -> str:
    """Return the same and a row without a key: how many there are (as bucket), and their sum."""
    totals = ", ".join(f"COALESCE(sum({name}), 0)" for name in NAMES if name != "cost")
    totals += f", {TOTAL_COST}"
    return (
        f"WITH sums AS MATERIALIZED ({sums})"  # noqa: S608  # likewise
        f" SELECT count(*)::int AS bucket, NULL::text[] AS key, {totals} FROM sums"
        f" UNION ALL ({_rows(shape)})"
    )


def _rows(shape: Shape) -> str:
    key = {0: "'{}'::text[]", 1: "ARRAY[key]"}.get(shape.dimensions, "key")
    rank, beyond = (STEP, ">") if shape.order == STEP else (f"COALESCE({shape.order}, 0)", "<")
    direction = "" if shape.order == STEP else " DESC"
    kind = "text[]" if shape.dimensions > 1 else "text"
    after = (
        f" WHERE {rank} {beyond} %(after_rank)s::numeric OR ({rank} = %(after_rank)s::numeric"
        f' AND key > %(after_key)s::{kind} COLLATE "C")'
    )
    return (
        f"SELECT bucket, {key}, {', '.join(NAMES)} FROM sums{after if shape.goes_on else ''}"  # noqa: S608
        f' ORDER BY {rank}{direction}, key COLLATE "C"{" LIMIT %(limit)s" if shape.limited else ""}'
    )


def key_sql(columns: list[str]) -> str:
    """Return the expression to group by: one text, or an array of several."""
    if len(columns) > 1:
        return f"ARRAY[{', '.join(columns)}]::text[]"
    return columns[0] if columns else "''::text"
