"""glue: until when the record of pods is complete: the one answer of pages, reports and files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connection

if TYPE_CHECKING:
    from datetime import datetime

POD_WATCH = "pods"
"""Checkpoints and gaps of the watch of pods have names that begin so."""

SEEN_SQL = "SELECT min(position_at) FROM ipuhub_watchcheckpoint WHERE starts_with(name, %(watch)s)"
GAPS_SQL = (
    "FROM ipuhub_watchgap WHERE starts_with(watch, %(watch)s)"
    " AND began_at < %(end)s AND ended_at > %(begin)s AND shows_loss"
)
COMPLETE_UNTIL_SQL = (
    "SELECT CASE WHEN seen IS NOT NULL THEN"  # noqa: S608
    f" LEAST(seen, %(end)s, (SELECT min(began_at) {GAPS_SQL})) END"
    f" FROM ({SEEN_SQL}) AS watched (seen)"
)
"""Selects until when in [begin, end) the watch had seen everything; NULL: nobody ever watched."""


def complete_until(begin: datetime, end: datetime) -> datetime | None:
    """Return until when in [begin, end) the watch of pods had seen everything; None: never."""
    with connection.cursor() as cursor:
        cursor.execute(COMPLETE_UNTIL_SQL, {"watch": POD_WATCH, "begin": begin, "end": end})
        found: datetime | None = cursor.fetchone()[0]
        return found
