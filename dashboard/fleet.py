"""glue: the fleet map, its page and its API, from live data of the cluster and the V-IPU Proxy."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.utils import timezone
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework import serializers

from dashboard.fleetfits import FIT_KINDS
from dashboard.fleetmap import FILLS, IPU_STATES, Reader, draw_fleet, list_ipus, read_board
from dashboard.fleetqueue import JobFacts
from dashboard.live import live_reader
from dashboard.queue.lines import WaitingJobSerializer, record_of
from dashboard.queue.typical import with_typical_runs
from ipuhub.api.auth import IsSignedIn
from ipuhub.api.views import LiveView, without
from ipuhub.web.access import scope_of, signed_in
from ipuhub.web.filters import BadFilter
from ipuhub.web.problems import bad_parameters, takes
from ipuhub.web.requests import live_page
from jobs.history.rows import size_of
from jobs.ipujob.conditions import JobState
from jobs.ipujob.fields import FIELDS, whole_number
from jobs.ipujob.names import ANNOTATION_CREATED_BY, annotations_of, parse_time
from jobs.selectors import groups_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request
    from rest_framework.response import Response

    from dashboard.fleetfits import SizeFit
    from dashboard.fleetmap import FleetMap
    from dashboard.live import LiveState
    from ipuhub.kube.resources import Manifest
    from ipuhub.web.access import Scope
    from partitions.fleetjson import FleetJson


_LINES: Final = 12
"""Of the queue beside the map."""
_LONGEST_SECONDS: Final = 10 * 365 * 24 * 3600  # more is no limit, and no time of PostgreSQL's


def read_fill(request: HttpRequest) -> str:
    """By what the map's squares get their colours; raises BadFilter."""
    fill = request.GET.get("fill", FILLS[0])
    if fill not in FILLS:
        raise BadFilter([f"fill: {fill!r} is not one of {', '.join(FILLS)}."])
    return fill


def read_map(state: LiveState, scope: Scope, now: datetime, fill: str) -> FleetMap:
    """The map of a reading, for a reader. Costs one query."""
    return draw_map(state, scope, now, fill, read_groups(state.fleet.value, scope))


def draw_map(
    state: LiveState, scope: Scope, now: datetime, fill: str, groups: Mapping[str, str]
) -> FleetMap:
    """Return the map of a reading; `groups` of its jobs by UID."""
    reader = Reader(scope.covers, scope.sees_all, now, fill, groups)
    return draw_fleet(state.fleet.value, visible_jobs_of(state, scope, now), reader)


def read_groups(fleet: FleetJson, scope: Scope) -> dict[str, str]:
    """Return by UID the groups for which the usage of jobs with partitions counts, as recorded."""
    return groups_of(scope, holders(fleet))


def holders(fleet: FleetJson) -> set[str]:
    """Return the UIDs of the jobs that hold partitions."""
    partitions = (each for c in fleet.get("controllers") or () for each in c["partitions"])
    return {each["job"]["uid"] for each in partitions if each["job"]}


def visible_jobs_of(state: LiveState, scope: Scope, now: datetime) -> dict[str, JobFacts]:
    """The jobs of a reading that a reader may see, by UID."""
    visible = (job for job in state.jobs.value if scope.covers(job["metadata"]["namespace"]))
    return {facts.uid: facts for facts in (_facts(job, now) for job in visible)}


def _facts(job: Manifest, now: datetime) -> JobFacts:
    meta, status = job["metadata"], job.get("status") or {}
    workers = (status.get("workersStatus") or {}).get("active")
    active = workers or 0
    return JobFacts(
        uid=meta.get("uid", ""),
        namespace=meta["namespace"],
        name=meta["name"],
        user=annotations_of(job).get(ANNOTATION_CREATED_BY, ""),
        runs=bool(active) or status.get("launcherStatus") == JobState.RUNNING.value,
        ends_by=_ends_by(job, now),
        workers=workers if isinstance(workers, int) else None,
        all_workers=size_of(job.get("spec") or {}).workers if active else 0,
    )


