"""glue: the overview page: figures, fleet, queue and the last 24 hours, from one snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboard.fleet import read_fill
from dashboard.fleetkept import holders, map_of, settled_groups
from dashboard.fleetmap import FILLS
from dashboard.live import live_reader
from dashboard.overview import sparklines
from dashboard.overview.heldday import draw_day
from dashboard.overview.history import A_DAY, LiveJobs, ended_jobs, read_reach
from dashboard.overview.month import month_begin, read_month
from dashboard.overview.rows import (
    ended_rows,
    fleet_numbers,
    held_phases,
    live_jobs,
    remembered_jobs,
)
from dashboard.queue.typical import keep_runs, known_runs, missing_runs, with_runs
from ipuhub.web.access import (
    is_accountant,
    is_admin,
    scope_of,
    sees_cost,
    signed_in,
    usage_scope_of,
)
from ipuhub.web.filters import BadFilter
from ipuhub.web.problems import bad_parameters, takes
from ipuhub.web.readings import STALE_SECONDS, Shared
from ipuhub.web.requests import (
    etag_of,
    not_modified,
    note_as_of,
    release,
    tagged,
    wants_fragment,
)

if TYPE_CHECKING:
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from dashboard.fleetkept import Marked
    from dashboard.fleetmap import FleetMap
    from dashboard.live import LiveState
    from dashboard.overview.history import RecentlyEnded, RecordReach
    from dashboard.overview.month import MonthSoFar
    from dashboard.overview.rows import Active, Fleet
    from dashboard.queue.typical import Runs
    from ipuhub.web.access import Caller, Scope
    from partitions.fleetjson import FleetJson

_ENDED_SHOWN: Final = 6
_LINES: Final = 5  # of the queue
_REMEMBERED: Final = 500


@dataclass(frozen=True, slots=True)
class Notice:
    """The source that does not answer, and the age of the numbers in its place; `lacks_fleet`: the
    fleet, which nothing stands in for, was never read."""

    sentence: str
    read_at: datetime | None
    lacks_fleet: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """All that the page shows, read once: the present, and the record."""

    now: datetime
    state: LiveState
    reach: RecordReach
    runs: Runs
    active: Active
    ended: RecentlyEnded
    map: Marked[FleetMap]
    fleet: Fleet
    month: MonthSoFar | None


@dataclass(frozen=True, slots=True)
class Audience:
    """All that decides what a reader sees: their rights and what the map is filled by.

    `grantee`: the name of a reader who sees nothing yet, for the command that grants access.
    """

    scope: Scope
    usage: Scope
    fill: str
    sees_faults: bool
    sees_system: bool
    grantee: str


@dataclass(frozen=True)
class Shown:
    """The page's view of one reading: `values`, among them the `etag` of the changing part."""

    values: dict[str, Any]
    etag: str

    @cached_property
    def part(self) -> str:
        """The changing part. Nothing in it is of one reader alone, and none of a page's requests:
        rendered once, it is for the whole audience."""
        return render_to_string("_overview.html", self.values)

    def drawn(self) -> Shown:
        """Return it with its changing part rendered."""
        _ = self.part
        return self


_POLLED: Final[Shared[Audience, Shown]] = Shared()


@require_safe
@signed_in
@takes("fill")
def overview(request: HttpRequest) -> HttpResponseBase:
    """Show the page, or just its changing part when htmx asks."""
    try:
        fill = read_fill(request)
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    now, audience = timezone.now(), _audience(request.user, fill)
    show = partial(_show, audience, now)
    # A requested page is current; concurrent requests share one rendering. Polls of
    # many open pages share a recent rendering.
    if not wants_fragment(request):
        current = _POLLED.get_current(audience, now, lambda: show().drawn())
        # What of it the frame of the page shows, too.
        values = {"part": current.part} | {name: current.values[name] for name in ("as_of", "now")}
        return tagged(request, render(request, "overview.html", values), current.etag)
    current = _POLLED.get(audience, now, show)
    note_as_of(request, current.values["as_of"])
    if same := not_modified(request, current.etag):
        return same
    return tagged(request, HttpResponse(current.part), current.etag)


def _audience(user: Caller, fill: str) -> Audience:
    scope, usage = scope_of(user), usage_scope_of(user)
    sees_nothing = scope.namespaces == usage.namespaces == frozenset()
    grantee = user.get_username() if sees_nothing else ""
    return Audience(scope, usage, fill, is_accountant(user), is_admin(user), grantee)


def _show(audience: Audience, now: datetime) -> Shown:
    scope, reading = audience.scope, _read(audience.scope, audience.usage, now, audience.fill)
    values: dict[str, Any] = {"fill": audience.fill, "fills": FILLS, "grantee": audience.grantee}
    values["sees_system"] = audience.sees_system
    values |= _present(reading, scope) | _past(reading, scope)
    values["faults"] = reading.reach.faults if audience.sees_faults else 0
    values["notices"] = _notices(reading, scope)
    values["usage_on"] = settings.USAGE_ENABLED
    values["release"] = release()
    etag = etag_of(values | {"map": reading.map.mark})
    read = [each.read_at for each in reading.state.readings]
    # A notice names a source that was never read.
    as_of = min((at for at in read if at is not None), default=None)
    return Shown(values | {"now": now, "etag": etag, "as_of": as_of}, etag)


