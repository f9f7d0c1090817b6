"""domain: times as kubectl and the pages show them: `5m10s`, `3d4h`, `2y`."""

from __future__ import annotations

import datetime as dt

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def human_duration(seconds: float) -> str:
    """A span with two digits of precision, as kubectl prints ages; `<invalid>` in the future."""
    whole = int(seconds)
    if whole < 0:
        return "<invalid>" if whole < -1 else "0s"
    if whole < 3 * _HOUR:
        return _in_minutes(whole)
    if whole < 8 * _HOUR:
        return _two(whole // _HOUR, "h", whole % _HOUR // _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    return _in_days(whole // _DAY, whole % _DAY // _HOUR)


def age(timestamp: object, now: dt.datetime) -> str:
    """How long ago an RFC 3339 time was; `<unknown>` without one, `<invalid>` for nonsense."""
    if not timestamp:
        return "<unknown>"
    try:
        then = dt.datetime.fromisoformat(str(timestamp))
    except ValueError:
        return "<invalid>"
    if then.tzinfo is None:
        return "<invalid>"
    return human_duration((now - then).total_seconds())


def _in_minutes(seconds: int) -> str:
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 10 * _MINUTE:
        return _two(seconds // _MINUTE, "m", seconds % _MINUTE, "s")
    return f"{seconds // _MINUTE}m"


def _in_days(days: int, hours: int) -> str:
    if days < 8:
        return _two(days, "d", hours, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(high: int, high_unit: str, low: int, low_unit: str) -> str:
    return f"{high}{high_unit}{low}{low_unit}" if low else f"{high}{high_unit}"