def _ends_by(job: Manifest, now: datetime) -> datetime | None:
    """Return when a job frees its IPUs at the latest, by its activeDeadlineSeconds. None if that is
    unknown: the job has no limit or is past it, has not started or has finished, or keeps its
    partition until it is deleted."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    limit, started = (
        whole_number(spec.get("activeDeadlineSeconds")),
        parse_time(status.get("startTime")),
    )
    if limit is None or started is None:
        return None
    if status.get("completionTime") or FIELDS.value(spec, "keepPartition"):
        return None
    end = started + timedelta(seconds=min(limit, _LONGEST_SECONDS))
    return end if end > now else None


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
    state = serializers.ChoiceField(choices=IPU_STATES)
    partition = serializers.CharField()
    job_uid = serializers.CharField()


class FitPlaceSerializer(serializers.Serializer[Any]):
    """A V-IPU controller on which a size fits (`count` times), or whose block can come free first
    (`count` 0), and the IPU-Machines of that block; none where they are not known."""

    controller = serializers.CharField()
    count = serializers.IntegerField()
    machines = serializers.ListField(child=serializers.CharField())


class FitsSerializer(serializers.Serializer[Any]):
    """The number and places of partitions of `size` IPUs that fit now. `kind`: now, later (a block
    has to come free), shut (no block can come free), never, or unknown (a V-IPU controller that
    does not answer may have the block: what it said last is not counted); `blockers` and `free_by`
    as in the queue."""

    size = serializers.IntegerField()
    count = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=FIT_KINDS)
    places = FitPlaceSerializer(many=True)
    blockers = serializers.ListField(child=serializers.CharField())
    free_by = serializers.DateTimeField(allow_null=True)


class FragmentsSerializer(serializers.Serializer[Any]):
    """The free IPUs of a V-IPU controller, the largest block that a job can get now, the largest
    that so many IPUs could form, and how much smaller the first is, in per cent."""

    controller = serializers.CharField()
    free = serializers.IntegerField()
    largest = serializers.IntegerField()
    possible = serializers.IntegerField()
    percent = serializers.IntegerField()


class FleetSerializer(serializers.Serializer[Any]):
    """The fleet as of `read_at`; `problem` says why it is not current, `out_of_service` which IPUs
    get no new partition, and why: their machine is cordoned or lost, or they have a fault; `policy`
    the order of service."""

    read_at = serializers.DateTimeField(allow_null=True)
    problem = serializers.CharField(allow_blank=True)
    ipus = IpuSerializer(many=True)
    fits = FitsSerializer(many=True)
    fragmentation = FragmentsSerializer(many=True)
    queue = WaitingJobSerializer(many=True)
    out_of_service = serializers.CharField(allow_blank=True)
    policy = serializers.CharField(allow_blank=True)


class FleetView(LiveView):
    """Each IPU with its job, the queue in the order of service, and what fits now."""

    permission_classes = (IsSignedIn,)

    @extend_schema(operation_id="fleet", summary="IPUs, queue and fits", responses=FleetSerializer)
    def get(self, request: Request) -> Response:
        """Each IPU with its job, the queue in the order of service, and what fits now: all of one
        reading, current or the last known."""
        now, scope = timezone.now(), scope_of(request.user)
        state = live_reader().read(now)
        fleet, jobs = state.fleet.value, visible_jobs_of(state, scope, now)
        reader = Reader(scope.covers, scope.sees_all, now)
        board = read_board(fleet, jobs, reader)
        body: dict[str, Any] = {
            "problem": state.fleet.sentence(in_full=scope.sees_all),
            "ipus": list_ipus(fleet, jobs, reader),
            "fits": [_fit(fit) for fit in board.fits],
            "fragmentation": board.fragments,
            "queue": [record_of(line) for line in with_typical_runs(board.queue, scope, now)],
            "out_of_service": board.out_of_service,
            "policy": board.policy,
        }
        at = state.fleet.read_at
        data = FleetSerializer(body | {"read_at": at}).data
        return self.answer(request, data, without(data, "read_at"), at)


def _fit(fit: SizeFit) -> dict[str, Any]:
    names = ("size", "count", "kind", "places", "free_by")
    return {name: getattr(fit, name) for name in names} | {
        "blockers": [uid for _, uid in fit.blockers]
    }


@require_safe
@signed_in
@takes("fill")
def fleet_page(request: HttpRequest) -> HttpResponseBase:
    """Show who holds which IPUs, who waits, and what fits; only the changing part for htmx."""
    try:
        fill = read_fill(request)
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    now, scope = timezone.now(), scope_of(request.user)
    reading = live_reader().read(now)
    drawn = read_map(reading, scope, now, fill)
    facts = {
        "fill": fill,
        "fills": FILLS,
        "map": drawn,
        "lines": with_typical_runs(drawn.queue[:_LINES], scope, now),
        "problem": reading.fleet.sentence(in_full=scope.sees_all),
        "read_at": reading.fleet.read_at if reading.fleet.problem else None,
        "sees_all": scope.sees_all,
    }
    return live_page(request, ("fleet.html", "_fleet.html"), facts, reading.fleet.read_at, now=now)