def _read(scope: Scope, usage: Scope, now: datetime, fill: str) -> Reading:
    """Read everything, of `usage` the month; before a live reading PostgreSQL stands in."""
    zone = settings.REPORT_ZONE
    state = live_reader().read(now)
    runs = known_runs(scope, now)
    unknown = missing_runs(_waiting(state.fleet.value), runs)
    jobs = LiveJobs(scope, unknown, holders(state.fleet.value))
    reach, found = read_reach(month_begin(now, zone), now, jobs)
    keep_runs(runs, unknown, found.runs)
    is_live = state.jobs.read_at is not None
    ended = ended_jobs(
        scope,
        _ENDED_SHOWN,
        now - A_DAY,
        unfinished=0 if is_live else _REMEMBERED,
    )
    if is_live:
        active = live_jobs(state.jobs.value, scope.covers, now)
    else:
        active = remembered_jobs(ended.alive, now)
    stats = state.fleet.value.get("stats", {})
    drawn = map_of(state, scope, now, fill, settled_groups(found.groups, scope, now))
    return Reading(
        now=now,
        state=state,
        reach=reach,
        runs=runs,
        active=active,
        ended=ended,
        map=drawn,
        fleet=fleet_numbers(stats, scope.covers, sees_all=scope.sees_all, drawn=drawn.value.total),
        month=read_month(usage, now, zone, costed=sees_cost(usage))
        if settings.USAGE_ENABLED
        else None,
    )


def _waiting(fleet: FleetJson) -> list[str]:
    """Return the UIDs of the jobs that the page shows of the queue."""
    return [each["uid"] for each in fleet.get("queue") or () if not each["never"]][:_LINES]


def _present(reading: Reading, scope: Scope) -> dict[str, Any]:
    """Return the jobs that run or wait and the partitions held now."""
    phases = held_phases(reading.state.partitions.value, scope.covers)
    unread = reading.state.partitions.read_at is None
    return {
        "sees_all": scope.sees_all,
        "fleet": reading.fleet,
        "active": reading.active,
        "held": reading.active.partitions if unread else len(phases),
        "in_error": phases.count("error"),
        "map": reading.map.value,
        "lines": with_runs(reading.map.value.queue[:_LINES], reading.runs),
        "map_is_stale": bool(reading.state.fleet.problem),
        "read_at": reading.state.fleet.read_at if reading.state.fleet.problem else None,
    }


def _past(reading: Reading, scope: Scope) -> dict[str, Any]:
    """Return recorded values: the last 24 hours, the month, and the reach of the record."""
    reach, until = reading.reach, reading.reach.complete_until
    steps = reading.ended.outcome.steps
    return {
        "ended": ended_rows(reading.ended.last),
        "outcome": reading.ended.outcome,
        "day": draw_day(reach.trends.held, reading.fleet.total, scope.covers, steps),
        "sparks": _sparklines(reading, scope),
        "month": reading.month,
        "held_share": reach.trends.held_share if scope.sees_all else "",
        "faults_url": _address("usage:faults"),
        "usage_url": _address("usage:month"),
        "gaps": reach.gaps,
        "first_gap": reach.first_gap,
        "recorders": reach.recorders,
        "complete_until": until and until.replace(second=0, microsecond=0),
        "stale": until is None or (reading.now - until).total_seconds() > STALE_SECONDS,
    }


def _sparklines(reading: Reading, scope: Scope) -> dict[str, sparklines.Sparkline]:
    """One under each figure, by name; each ends with the figure."""
    trends, drawn = reading.reach.trends, reading.map.value
    held = sparklines.means(trends.held, scope.covers)
    used = sparklines.means(trends.used, scope.covers)
    waiting = sparklines.means(trends.waiting, lambda _: True)  # numbers of others are no secret
    idle = sparklines.differences(held, used)
    days = reading.month.days if reading.month else ()
    return {
        "held": sparklines.draw_day("IPUs held", held, reading.fleet.held, reading.fleet.total),
        "waiting": sparklines.draw_day("Jobs waiting", waiting, drawn.waiting),
        "idle": sparklines.draw_day("IPUs held but idle", idle, drawn.idle_ipus),
        "failed": sparklines.draw_failures(reading.ended.outcome.steps),
        "month": sparklines.draw_line("This month, added up day by day", (0.0, *days)),
    }


def _notices(reading: Reading, scope: Scope) -> list[Notice]:
    """One notice for each problem, however many readings it stopped; the oldest time of what is
    shown in their place. The record stands in for jobs only: nothing does for the proxy's data."""
    found: dict[str, Notice] = {}
    for source in reading.state.readings:
        if source.problem:
            stand_in = reading.reach.complete_until if source is reading.state.jobs else None
            at = source.read_at or stand_in
            known = found.get(source.problem) or Notice(source.sentence(in_full=scope.sees_all), at)
            times = [each for each in (known.read_at, at) if each is not None]
            lacks_fleet = known.lacks_fleet or (source is reading.state.fleet and at is None)
            read_at = min(times, default=None)
            found[source.problem] = replace(known, read_at=read_at, lacks_fleet=lacks_fleet)
    return list(found.values())


def _address(url_name: str) -> str:
    try:
        return reverse(url_name)
    except NoReverseMatch:
        return ""
