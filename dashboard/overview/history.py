"""io: the history that the overview shows: ended jobs, age of the records, faults."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Count, F, Func, IntegerField, Subquery, TextField, Value
from django.db.models.functions import JSONObject

from dashboard.overview.heldday import STEP_SECONDS, STEPS, day_before
from dashboard.overview.trends import read_trends
from ipuhub.recording.shapes import CHECKPOINT_TABLE, FAULT_TABLE, GAP_TABLE
from ipuhub.web.access import NOTHING
from jobs.ipujob.conditions import JobState
from jobs.models import JobRecord
from jobs.selectors import TYPICAL_CELL, typical_from, typical_parameters

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from django.db.models import QuerySet

    from dashboard.overview.trends import Trends
    from ipuhub.web.access import Scope
    from jobs.selectors import TypicalRun

A_DAY: Final = timedelta(hours=24)
_COUNTED_TO: Final = 1000
_FAILED: Final = JobState.FAILED.value
_ALIVE: Final = "alive"
_OVER: Final = "over"
_FRESHNESS: Final = f"""
SELECT (SELECT count(*) FROM (SELECT 1 FROM {FAULT_TABLE} LIMIT %(counted_to)s) AS faults),
  coalesce(array_agg(name ORDER BY name), '{{}}'),
  coalesce(array_agg(position_at ORDER BY name), '{{}}'),
  (SELECT count(*) FROM {GAP_TABLE} WHERE ended_at > %(since)s AND shows_loss),
  (SELECT min(began_at) FROM {GAP_TABLE} WHERE ended_at > %(since)s AND shows_loss)
"""  # noqa: S608  # no value is pasted in
_GROUPS: Final = f"""
(SELECT coalesce(json_object_agg(held.uid, held."group"), '{{}}')::text
FROM {JobRecord._meta.db_table} AS held WHERE held.uid = ANY(%(holders)s)
  AND (%(covered)s::text[] IS NULL OR held.namespace = ANY(%(covered)s::text[])))"""  # noqa: S608, SLF001  # of Django's documented API
_OF_WATCHES: Final = f" FROM {CHECKPOINT_TABLE}"


@dataclass(frozen=True, slots=True)
class RecordReach:
    """The completeness of the records.

    `complete_until`: all recorders have committed everything before this time; None: not all have.
    `recorders` names the watches with a checkpoint; without any, nothing was ever recorded.
    `faults` counts recorded faults, up to 1000. `gaps` counts gaps since a given time without a
    prober, the first of them from `first_gap` on.
    """

    recorders: tuple[str, ...]
    complete_until: dt.datetime | None
    faults: int
    gaps: int
    first_gap: dt.datetime | None
    trends: Trends


@dataclass(frozen=True, slots=True)
class LiveJobs:
    """The UIDs of jobs of which a reader in `scope` sees more than is recorded: those that wait,
    and those that hold partitions."""

    scope: Scope = NOTHING
    waiting: Collection[str] = ()
    holding: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class LiveJobFacts:
    """Recorded facts of them by UID: how long jobs like the waiting ones ran, and the groups for
    which those that hold partitions count."""

    runs: Mapping[str, TypicalRun]
    groups: Mapping[str, str]


def read_reach(
    since: dt.datetime, now: dt.datetime, jobs: LiveJobs = LiveJobs()
) -> tuple[RecordReach, LiveJobFacts]:
    """Return the reach of the history, the objects it could not take, and its gaps `since` then;
    and what is recorded of these live `jobs`. All in one query."""
    given: dict[str, Any] = {"counted_to": _COUNTED_TO, "since": since}
    given |= {"holders": sorted(jobs.holding), "covered": _covered(jobs.scope)}
    select = f"{_FRESHNESS}, {_GROUPS}"
    if jobs.waiting:
        select = f"{select}, {TYPICAL_CELL}"
        given |= typical_parameters(jobs.scope, jobs.waiting)
    trends, row = read_trends(select + _OF_WATCHES, given, now)
    faults, names, positions, gaps, first_gap, groups, *typical = row
    known = [position for position in positions if position is not None]
    is_complete = bool(names) and len(known) == len(names)
    complete_until = min(known) if is_complete else None
    reach = RecordReach(tuple(names), complete_until, faults, gaps, first_gap, trends)
    runs = typical_from(typical[0]) if typical else {}
    return reach, LiveJobFacts(runs, json.loads(groups))


def _covered(scope: Scope) -> list[str] | None:
    return None if scope.namespaces is None else sorted(scope.namespaces)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Jobs that ended in a span of time; `causes` of the failed jobs, the most frequent first;
    `steps`: number of failed jobs in each step of the day."""

    ended: int = 0
    failed: int = 0
    causes: tuple[tuple[str, int], ...] = ()
    steps: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecentlyEnded:
    """The jobs that ended last, newest first, and how all ended that did since a given time.

    `alive`: the newest jobs that were last seen without an end.
    """

    last: Sequence[JobRecord]
    outcome: Outcome
    alive: Sequence[JobRecord] = ()


