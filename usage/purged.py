"""glue: what retention deleted, so that no report of it can be made any more."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from usage.models import PurgeState
from usage.windows import day_begin

if TYPE_CHECKING:
    from datetime import datetime


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
            f"The records before {day} were deleted when their time was over: no report of "
            f"{first.astimezone(zone):%Y-%m-%d} can be made any more. Stored reports stay."
        )
