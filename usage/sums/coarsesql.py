"""domain: the tables of sums: the columns they are by, and which of them a question needs.

A lifetime has one namespace, group, user, component and instance type, so sums of sums by fewer
columns are exact, counts too. A month of 500 users with 8 instance types has 120,000 full sums,
15,000 by user and 10,000 by kind; who asks by group reads the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

FULL: Final = "usage_usage"
COARSE: Final = {
    "usage_kind": ("namespace", "group", "component", "instance_type"),
    "usage_user": ("namespace", "group", "user"),
}
"""The tables of pods without `day`, `hour` or `span` at their end, the smallest first, and their
columns."""
PODS: Final = {FULL: ("namespace", "group", "user", "component", "instance_type"), **COARSE}
PARTITIONS: Final = "usage_partition"


def accelerators_of(table: str) -> str:
    """Return the table of what pods held of each accelerator, by the same columns and its name."""
    return f"{table}accelerator"


def table_of(names: Collection[str]) -> str:
    """Return the table, without its grain, of the fewest sums that know all these dimensions."""
    fitting = (table for table, columns in COARSE.items() if set(names) <= set(columns))
    return next(fitting, FULL)
