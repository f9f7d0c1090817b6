"""glue: the fleet map, its page and its API, from live data of the cluster and the V-IPU Proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.utils import timezone
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework import serializers

from dashboard.fleetfits import FIT_KINDS
from dashboard.fleetkept import board_of, groups_in, ipus_of, known_of_reading, map_of
from dashboard.fleetmap import FILLS, IPU_STATES
from dashboard.live import live_reader
from dashboard.queue.lines import WaitingJobSerializer, record_of
from dashboard.queue.typical import with_typical_runs
from ipuhub.api.auth import IsSignedIn
from ipuhub.api.views import LiveView
from ipuhub.web.access import is_admin, scope_of, signed_in
from ipuhub.web.filters import BadFilter, Mistake
from ipuhub.web.pollcache import rows_now
from ipuhub.web.problems import bad_parameters, takes
from ipuhub.web.requests import live_page, wants_fragment

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from dashboard.fleetfits import SizeFit


_LINES: Final = 12
"""Of the queue beside the map."""


def read_fill(request: HttpRequest) -> str:
    """By what the map's squares get their colours; raises BadFilter."""
    fill = request.GET.get("fill", FILLS[0])
    if fill not in FILLS:
        raise BadFilter(Mistake("fill", f"{fill!r} is not one of {', '.join(FILLS)}."))
    return fill


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
    def get(self, request: Request) -> HttpResponseBase:
        """Each IPU with its job, the queue in the order of service, and what fits now: all of one
        reading, current or the last known."""
        now, scope = timezone.now(), scope_of(request.user)
        state = live_reader().read(now)
        board, ipus = board_of(state, scope, now), ipus_of(state, scope, now)
        problem = state.fleet.sentence(in_full=scope.sees_all)
        queue = with_typical_runs(board.value.queue, scope, now)
        marked, at = (board.mark, ipus.mark, problem, queue), state.fleet.read_at
        if same := self.unchanged(request, marked, at):
            return same
        body: dict[str, Any] = {
            "read_at": at,
            "problem": problem,
            "ipus": (),
            "fits": [_fit(fit) for fit in board.value.fits],
            "fragmentation": board.value.fragments,
            "queue": [record_of(line) for line in queue],
            "out_of_service": board.value.out_of_service,
            "policy": board.value.policy,
        }
        # The rows are what IpuSerializer would make of them, which takes ten times as long.
        data = {**FleetSerializer(body).data, "ipus": ipus.value}
        return self.answer(request, data, marked, at)


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
    rows = rows_now() if wants_fragment(request) else None
    if rows and (same := known_of_reading(request, reading, scope, now, rows)):
        return same
    drawn = map_of(reading, scope, now, fill, groups_in(reading, scope, now))
    facts = {
        "fill": fill,
        "fills": FILLS,
        "mark": drawn.mark,
        "lines": with_typical_runs(drawn.value.queue[:_LINES], scope, now),
        "problem": reading.fleet.sentence(in_full=scope.sees_all),
        "read_at": reading.fleet.read_at if reading.fleet.problem else None,
        "sees_all": scope.sees_all,
        "sees_system": is_admin(request.user),
    }
    templates, read_at = ("fleet.html", "_fleet.html"), reading.fleet.read_at
    return live_page(request, templates, facts, read_at, now=now, map=drawn.value)
