"""glue: the health of each component, from its own heartbeat: for System, the header and the API
and for the worker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import connection
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework import serializers

from dashboard import components, observing
from dashboard.components import Component, LastOutage, TaskSigns
from dashboard.observing import missing, observed, read_now, recorded
from ipuhub.api.auth import IsAdmin, IsSignedIn
from ipuhub.api.views import LiveView
from ipuhub.heartbeats import BEAT, MONITOR, PROBER, TASKS, WEB, WORKER
from ipuhub.models import ComponentOutage, Heartbeat, TaskMessage, WatchCheckpoint
from ipuhub.web.access import is_admin, signed_in
from ipuhub.web.problems import takes
from ipuhub.web.readings import Shared
from usage.models import MonitorRound, ReportRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request
    from rest_framework.response import Response

_PROBER: Final = "Prober"
_CAPACITY: Final = "capacity"
_BEATS: Final = {
    WEB: "Dashboard",
    PROBER: _PROBER,
    MONITOR: "Monitor",
    WORKER: "Worker",
    BEAT: "Beat",
}
"""The components that note their release with their heartbeats."""
_POLLED_SECONDS: Final = 5

_LAST = f"""
    SELECT round.*,
        (SELECT min(queued_at) FROM {TaskMessage._meta.db_table}
            WHERE claimed_until IS NULL OR claimed_until < %(now)s) AS waits_since,
        EXISTS (SELECT FROM {ReportRun._meta.db_table} WHERE state = %(running)s) AS is_busy,
        (SELECT json_agg(newest) FROM (
            SELECT DISTINCT ON (name) name, min(since) AS began_at,
                CASE WHEN bool_and(ended_at IS NOT NULL) THEN max(ended_at) END AS ended_at,
                min(detail) AS detail,
                array_agg(member ORDER BY id) FILTER (WHERE member <> '') AS members
            FROM {ComponentOutage._meta.db_table} GROUP BY name, episode
            ORDER BY name, bool_and(ended_at IS NOT NULL), episode DESC
        ) AS newest) AS outages
    FROM (SELECT) AS always
    LEFT JOIN LATERAL (
        SELECT * FROM {MonitorRound._meta.db_table} ORDER BY ended_at DESC LIMIT 1
    ) AS round ON true
