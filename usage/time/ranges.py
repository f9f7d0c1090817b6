"""glue: parses time ranges: instants, days of a time zone, windows such as lastmonth."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from ipuhub.times import read_day_or_instant
from usage.time.windows import Month, WindowError, day_begin, local_day, named_month

if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo

NAMED: Final = (
    *("today", "yesterday", "week", "lastweek", "month", "lastmonth"),
    *("quarter", "lastquarter", "year", "lastyear"),
)
"""Windows by name; those of now go on to the end of the day, week, month, quarter or year."""
_DAY: Final = timedelta(days=1)
_MONTHS: Final = {"quarter": (3, 0), "lastquarter": (3, 1), "year": (12, 0), "lastyear": (12, 1)}
_LENGTH: Final = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_UNITS: Final = {"h": timedelta(hours=1), "d": _DAY, "w": 7 * _DAY}
_HOW: Final = (
    f"Use one of {', '.join(NAMED)}, a length up to now such as 12h, 7d or 4w, or two "
    "comma-separated instants."
)


def read_instant(text: str, zone: ZoneInfo, *, end: bool = False) -> datetime:
    """Return the same as `read_day_or_instant`. Raises WindowError."""
    try:
        return read_day_or_instant(text, zone, end=end)
    except (ValueError, OverflowError):
        raise WindowError(
            f"{text[:50]!r} is not a date. Use 2026-11-21 or 2026-11-21T10:00:00Z."
        ) from None


def read_window(text: str, now: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """Return begin and end of a window: by name, by length up to `now`, or by two instants.

    Windows named after months are calendar months: see `named_month`. Raises WindowError.
    """
    if text in NAMED:
        return _named(text, now, zone)
    if length := _LENGTH.fullmatch(text):
        try:
            return now - int(length[1]) * _UNITS[length[2]], now
        except OverflowError:
            raise WindowError(f"{text} is too long.", "window") from None
    begin, comma, end = text.partition(",")
    if not comma:
        raise WindowError(f"{text[:50]!r} is not a window. {_HOW}", "window")
    return read_instant(begin, zone), read_instant(end, zone, end=True)


def _named(text: str, now: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    today = local_day(now, zone)
    monday = today - today.weekday() * _DAY
    if month := named_month(text, now, zone):
        return month.first(zone), month.end(zone)
    if text in _MONTHS:
        length, ago = _MONTHS[text]
        number = (12 * today.year + today.month - 1) // length - ago
        begins = (divmod(each * length, 12) for each in (number, number + 1))
        first, end = (Month(year, month + 1).first(zone) for year, month in begins)
        return first, end
    day, days = {
        "today": (today, 1),
        "yesterday": (today - _DAY, 1),
        "week": (monday, 7),
        "lastweek": (monday - 7 * _DAY, 7),
    }[text]
    return day_begin(day, zone), day_begin(day + days * _DAY, zone)
