"""glue: the overview: the present read live, the past from Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.shortcuts import render
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboard.history import ended_and_unfinished_jobs, ended_jobs, read_reach
from dashboard.monthtodate import ipu_hours, month_begin
from dashboard.overviewrows import (
    active_rows,
    count_states,
    ended_rows,
    fleet_numbers,
    held_phases,
    remembered_rows,
)
from dashboard.wiring import live_reader
from ipuhub.web.access import scope_of
from ipuhub.web.etag import fragment_etag, not_modified, tagged
from ipuhub.web.freshness import STALE_SECONDS
from ipuhub.web.requests import signed_in, wants_fragment

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from django.http import HttpRequest, HttpResponse

    from dashboard.history import RecordReach
    from dashboard.live import LiveState
    from dashboard.overviewrows import EndedRow, JobRow
    from ipuhub.web.access import Scope

_ACTIVE_SHOWN: Final = 50
_ENDED_SHOWN: Final = 8
_REMEMBERED: Final = 500
_STARTING_SECONDS: Final = 20  # a pending job of this age is about to run: polled each second


@dataclass(frozen=True)
class Notice:
    """What does not answer, and of when the numbers are that stand in for it."""

    sentence: str
    read_at: dt.datetime | None


@require_safe
@signed_in
def overview(request: HttpRequest) -> HttpResponse:
    """Show the page, or just its changing part when htmx asks."""
    now, scope = timezone.now(), scope_of(request.user)
    freshness = read_reach(month_begin(now))
    state = live_reader().read(now)
    active, ended = _jobs(state, scope)
    shown = {"ended": ended} | _present(state, active, scope, now) | _past(scope, freshness, now)
    shown["notices"] = _notices(state, freshness, scope)
    tag = fragment_etag(request, shown)
    if same := not_modified(request, tag):
        return same
    template = "_overview.html" if wants_fragment(request) else "overview.html"
    return tagged(render(request, template, shown | {"now": now, "etag": tag}), tag)


def _jobs(state: LiveState, scope: Scope) -> tuple[list[JobRow], list[EndedRow]]:
    """Active jobs, and those that ended last; all out of Postgres before the first live reading."""
    if state.jobs.read_at is not None:
        ended = ended_rows(ended_jobs(scope, _ENDED_SHOWN))
        return active_rows(state.jobs.value, scope.covers), ended
    over, alive = ended_and_unfinished_jobs(scope, _ENDED_SHOWN, _REMEMBERED)
    return remembered_rows(alive), ended_rows(over)


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
        "fleet": fleet_numbers(state.stats.value, scope.covers, sees_all=scope.sees_all),
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
