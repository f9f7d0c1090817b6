"""glue: whether anything at all was recorded in a range."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connection

from usage.time.intervals import PARTITION_PIECES, POD_PIECES, bounds

if TYPE_CHECKING:
    from datetime import datetime


def anything_recorded(first: datetime, until: datetime) -> bool:
    """Return whether a pod or a partition was there at any moment of [first, until)."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT EXISTS (SELECT FROM ({POD_PIECES}) AS pods)"  # noqa: S608
            f" OR EXISTS (SELECT FROM ({PARTITION_PIECES}) AS held)",
            bounds(first, until),
        )
        return bool(cursor.fetchone()[0])
