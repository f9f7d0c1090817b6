"""domain: the retention of rows, and the SQL that deletes older rows in batches.

Only what ended before the cutoff is deleted: a row that reaches into a later month stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipuhub.recording.shapes import FAULT_TABLE, GAP_TABLE
from usage.time.windows import Month

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True)
class Kind:
    """Rows of a table that can be deleted.

    `old` is the condition, with %(before)s; `order` has an index, so that a batch does not scan the
    table.
    """

    name: str
    table: str
    old: str
    order: str


LIFETIMES: Final = (
    Kind(
        "pods",
        "usage_podlifetime",
        "scheduled_at < %(before)s AND finished_at <= %(before)s",
        "scheduled_at",
    ),
    Kind(
        "pods never scheduled",
        "usage_podlifetime",
        "scheduled_at IS NULL AND finished_at <= %(before)s",
        "id",
    ),
    Kind(
        "partitions",
        "partitions_holdings",
        # What was held when a controller told its last change before the cutoff, which stays,
        # says how much of that was others'.
        "reserved_at < %(before)s AND released_at <= %(before)s AND NOT COALESCE("
        "tstzrange(reserved_at, greatest(reserved_at, released_at)) @> (SELECT max(told.at)"
        " FROM partitions_capacity AS told WHERE told.at <= %(before)s"
        " AND told.controller = partitions_holdings.controller), false)",
        "reserved_at",
    ),
    # The last change before the cutoff still holds after it.
    Kind(
        "changes of capacity",
        "partitions_capacity",
        "at < (SELECT max(kept.at) FROM partitions_capacity AS kept WHERE kept.controller ="
        " partitions_capacity.controller AND kept.at <= %(before)s)",
        "at",
    ),
)
# The sums of utilization stay, and with them for how long nobody asked the controllers.
GAPS: Final = Kind("gaps", GAP_TABLE, "ended_at <= %(before)s AND watch <> 'capacity'", "began_at")
FAULTS: Final = Kind("faults", FAULT_TABLE, "last_at < %(before)s", "last_at")


def count_sql(kind: Kind) -> str:
    """Return the SELECT of how many rows would go."""
    return f"SELECT count(*) FROM {kind.table} WHERE {kind.old}"  # noqa: S608  # our own text


def delete_sql(kind: Kind) -> str:
    """Return the DELETE of at most %(rows)s rows; locked rows are left for later."""
    return (
        f"DELETE FROM {kind.table} WHERE id IN (SELECT id FROM {kind.table}"  # noqa: S608
        f" WHERE {kind.old} ORDER BY {kind.order} LIMIT %(rows)s FOR UPDATE SKIP LOCKED)"
    )


def first_kept(now: datetime, zone: ZoneInfo, months: int) -> Month | None:
    """Return the first month that is kept: `months` whole months before the current month (0:
    all)."""
    if months <= 0:
        return None
    month = Month.of(now, zone)
    for _ in range(months):
        month = month.previous()
    return month


def first_unclosed(earliest: Month, until: Month, closed: Collection[Month]) -> Month:
    """Return the first month from `earliest` on whose report is not closed, at most `until`."""
    for month in earliest.until(until):
        if month not in closed:
            return month
    return until
