"""io: IPU-hours of this month, added up anew at most every 30 s for each group of readers."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from django.conf import settings

from ipuhub.months import Month
from ipuhub.web.filters import BadFilter
from usage.sums.queries import month_to_date

if TYPE_CHECKING:
    from datetime import datetime

    from ipuhub.web.access import Scope

_MICRO_IPU_HOUR: Final = 3600 * 10**6
_KEPT_SECONDS: Final = 30
_KEPT_SCOPES: Final = 1000
_Key = frozenset[str] | None
_kept: dict[_Key, tuple[datetime, str]] = {}


def ipu_hours(scope: Scope, now: datetime) -> str:
    """IPU-hours of pods since the 1st, with one decimal; empty where no IPU was allocated.

    A question mark where they would take too long to add up, since nobody summed the days.
    The sum grows with every second, and each open page asks every three: the number is kept, so
    that neither the database nor the pages' ETags follow each tick.
    """
    kept = _kept.get(scope.namespaces)
    if kept is not None and 0 <= (now - kept[0]).total_seconds() < _KEPT_SECONDS:
        return kept[1]
    if len(_kept) >= _KEPT_SCOPES:
        _kept.clear()
    try:
        amount = month_to_date(scope, now, settings.REPORT_ZONE).micro_ipu_seconds
        text = f"{Decimal(amount) / _MICRO_IPU_HOUR:,.1f}" if amount else ""
    except BadFilter:  # the page of usage, to which it links, says why
        text = "?"
    _kept[scope.namespaces] = (now, text)
    return text


def month_begin(now: datetime) -> datetime:
    """The 1st, as the reports' zone has it."""
    return Month.of(now, settings.REPORT_ZONE).first(settings.REPORT_ZONE)


def forget() -> None:
    """Add up anew at the next question."""
    _kept.clear()
