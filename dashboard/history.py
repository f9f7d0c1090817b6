"""io: what the overview reads of history: ended jobs, how fresh the records are, faults.

IPU-hours of this month, added up anew at most every 30 s for each group of readers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.contrib.postgres.expressions import ArraySubquery
from django.db import connection
from django.db.models import Count
from django.db.models.functions import JSONObject

from dashboard.heldday import HELD_PARTS, day_before, sum_up
from ipuhub.months import Month
from ipuhub.recording.shapes import CHECKPOINT_TABLE, FAULT_TABLE, GAP_TABLE
from ipuhub.web.filters import BadFilter
from jobs.ipujob.conditions import JobState
from jobs.models import JobRecord
from usage.sums.queries import month_to_date
from usage.time.intervals import bounds

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from django.db.models import QuerySet

    from dashboard.heldday import HeldDay
    from ipuhub.web.access import Scope

_COUNTED_TO: Final = 1000
_FAILED: Final = JobState.FAILED.value
_FRESHNESS: Final = f"""
SELECT (SELECT count(*) FROM (SELECT 1 FROM {FAULT_TABLE} LIMIT %(counted_to)s) AS faults),
  coalesce(array_agg(name ORDER BY name), '{{}}'),
  coalesce(array_agg(position_at ORDER BY name), '{{}}'),
  (SELECT count(*) FROM {GAP_TABLE} WHERE ended_at > %(since)s AND shows_loss),
  (SELECT min(began_at) FROM {GAP_TABLE} WHERE ended_at > %(since)s AND shows_loss),
  ({HELD_PARTS})
FROM {CHECKPOINT_TABLE}
"""  # noqa: S608  # no value is pasted in


@dataclass(frozen=True, slots=True)
class RecordReach:
    """`complete_until`: all recorders have committed what happened before; None: not all have.

    `recorders` names the watches with a checkpoint; without any, nothing was ever recorded.
    `faults` counts what the recorders could not take, at most 1000: beyond, nobody counts. `gaps`
    since a given time, in which nobody watched, the first of them from `first_gap` on. `held`: who
    held IPUs in the last 24 hours, as `heldday.sum_up` takes it.
    """

    recorders: tuple[str, ...]
    complete_until: dt.datetime | None
    faults: int
    gaps: int
    first_gap: dt.datetime | None
    held: HeldDay


def read_reach(since: dt.datetime, now: dt.datetime) -> RecordReach:
    """How far the history goes, what it could not take, and its gaps `since` then."""
    first, until = day_before(now)
    given: dict[str, int | datetime] = {"counted_to": _COUNTED_TO, "since": since}
    given |= bounds(first, until)
    with connection.cursor() as cursor:
        cursor.execute(_FRESHNESS, given)
        faults, names, positions, gaps, first_gap, parts = cursor.fetchone()
    known = [position for position in positions if position is not None]
    whole = bool(names) and len(known) == len(names)
    held = sum_up(json.loads(parts) if isinstance(parts, str) else parts or [], first)
    complete_until = min(known) if whole else None
    return RecordReach(tuple(names), complete_until, faults, gaps, first_gap, held)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Jobs that ended in a span of time; `causes` of the failed ones, the most frequent first."""

    ended: int = 0
    failed: int = 0
    causes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RecentlyEnded:
    """The jobs that ended last, newest first, and how all ended that did since a given time."""

    last: Sequence[JobRecord]
    outcome: Outcome


def ended_jobs(scope: Scope, limit: int, since: datetime) -> RecentlyEnded:
    """The jobs that ended last, within `scope`."""
    return _ended_of(list(_ended(scope, since)[:limit]))


def ended_and_unfinished_jobs(
    scope: Scope, ended: int, unfinished: int, since: datetime
) -> tuple[RecentlyEnded, Sequence[JobRecord]]:
    """The same, and the newest jobs that were last seen without an end, in one question."""
    alive = _with_outcome(_visible_jobs(scope), scope, since)
    alive = alive.filter(completed_at=None, deleted_at=None).order_by("-created_at")
    found = list(_ended(scope, since)[:ended].union(alive[:unfinished], all=True))
    over = [job for job in found if job.completed_at is not None]
    return _ended_of(over), [job for job in found if job.completed_at is None]


def _ended_of(rows: Sequence[JobRecord]) -> RecentlyEnded:
    return RecentlyEnded(rows, _outcome(rows[0].recently) if rows else Outcome())  # type: ignore[attr-defined]


def _outcome(counts: Sequence[Mapping[str, Any]]) -> Outcome:
    failed = [each for each in counts if each["status"] == _FAILED]
    causes = [(each["reason"] or each["status"], each["number"]) for each in failed]
    return Outcome(
        ended=sum(each["number"] for each in counts),
        failed=sum(each["number"] for each in failed),
        causes=tuple(sorted(causes, key=lambda cause: (-cause[1], cause[0]))),
    )


def _ended(scope: Scope, since: datetime) -> QuerySet[JobRecord]:
    rows = _with_outcome(_visible_jobs(scope), scope, since)
    return rows.filter(completed_at__isnull=False).order_by("-completed_at")


def _with_outcome(rows: QuerySet[JobRecord], scope: Scope, since: datetime) -> QuerySet[JobRecord]:
    """Each row with the numbers of all that ended, counted once: it saves the page a question."""
    ended = _visible_jobs(scope).filter(completed_at__gt=since).order_by()
    numbers = ended.values("status", "reason").annotate(number=Count("id"))
    return rows.annotate(
        recently=ArraySubquery(
            numbers.values(each=JSONObject(status="status", reason="reason", number="number"))
        )
    )


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
