"""glue: how a range of time is written: instants, days of a zone, and names such as lastmonth.

The zone in whose calendar usage has days and months.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from django.conf import settings

from ipuhub.months import Month
from usage.time.windows import WindowError, day_begin, local_day

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

NAMED: Final = ("today", "yesterday", "week", "lastweek", "month", "lastmonth")
"""Windows by name; those of now go on to the end of the day, week or month."""
_DAY: Final = timedelta(days=1)
_LENGTH: Final = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_UNITS: Final = {"h": timedelta(hours=1), "d": _DAY, "w": 7 * _DAY}
_HOW: Final = (
    f"Write one of {', '.join(NAMED)}, a length up to now such as 12h, 7d or 4w, "
    "or two instants with a comma between them."
)


def read_instant(text: str, zone: ZoneInfo, *, end: bool = False) -> datetime:
    """Return the instant written as `2026-11-21T10:00:00Z` (RFC 3339) or as a day of `zone`.

    A day means its begin, with `end` its end, so that a range of days includes the last one.
    A time without an offset is one of `zone`. Raises WindowError.
    """
    try:
        return _instant(text.replace(" ", "+"), zone, end)  # a `+` not escaped in the URL
    except (ValueError, OverflowError):
        raise WindowError(
            f"{text[:50]!r} is no date. Write 2026-11-21 or 2026-11-21T10:00:00Z."
        ) from None


def _instant(text: str, zone: ZoneInfo, end: bool) -> datetime:
    if len(text) == len("2026-11-21"):
        day = datetime.fromisoformat(text).date()
        return day_begin(day + _DAY if end else day, zone)
    instant = datetime.fromisoformat(text)
    return (instant if instant.tzinfo else instant.replace(tzinfo=zone)).astimezone(UTC)


def read_window(text: str, now: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return begin and end of a window by name, by its length up to `now`, or by two instants.

    Those of months are the calendar's: see `named_month`. Raises WindowError.
    """
    if text in NAMED:
        return _named(text, now, zone)
    if length := _LENGTH.fullmatch(text):
        try:
            return now - int(length[1]) * _UNITS[length[2]], now
        except OverflowError:
            raise WindowError(f"window: {text} is longer than there is a calendar.") from None
    begin, comma, end = text.partition(",")
    if not comma:
        raise WindowError(f"window: {text[:50]!r} is no window. {_HOW}")
    return read_instant(begin, zone), read_instant(end, zone, end=True)


def named_month(text: str, now: datetime, zone: ZoneInfo) -> Month | None:
    """Return the month that the name of a window means; None: it means no month."""
    month = Month.of(now, zone)
    return {"month": month, "lastmonth": month.previous()}.get(text)


def _named(text: str, now: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    today = local_day(now, zone)
    monday = today - today.weekday() * _DAY
    if month := named_month(text, now, zone):
        return month.first(zone), month.end(zone)
    first, days = {
        "today": (today, 1),
        "yesterday": (today - _DAY, 1),
        "week": (monday, 7),
        "lastweek": (monday - 7 * _DAY, 7),
    }[text]
    return day_begin(first, zone), day_begin(first + days * _DAY, zone)


def usage_zone() -> ZoneInfo:
    """Return the zone of the reports: pages and reports cut months alike."""
    zone: ZoneInfo = settings.REPORT_ZONE
    return zone