"""  # noqa: S608, SLF001  # names of tables, Django's


@dataclass(frozen=True, slots=True)
class StoredSigns:
    """The signs of life in PostgreSQL: heartbeats, the monitor's last round, the positions of the
    prober's watches, since when a task waits, whether a report is made; and the last
    outage of each component, by name."""

    beats: list[Heartbeat]
    round: MonitorRound | None
    watches: list[WatchCheckpoint]
    waits_since: datetime | None
    is_busy: bool
    outages: Mapping[str, LastOutage]


def read_stored(now: datetime, watches: Iterable[WatchCheckpoint] | None = None) -> StoredSigns:
    """Return what is stored, in a query each for heartbeats, the rest, and `watches` unless the
    caller has them."""
    beats = list(Heartbeat.objects.order_by("looked_at", "name"))
    values = {"now": now, "running": ReportRun.State.RUNNING}
    last: Any = MonitorRound.objects.raw(_LAST, values)[0]
    return StoredSigns(
        beats=beats,
        round=last if last.pk else None,
        watches=list(WatchCheckpoint.objects.all() if watches is None else watches),
        waits_since=last.waits_since,
        is_busy=last.is_busy,
        outages={each["name"]: _read_outage(each) for each in last.outages or ()},
    )


def _read_outage(row: Mapping[str, Any]) -> LastOutage:
    ended_at = row["ended_at"]
    return LastOutage(
        datetime.fromisoformat(row["began_at"]),
        datetime.fromisoformat(ended_at) if ended_at else None,
        row["detail"],
        tuple(row["members"] or ()),
    )


# For the dot on each page of each reader; it is the same for all of them.
_POLLED: Final[Shared[None, StoredSigns]] = Shared(seconds=_POLLED_SECONDS)


def read_components(now: datetime, stored: StoredSigns | None = None) -> list[Component]:
    """Return all components, in the order in which a job meets them; `stored`: signs of life that
    the caller has read."""
    sights, stored = read_now(now), stored or read_stored(now)
    found = observed(sights, now)
    lease = components.by_lease(_PROBER, sights.leases[observing.PROBER], now)
    own = [Component("PostgreSQL", components.UP, "answers", version=_postgres_version())]
    seen = found + missing(found, recorded(stored.beats, now))
    every = own + seen + _with_database(lease, seen, stored, now)
    return [replace(each, last_outage=stored.outages.get(each.name)) for each in every]


def _postgres_version() -> str:
    """Return the server version from the connection, without a query."""
    connection.ensure_connection()
    # Not Django's `pg_version`, which it keeps past reconnects. 170010 is 17.10.
    number: int = connection.connection.info.server_version
    return f"{number // 10_000}.{number % 10_000}"


def read_recorded(now: datetime) -> list[Component]:
    """All components except PostgreSQL as its rows have them, for a process that reaches nothing
    else.

    While the dashboard is down, the state of components that it observes is stale.
    """
    lease, stored = Component(_PROBER, components.UNKNOWN, ""), read_stored(now)
    seen = recorded(stored.beats, now)
    return seen + _with_database(lease, seen, stored, now)


def _with_database(
    lease: Component, seen: list[Component], stored: StoredSigns, now: datetime
) -> list[Component]:
    """The components that leave signs of life in PostgreSQL themselves."""
    own = [row for row in stored.beats if row.looked_at is None]
    of_release = {_BEATS[row.name]: row.version for row in own if row.name in _BEATS}
    found = _beating(lease, seen, {row.name: row.at for row in own}, stored, now)
    # A standby of another release has a heartbeat, too: who leads is in the Lease.
    return [replace(each, version=each.version or of_release.get(each.name, "")) for each in found]


def _beating(
    lease: Component,
    seen: list[Component],
    beats: Mapping[str, datetime | None],
    stored: StoredSigns,
    now: datetime,
) -> list[Component]:
    web = components.by_heartbeat("Dashboard", beats.get(WEB), now, "makes its rounds")
    if not settings.USAGE_ENABLED:
        return [web]
    unknown = Component(components.KUBERNETES, components.UNKNOWN, "")
    kubernetes = next((each for each in seen if each.name == components.KUBERNETES), unknown)
    # The prober by the positions of its watches, beside what its Lease says.
    positions = [each.position_at for each in stored.watches if each.name != _CAPACITY]
    prober = components.of_prober(lease, positions, now)
    lags = [each.lag_seconds for each in stored.watches if each.lag_seconds is not None]
    prober = replace(prober, lag_seconds=max(lags, default=None))
    monitor = _judge_monitor(stored.round, now)
    signs = TaskSigns(
        worker_at=beats.get(WORKER),
        beat_at=beats.get(BEAT),
        task_at=beats.get(TASKS),
        waits_since=stored.waits_since,
        is_busy=stored.is_busy,
    )
    return [
        web,
        components.with_heartbeat(prober, beats.get(PROBER), kubernetes, now),
        components.with_heartbeat(monitor, beats.get(MONITOR), kubernetes, now),
        *components.of_worker_and_beat(signs, now),
    ]


def _judge_monitor(last: MonitorRound | None, now: datetime) -> Component:
    ended_at, problem = (last.ended_at, last.problem) if last else (None, "")
    return components.of_monitor(ended_at, problem, settings.MONITOR_ROUND_SECONDS, now)


@require_safe
@signed_in
@takes()
def health_dot(request: HttpRequest) -> HttpResponseBase:
    """Show the header's one line of all components; their names to administrators alone."""
    sees_names = is_admin(request.user)
    now = timezone.now()
    stored = _POLLED.get(None, now, lambda: read_stored(now))
    state, sentence = components.summary(read_components(now, stored), named=sees_names)
    brief, _, more = sentence.partition(";")
    context = {"state": state, "brief": brief, "more": more, "sees_names": sees_names}
    return render(request, "_health.html", context)


class OutageSerializer(serializers.Serializer[Any]):
    """An outage; `ended_at` null: it lasts. `members`: the V-IPU agents that were down."""

    began_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    detail = serializers.CharField()
    members = serializers.ListField(child=serializers.CharField())


class ComponentSerializer(serializers.Serializer[Any]):
    """A component. `state`: up, down or unknown; `since`: its last sign of life; `holder`: the
    replica that works, and leads since `leads_since` (null unless the component is up); `version`:
    its release, where that is known; `lag_seconds`: how far its work is behind (null: not
    measured); `last_outage`: the outage that lasts, or the last that ended within 60 days.
    The V-IPU agents of a controller are one component with so many `members`; `absent` are those
    that do not answer."""

    name = serializers.CharField()
    state = serializers.ChoiceField(choices=components.STATES)
    detail = serializers.CharField()
    holder = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)
    members = serializers.IntegerField(allow_null=True, source="member_count")
    absent = serializers.ListField(child=serializers.CharField())
    version = serializers.CharField()
    leads_since = serializers.DateTimeField(allow_null=True)
    lag_seconds = serializers.FloatField(allow_null=True)
    last_outage = OutageSerializer(allow_null=True)


class ComponentListSerializer(serializers.Serializer[Any]):
    """All components, in the order in which a job meets them."""

    results = ComponentSerializer(many=True)


class Components(LiveView):
    """The components of the product, each up, down or unknown."""

    permission_classes = (IsSignedIn, IsAdmin)

    @extend_schema(
        operation_id="components", summary="Components", responses=ComponentListSerializer
    )
    def get(self, request: Request) -> Response:
        """The components by their own signs of life; administrators only."""
        now = timezone.now()
        found = read_components(now)
        data = ComponentListSerializer({"results": found}).data
        return self.answer(request, data, components.steady(found), now)
