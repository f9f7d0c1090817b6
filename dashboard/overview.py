"""glue: the overview: the present read live, the past from Postgres.

The lines of the overview, out of live manifests or out of what is remembered.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from django.conf import settings
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboard.fleet import read_fill, read_map
from dashboard.fleetmap import FILLS
from dashboard.heldday import draw_day
from dashboard.history import (
    ended_and_unfinished_jobs,
    ended_jobs,
    ipu_hours,
    month_begin,
    read_reach,
)
from dashboard.live import live_reader
from ipuhub.partition import Phase
from ipuhub.web.access import scope_of
from ipuhub.web.filters import BadFilter
from ipuhub.web.lists import colour_of
from ipuhub.web.problems import not_as_asked
from ipuhub.web.readings import STALE_SECONDS
from ipuhub.web.requests import fragment_etag, not_modified, signed_in, tagged, wants_fragment
from jobs.history.rows import size_of
from jobs.ipujob.conditions import FINISHED, JobState, brief_message
from partitions.proxy.capacity import TOTAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from dashboard.history import RecentlyEnded, RecordReach
    from dashboard.live import LiveState
    from ipuhub.kube.resources import Manifest
    from ipuhub.web.access import Scope

_NOT_HELD = frozenset({Phase.WAITING.value, Phase.RELEASED.value})
_FINISHED = frozenset(state.value for state in FINISHED)
_RUNNING = frozenset({JobState.RUNNING.value, JobState.RESTARTING.value})


@dataclass(frozen=True, slots=True)
class JobRow:
    """One line of the table of active jobs; `workers` as `1/2`: active of wanted."""

    uid: str
    namespace: str
    name: str
    status: str
    colour: str
    ipus: int
    workers: str
    partitions: tuple[str, ...]
    message: str
    created: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Fleet:
    """IPUs held by jobs that may be seen, and free in the whole fleet; None: not known yet."""

    held: int
    free: int | None
    namespaces: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        return self.held + (self.free or 0)


class Remembered(Protocol):
    """What is needed of a job record."""

    uid: str
    namespace: str
    name: str
    status: str
    ipus: int
    workers: int
    partitions: Any
    message: str
    created_at: dt.datetime


class Holding(Protocol):
    """What is needed of a partition."""

    @property
    def namespace(self) -> str:
        """Where its job lives."""

    @property
    def phase(self) -> str:
        """Where it stands."""


def active_rows(manifests: Iterable[Manifest], covers: Callable[[str], bool]) -> list[JobRow]:
    """The unfinished jobs among `manifests` that `covers` allows, newest first."""
    seen = (manifest for manifest in manifests if covers(manifest["metadata"]["namespace"]))
    rows = [_live_row(manifest) for manifest in seen]
    return _newest_first(row for row in rows if row.status not in _FINISHED)


def remembered_rows(records: Iterable[Remembered]) -> list[JobRow]:
    """The same, from records of unfinished jobs."""
    return _newest_first(_remembered_row(record) for record in records)


def count_states(rows: Iterable[JobRow]) -> tuple[int, int]:
    """How many of the jobs run (or restart), and how many wait."""
    states = [row.status for row in rows]
    return sum(state in _RUNNING for state in states), states.count(JobState.PENDING.value)


def fleet_numbers(
    stats: Mapping[str, Any], covers: Callable[[str], bool], *, sees_all: bool
) -> Fleet:
    """The numbers of `/stats` for somebody who may see what `covers` allows."""
    spaces = [
        (name, int(numbers["used"]))
        for name, numbers in sorted(stats.items())
        if name != TOTAL and covers(name)
    ]
    sums = stats.get(TOTAL)
    if sums is None:
        return Fleet(0, None, ())
    held = int(sums["used"]) if sees_all else sum(number for _, number in spaces)
    return Fleet(held, int(sums["available"]), tuple(spaces))


def held_phases(holdings: Iterable[Holding], covers: Callable[[str], bool]) -> Sequence[str]:
    """The phases of all held partitions that `covers` allows."""
    return [
        holding.phase
        for holding in holdings
        if holding.phase not in _NOT_HELD and covers(holding.namespace)
    ]


def _newest_first(rows: Iterable[JobRow]) -> list[JobRow]:
    first = dt.datetime.min.replace(tzinfo=dt.UTC)
    return sorted(rows, key=lambda row: (row.created or first, row.uid), reverse=True)


def _live_row(job: Manifest) -> JobRow:
    meta, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    workers = status.get("workersStatus") or {}
    wanted = size_of(spec).workers
    state = status.get("launcherStatus") or JobState.PENDING.value
    return JobRow(
        uid=meta.get("uid", ""),
        namespace=meta["namespace"],
        name=meta["name"],
        status=state,
        colour=colour_of(state),
        ipus=int(status.get("ipus") or 0),
        workers=f"{workers.get('active', 0)}/{wanted}",
        partitions=_partition_ids(status.get("partitions")),
        message=brief_message(
            status.get("lastMessage") or "", f"{meta['namespace']}/{meta['name']}"
        ),
        created=_instant(meta.get("creationTimestamp")),
    )


def _remembered_row(record: Remembered) -> JobRow:
    return JobRow(
        uid=record.uid,
        namespace=record.namespace,
        name=record.name,
        status=record.status,
        colour=colour_of(record.status),
        ipus=record.ipus,
        workers=str(record.workers),
        partitions=_partition_ids(record.partitions),
        message=brief_message(record.message, f"{record.namespace}/{record.name}"),
        created=record.created_at,
    )


def _partition_ids(held: Any) -> tuple[str, ...]:
    found = [entry.get("id") if isinstance(entry, dict) else entry for entry in held or ()]
    return tuple(str(name) for name in found if name)


def _instant(text: str | None) -> dt.datetime | None:
    if not text:
        return None
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class EndedRow:
    """One line of the table of jobs that ended last; `seconds`: how long it ran, if it did."""

    uid: str
    namespace: str
    name: str
    status: str
    colour: str
    ipus: int
    seconds: float | None
    message: str
    ended: dt.datetime


class Ended(Remembered, Protocol):
    """What is needed of the record of a job that ended."""

    started_at: dt.datetime | None
    completed_at: dt.datetime | None


def ended_rows(records: Iterable[Ended]) -> list[EndedRow]:
    """The records that have an end, in their order."""
    return [
        EndedRow(
            uid=record.uid,
            namespace=record.namespace,
            name=record.name,
            status=record.status,
            colour=colour_of(record.status),
            ipus=record.ipus,
            seconds=(record.completed_at - record.started_at).total_seconds()
            if record.started_at
            else None,
            message=brief_message(record.message, f"{record.namespace}/{record.name}"),
            ended=record.completed_at,
        )
        for record in records
        if record.completed_at is not None
    ]


_ACTIVE_SHOWN: Final = 50
_ENDED_SHOWN: Final = 8
_REMEMBERED: Final = 500
_A_DAY: Final = dt.timedelta(hours=24)
_STARTING_SECONDS: Final = 20  # a pending job of this age is about to run: polled each second


@dataclass(frozen=True)
class Notice:
    """What does not answer, and of when the numbers are that stand in for it."""

    sentence: str
    read_at: dt.datetime | None


@require_safe
@signed_in
def overview(request: HttpRequest) -> HttpResponseBase:
    """Show the page, or just its changing part when htmx asks."""
    try:
        fill = read_fill(request)
    except BadFilter as error:
        return not_as_asked(request, error.messages)
    now, scope = timezone.now(), scope_of(request.user)
    freshness = read_reach(month_begin(now), now)
    state = live_reader().read(now)
    active, ended = _jobs(state, scope, now)
    shown: dict[str, Any] = {"ended": ended_rows(ended.last), "outcome": ended.outcome}
    shown |= _present(state, active, scope, now) | _past(scope, freshness, now)
    shown |= {
        "fill": fill,
        "fills": FILLS,
        "map": (drawn := read_map(state, scope, now, fill)),
        "day": draw_day(freshness.held, drawn.total, scope.covers),
        "stale": bool(state.fleet.problem),
    }
    shown["notices"] = _notices(state, freshness, scope)
    tag = fragment_etag(request, shown)
    if same := not_modified(request, tag):
        return same
    template = "_overview.html" if wants_fragment(request) else "overview.html"
    return tagged(render(request, template, shown | {"now": now, "etag": tag}), tag)


def _jobs(state: LiveState, scope: Scope, now: dt.datetime) -> tuple[list[JobRow], RecentlyEnded]:
    """Active jobs, and those that ended last; all out of Postgres before the first live reading."""
    since = now - _A_DAY
    if state.jobs.read_at is not None:
        ended = ended_jobs(scope, _ENDED_SHOWN, since)
        return active_rows(state.jobs.value, scope.covers), ended
    over, alive = ended_and_unfinished_jobs(scope, _ENDED_SHOWN, _REMEMBERED, since)
    return remembered_rows(alive), over


def _present(
    state: LiveState, jobs: Sequence[JobRow], scope: Scope, now: dt.datetime
) -> dict[str, Any]:
    """What runs and is held now."""
    running, pending = count_states(jobs)
    phases = held_phases(state.partitions.value, scope.covers)
    held = sum(len(job.partitions) for job in jobs)
    young = (job.created for job in jobs if job.status == "Pending" and job.created)
    return {
        "starting": any((now - created).total_seconds() < _STARTING_SECONDS for created in young),
        "scope_is_empty": scope.namespaces == frozenset(),
        "sees_all": scope.sees_all,
        "fleet": fleet_numbers(
            state.fleet.value.get("stats", {}), scope.covers, sees_all=scope.sees_all
        ),
        "jobs": jobs[:_ACTIVE_SHOWN],
        "active": len(jobs),
        "running": running,
        "pending": pending,
        "held": held if state.partitions.read_at is None else len(phases),
        "in_error": phases.count("error"),
    }


def _notices(state: LiveState, freshness: RecordReach, scope: Scope) -> list[Notice]:
    """One notice for each sentence; the oldest time of the readings that it stopped."""
    found: dict[str, dt.datetime | None] = {}
    for reading in state.readings:
        if sentence := reading.said(in_full=scope.sees_all):
            at = reading.read_at or freshness.complete_until
            known = found.get(sentence, at)
            found[sentence] = min(known, at) if known and at else None
    return [Notice(sentence, at) for sentence, at in found.items()]


def _past(scope: Scope, freshness: RecordReach, now: dt.datetime) -> dict[str, Any]:
    until = freshness.complete_until
    return {
        "faults": freshness.faults if scope.sees_all else 0,
        "faults_url": _address("usage:faults") or _address("usage:month"),
        "usage_url": _address("usage:month"),
        "gaps": freshness.gaps,
        "first_gap": freshness.first_gap,
        "month": ipu_hours(scope, now) if settings.USAGE_ENABLED else "",
        "recorders": freshness.recorders,
        "complete_until": until and until.replace(second=0, microsecond=0),
        "stale": until is None or (now - until).total_seconds() > STALE_SECONDS,
    }


def _address(url_name: str) -> str:
    try:
        return reverse(url_name)
    except NoReverseMatch:
        return ""
