"""domain: the sums of few columns beside the full ones, and which of them a question needs.

A lifetime has one namespace, group, user, component and instance type, so sums of sums by fewer
columns are exact, counts too. A month of 500 users with 8 instance types has 120,000 full sums,
15,000 by user and 10,000 by kind; who asks by group reads the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from usage.sums.measures import LEVELS, POD_SUMS

if TYPE_CHECKING:
    from collections.abc import Collection

FULL: Final = "usage_usage"
COARSE: Final = {
    "usage_kind": ("namespace", "group", "component", "instance_type"),
    "usage_user": ("namespace", "group", "user"),
}
"""The tables without `day` or `hour` at their end, the smallest first, and their columns."""


def table_of(names: Collection[str]) -> str:
    """Return the table, without its grain, of the fewest sums that know all these dimensions."""
    fitting = (table for table, columns in COARSE.items() if set(names) <= set(columns))
    return next(fitting, FULL)


def refill_sql(table: str, grain: str, kind: str) -> str:
    """Return the INSERT that makes the sums of `times` from the full ones, which are made."""
    columns = ", ".join(f'"{name}"' for name in COARSE[table])
    sums = ("pods", "begun", *POD_SUMS, *(LEVELS.values() if grain == "hour" else ()))
    return (
        f"INSERT INTO {table}{grain} ({grain}, {columns}, {', '.join(sums)})"  # noqa: S608
        f" SELECT {grain}, {columns}, {', '.join(f'sum({name})' for name in sums)}"
        f" FROM {FULL}{grain} WHERE {grain} = ANY(%(times)s::{kind}[])"
        f" GROUP BY {grain}, {columns}"
    )
