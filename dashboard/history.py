"""io: what the overview reads of history: ended jobs, how fresh the records are, faults.

IPU-hours of this month, added up anew at most every 30 s for each group of readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.db import connection

from ipuhub.months import Month
from ipuhub.recording.shapes import CHECKPOINT_TABLE, FAULT_TABLE, GAP_TABLE
from ipuhub.web.filters import BadFilter
from jobs.models import JobRecord
from usage.sums.queries import month_to_date

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence
    from datetime import datetime

    from django.db.models import QuerySet

    from ipuhub.web.access import Scope

_COUNTED_TO: Final = 1000
_FRESHNESS: Final = f"""
SELECT (SELECT count(*) FROM (SELECT 1 FROM {FAULT_TABLE} LIMIT %(counted_to)s) AS faults),
  coalesce(array_agg(name ORDER BY name), '{{}}'),
  coalesce(array_agg(position_at ORDER BY name), '{{}}'),
  (SELECT count(*) FROM {GAP_TABLE} WHERE ended_at > %(since)s AND shows_loss),
  (SELECT min(began_at) FROM {GAP_TABLE} WHERE ended_at > %(since)s AND shows_loss)
FROM {CHECKPOINT_TABLE}
"""  # noqa: S608  # no value is pasted in


@dataclass(frozen=True, slots=True)
class RecordReach:
    """`complete_until`: all recorders have committed what happened before; None: not all have.

    `recorders` names the watches with a checkpoint; without any, nothing was ever recorded.
    `faults` counts what the recorders could not take, at most 1000: beyond, nobody counts. `gaps`
    since a given time, in which nobody watched, the first of them from `first_gap` on.
    """

    recorders: tuple[str, ...]
    complete_until: dt.datetime | None
    faults: int
    gaps: int
    first_gap: dt.datetime | None


def read_reach(since: dt.datetime) -> RecordReach:
    """How far the history goes, what it could not take, and its gaps `since` then."""
    with connection.cursor() as cursor:
        cursor.execute(_FRESHNESS, {"counted_to": _COUNTED_TO, "since": since})
        faults, names, positions, gaps, first_gap = cursor.fetchone()
    known = [position for position in positions if position is not None]
    whole = bool(names) and len(known) == len(names)
    return RecordReach(tuple(names), min(known) if whole else None, faults, gaps, first_gap)


def ended_jobs(scope: Scope, limit: int) -> Sequence[JobRecord]:
    """The jobs that ended last, within `scope`."""
    return list(_ended(scope)[:limit])


def ended_and_unfinished_jobs(
    scope: Scope, ended: int, unfinished: int
) -> tuple[Sequence[JobRecord], Sequence[JobRecord]]:
    """The same, and the newest jobs that were last seen without an end, in one question."""
    alive = _visible_jobs(scope).filter(completed_at=None, deleted_at=None)
    both = _ended(scope)[:ended].union(alive.order_by("-created_at")[:unfinished], all=True)
    found = list(both)
    return (
        [job for job in found if job.completed_at is not None],
        [job for job in found if job.completed_at is None],
    )


def _ended(scope: Scope) -> QuerySet[JobRecord]:
    return _visible_jobs(scope).filter(completed_at__isnull=False).order_by("-completed_at")


def _visible_jobs(scope: Scope) -> QuerySet[JobRecord]:
    rows = JobRecord.objects.defer("spec", "conditions", "labels")
    if scope.namespaces is None:
        return rows
    return rows.filter(namespace__in=sorted(scope.namespaces))


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
