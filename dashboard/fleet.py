"""glue: the fleet map out of what cluster and V-IPU Proxy say now: its page, and its API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from dashboard.fleetmap import FILLS, Reader, draw_fleet, list_ipus
from dashboard.fleetqueue import JobFacts
from dashboard.live import live_reader
from ipuhub.api.auth import IsSignedIn
from ipuhub.web.access import scope_of, signed_in
from ipuhub.web.filters import BadFilter
from ipuhub.web.problems import not_as_asked
from ipuhub.web.requests import fragment_etag, not_modified, tagged, wants_fragment
from jobs.ipujob.conditions import JobState
from jobs.ipujob.names import ANNOTATION_CREATED_BY, annotations_of

if TYPE_CHECKING:
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from dashboard.fleetmap import FleetMap
    from dashboard.fleetqueue import Waiting
    from dashboard.live import LiveState
    from ipuhub.kube.resources import Manifest
    from ipuhub.web.access import Scope


def read_fill(request: HttpRequest) -> str:
    """By what the map's squares get their colours; raises BadFilter."""
    fill = request.GET.get("fill", FILLS[0])
    if fill not in FILLS:
        raise BadFilter([f"fill: {fill!r} is not one of {', '.join(FILLS)}."])
    return fill


def read_map(state: LiveState, scope: Scope, now: datetime, fill: str) -> FleetMap:
    """The map of a reading, for a reader."""
    reader = Reader(scope.covers, scope.sees_all, now, fill)
    return draw_fleet(state.fleet.value, visible_jobs_of(state, scope), reader)


def visible_jobs_of(state: LiveState, scope: Scope) -> dict[str, JobFacts]:
    """The jobs of a reading that a reader may see, by UID."""
    visible = (job for job in state.jobs.value if scope.covers(job["metadata"]["namespace"]))
    return {facts.uid: facts for facts in map(_facts, visible)}


def _facts(job: Manifest) -> JobFacts:
    meta, status = job["metadata"], job.get("status") or {}
    active = (status.get("workersStatus") or {}).get("active") or 0
    return JobFacts(
        uid=meta.get("uid", ""),
        namespace=meta["namespace"],
        name=meta["name"],
        user=annotations_of(job).get(ANNOTATION_CREATED_BY, ""),
        runs=bool(active) or status.get("launcherStatus") == JobState.RUNNING.value,
    )


class IpuSerializer(serializers.Serializer[Any]):
    """One IPU. `state`: held, idle (held for a minute, no pod of the job runs), removing (its
    V-IPU controller is removing its partition), faulty, free, cordoned (free, but no node has the
    label of its controller), outside (not for jobs).
    `partition` and `job_uid` are empty if nothing holds it, or a job that the caller may not see.
    """

    controller = serializers.CharField()
    cluster = serializers.CharField()
    ipulink_domain = serializers.IntegerField()
    machine = serializers.CharField()
    position = serializers.IntegerField(help_text="Place in the IPU-Link domain, 0 to 63.")
    state = serializers.CharField()
    partition = serializers.CharField()
    job_uid = serializers.CharField()


class FitsSerializer(serializers.Serializer[Any]):
    """How many partitions of `size` IPUs fit now."""

    size = serializers.IntegerField()
    count = serializers.IntegerField()


class WaitingJobSerializer(serializers.Serializer[Any]):
    """A request for IPUs. `position` 0: it can never be served. `kind`: block (a block has to come
    free), blocked (an older job is served first), soon or never; `blockers`: UIDs of visible jobs
    that hold the block which can come free first. `job_uid` and `job_name` are empty for a job that
    the caller may not see.
    """

    position = serializers.IntegerField()
    job_uid = serializers.CharField()
    job_name = serializers.CharField()
    ipus = serializers.IntegerField()
    since = serializers.DateTimeField(allow_null=True)
    kind = serializers.CharField()
    reason = serializers.CharField()
    blockers = serializers.ListField(child=serializers.CharField())


class FleetSerializer(serializers.Serializer[Any]):
    """The fleet as of `read_at`; `problem` says why it is not current."""

    read_at = serializers.DateTimeField(allow_null=True)
    problem = serializers.CharField(allow_blank=True)
    ipus = IpuSerializer(many=True)
    fits = FitsSerializer(many=True)
    queue = WaitingJobSerializer(many=True)


class FleetView(APIView):
    """Each IPU with its job, the queue in the order of service, and what fits now."""

    permission_classes = (IsSignedIn,)

    @extend_schema(operation_id="fleet", summary="IPUs, queue and fits", responses=FleetSerializer)
    def get(self, request: Request) -> Response:
        """Each IPU with its job, the queue in the order of service, and what fits now: all of one
        reading, current or the last known."""
        now, scope = timezone.now(), scope_of(request.user)
        state = live_reader().read(now)
        drawn = read_map(state, scope, now, FILLS[0])
        reader = Reader(scope.covers, scope.sees_all, now)
        body: dict[str, Any] = {
            "read_at": state.fleet.read_at,
            "problem": state.fleet.said(in_full=scope.sees_all),
            "ipus": list_ipus(state.fleet.value, visible_jobs_of(state, scope), reader),
            "fits": [{"size": size, "count": count} for size, count in drawn.fits],
            "queue": [_line(line) for line in drawn.queue],
        }
        return Response(FleetSerializer(body).data)


def _line(line: Waiting) -> dict[str, Any]:
    return {
        "position": line.position,
        "job_uid": line.job.uid if line.job else "",
        "job_name": line.job.name if line.job else "",
        "ipus": line.ipus,
        "since": line.since,
        "kind": line.kind,
        "reason": line.reason,
        "blockers": [uid for _, uid in line.blockers],
    }


@require_safe
@signed_in
def fleet_page(request: HttpRequest) -> HttpResponseBase:
    """Show who holds which IPUs, who waits, and what fits; only the changing part for htmx."""
    try:
        fill = read_fill(request)
    except BadFilter as error:
        return not_as_asked(request, error.messages)
    now, scope = timezone.now(), scope_of(request.user)
    reading = live_reader().read(now)
    shown = {
        "fill": fill,
        "fills": FILLS,
        "map": read_map(reading, scope, now, fill),
        "problem": reading.fleet.said(in_full=scope.sees_all),
        "read_at": reading.fleet.read_at if reading.fleet.problem else None,
        "sees_all": scope.sees_all,
    }
    tag = fragment_etag(request, shown)
    if same := not_modified(request, tag):
        return same
    template = "_fleet.html" if wants_fragment(request) else "fleet.html"
    answer = render(request, template, shown | {"now": now, "etag": tag})
    return tagged(request, answer, tag)