def ended_jobs(scope: Scope, limit: int, since: datetime, *, unfinished: int = 0) -> RecentlyEnded:
    """Return the jobs that ended last within `scope`, and up to the given number of unfinished
    jobs, in one query."""
    more = []
    if unfinished:
        alive = _marked(scope, _ALIVE).filter(completed_at=None, deleted_at=None)
        more.append(alive.order_by("-created_at")[:unfinished])
    ended = _ended(scope, since)[:limit]
    found: dict[str, list[JobRecord]] = {_ALIVE: [], _OVER: []}
    for job in ended.union(*more, all=True) if more else ended:
        outcome: str = job.recently  # type: ignore[attr-defined]
        found[outcome if outcome in found else _OVER].append(job)
    over = found[_OVER]
    return RecentlyEnded(
        over,
        _outcome(json.loads(over[0].recently)) if over else Outcome(),  # type: ignore[attr-defined]
        found[_ALIVE],
    )


def _marked(scope: Scope, mark: str) -> QuerySet[JobRecord]:
    return _visible_jobs(scope).annotate(recently=Value(mark, output_field=TextField()))


def _outcome(counts: Sequence[Mapping[str, Any]]) -> Outcome:
    failed = [each for each in counts if each["status"] == _FAILED]
    causes: Counter[str] = Counter()
    steps: Counter[int] = Counter()
    for each in failed:
        causes[each["reason"] or each["status"]] += each["number"]
        steps[each["step"]] += each["number"]
    return Outcome(
        ended=sum(each["number"] for each in counts),
        failed=causes.total(),
        causes=tuple(sorted(causes.items(), key=lambda cause: (-cause[1], cause[0]))),
        steps=steps,
    )


def _ended(scope: Scope, since: datetime) -> QuerySet[JobRecord]:
    rows = _with_outcome(_visible_jobs(scope), scope, since)
    return rows.filter(completed_at__isnull=False).order_by("-completed_at")


def _with_outcome(rows: QuerySet[JobRecord], scope: Scope, since: datetime) -> QuerySet[JobRecord]:
    """Each row with the numbers of all ended jobs, counted once, which saves the page a query. They
    are text, of which only one copy is parsed."""
    ended = _visible_jobs(scope).filter(completed_at__gt=since).order_by()
    steps = ended.annotate(step=_Step(F("completed_at"), Value(day_before(_now_of(since))[0])))
    numbers = steps.values("status", "reason", "step").annotate(number=Count("id"))
    return rows.annotate(
        recently=_Together(
            numbers.values(
                each=JSONObject(status="status", reason="reason", step="step", number="number")
            )
        )
    )


class _Together(Subquery):
    """The JSON objects of a subquery as one text."""

    template = "(SELECT coalesce(json_agg(one), '[]')::text FROM (%(subquery)s) AS each (one))"
    output_field = TextField()


class _Step(Func):
    """The step of the day that contains an instant; the first and last step include everything
    beyond."""

    template = (
        f"greatest(least(floor(extract(epoch FROM %(expressions)s) / {STEP_SECONDS}), {STEPS - 1}),"
        " 0)::int"
    )
    arg_joiner = " - "
    output_field = IntegerField()


def _now_of(since: datetime) -> datetime:
    """Now, where the last 24 hours began at `since`."""
    return since + A_DAY


def _visible_jobs(scope: Scope) -> QuerySet[JobRecord]:
    rows = JobRecord.objects.defer("spec", "conditions", "labels", "applied", "running")
    if scope.namespaces is None:
        return rows
    return rows.filter(namespace__in=sorted(scope.namespaces))
