"""glue: the purged time ranges: their reports are refused, and pages say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from django.db import connection
from django.db.models import Max

from ipuhub.recording.shapes import CHECKPOINT_TABLE
from ipuhub.web.readings import freshness_of
from usage.models import PurgeState
from usage.time.windows import day_begin

if TYPE_CHECKING:
    from datetime import date, datetime

    from django.http.response import HttpResponseBase

HEADER: Final = "Purged-Before"


class PurgedError(Exception):
    """The records that a report needs were deleted; the message says until when."""


def refuse_purged(first: datetime, zone: ZoneInfo) -> None:
    """Raise PurgedError where records of [first, ...) may have been deleted."""
    state = PurgeState.objects.order_by("-purged_before", "-id").first()
    if state is None:
        return
    day = state.purged_before
    if first < day_begin(day, ZoneInfo(state.zone)):
        raise PurgedError(
            f"The records before {day} were purged, so no report of "
            f"{first.astimezone(zone):%Y-%m-%d} can be generated. Stored reports are kept."
        )


def purged_until() -> datetime | None:
    """Return the instant before which lifetimes were purged; None: none ever."""
    day = purged_before()
    state = PurgeState.objects.filter(purged_before=day).order_by("-id").first() if day else None
    return day_begin(state.purged_before, ZoneInfo(state.zone)) if state else None


def purged_before() -> date | None:
    """Return the day before which lifetimes were purged; None: none ever."""
    # A purge of gaps and faults alone has the year 1970.
    of_lifetimes = PurgeState.objects.filter(purged_before__year__gt=1970)
    found: date | None = of_lifetimes.aggregate(last=Max("purged_before"))["last"]
    return found


_PURGED: Final = (
    "(SELECT max(purged_before) FROM usage_purgestate WHERE purged_before >= '1971-01-01')"
)
_NOTES: Final = f"""
SELECT (SELECT position_at FROM {CHECKPOINT_TABLE} WHERE name = %s), {_PURGED}
"""  # noqa: S608  # no value is pasted in
_ROWS: Final = f"SELECT pg_current_snapshot()::text, {_PURGED}"  # likewise


def list_notes(watch: str, now: datetime) -> dict[str, Any]:
    """Return what a list of lifetimes says of itself: how fresh it is, by the recorder with this
    checkpoint, and before which day its rows were purged. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_NOTES, [watch])
        seen, purged = cursor.fetchone()
    return {"freshness": freshness_of(seen, now), "purged_before": purged}


def rows_and_purged() -> tuple[str | None, date | None]:
    """Return what `rows_now` returns, and the day before which lifetimes were purged. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_ROWS)
        rows, day = cursor.fetchone()
    return None if connection.in_atomic_block else str(rows), day


def mark_purged(answer: HttpResponseBase) -> None:
    """Put that day into a header of an answer that lists lifetimes."""
    mark_day(answer, purged_before())


def mark_day(answer: HttpResponseBase, day: date | None) -> None:
    """Likewise, where it was read before."""
    if day:
        answer[HEADER] = day.isoformat()
