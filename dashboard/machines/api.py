"""glue: an IPU-Machine and its IPUs in the API."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers

from dashboard.fleetmap import IPU_STATES
from dashboard.machines.facts import MACHINE_STATES
from dashboard.machines.heartbeat import heard_at, sensors_of
from dashboard.machines.page import NO_IPU, require_machine, see_machine
from dashboard.machines.past import read_events, read_stays
from ipuhub.api.auth import IsSignedIn
from ipuhub.api.views import LiveView, without
from ipuhub.web.access import scope_of
from partitions.api import PartitionSerializer

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.response import Response

    from dashboard.machines.facts import IpuFacts, MachineFacts
    from dashboard.machines.page import Seen
    from partitions.vipu.telemetry import Heartbeat


_NULL: Final = "In the agent's last heartbeat; null: not reported."


class MachineIpuSerializer(serializers.Serializer[Any]):
    """One IPU of a machine. `state` as in the fleet; `reason`: why it gets no new partition.
    `partition` and `job_uid` are empty if nothing holds it, or a job that the caller may not
    see."""

    position = serializers.IntegerField(help_text="Place in the IPU-Link domain, 0 to 63.")
    device = serializers.IntegerField(help_text="Number in the machine.")
    state = serializers.ChoiceField(choices=IPU_STATES)
    reason = serializers.CharField(allow_blank=True)
    partition = serializers.CharField(allow_blank=True)
    job_uid = serializers.CharField(allow_blank=True)
    since = serializers.DateTimeField(allow_null=True)
    temperature_celsius = serializers.FloatField(allow_null=True, help_text=_NULL)
    power_watts = serializers.FloatField(allow_null=True, help_text=_NULL)
    clock_hertz = serializers.FloatField(allow_null=True, help_text=_NULL)
    hardware = serializers.DictField(child=serializers.CharField())


class MachineEventSerializer(serializers.Serializer[Any]):
    """Something that happened to the machine: an outage of its agent or V-IPU controller, a cordon,
    a fault of an IPU; each when it began and when it ended."""

    at = serializers.DateTimeField()
    what = serializers.CharField()


class MachineSerializer(serializers.Serializer[Any]):
    """An IPU-Machine as of `read_at`; `problem`: why not of now. `state`: up, cordoned,
    faulty, lost (its agent does not answer), unknown (its V-IPU controller has not answered), or
    gone (the fleet has it no more). `events` and `partitions` cover the last day, newest
    first."""

    read_at = serializers.DateTimeField(allow_null=True)
    problem = serializers.CharField(allow_blank=True)
    controller = serializers.CharField()
    machine = serializers.CharField()
    state = serializers.ChoiceField(choices=MACHINE_STATES)
    cluster = serializers.CharField(allow_blank=True)
    ipulink_domain = serializers.IntegerField(allow_null=True)
    agent_problem = serializers.CharField(
        allow_blank=True, help_text="Why its agent does not answer; empty: it does."
    )
    heard_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Last heartbeat of its agent; null: not reported. Only IPUHub's V-IPU "
        "controller reports it.",
    )
    hardware = serializers.DictField(child=serializers.CharField())
    ipus = MachineIpuSerializer(many=True)
    events = MachineEventSerializer(many=True)
    partitions = PartitionSerializer(many=True)


_MACHINE: Final = [
    OpenApiParameter(
        "controller", str, OpenApiParameter.PATH, description="Its V-IPU controller, as HOST:PORT."
    ),
    OpenApiParameter(
        "machine", str, OpenApiParameter.PATH, description="Name of its agent, such as ag0."
    ),
]
_IPU: Final = [
    *_MACHINE,
    OpenApiParameter(
        "position",
        int,
        OpenApiParameter.PATH,
        description="Place of the IPU in the IPU-Link domain, 0 to 63.",
    ),
]


class MachineView(LiveView):
    """An IPU-Machine: its IPUs now, and its last day."""

    permission_classes = (IsSignedIn,)

    @extend_schema(
        operation_id="fleet_machine",
        summary="An IPU-Machine",
        tags=["fleet"],
        parameters=_MACHINE,
        responses=MachineSerializer,
    )
    def get(self, request: Request, controller: str, machine: str) -> Response:
        """Its IPUs of one reading, current or the last known, and its last day. Raises Http404."""
        return _answer(self, request, controller, machine)


class IpuView(LiveView):
    """One IPU of a machine, and its last day."""

    permission_classes = (IsSignedIn,)

    @extend_schema(
        operation_id="fleet_ipu",
        summary="One IPU",
        tags=["fleet"],
        parameters=_IPU,
        responses=MachineSerializer,
    )
    def get(self, request: Request, controller: str, machine: str, position: int) -> Response:
        """The machine with this IPU alone, and the last day of that IPU. Raises Http404."""
        return _answer(self, request, controller, machine, position)


def _answer(
    view: LiveView, request: Request, controller: str, name: str, position: int | None = None
) -> Response:
    now, scope = timezone.now(), scope_of(request.user)
    seen = see_machine(scope, controller, name, now)
    stays = read_stays(scope, controller, name, now, position)
    require_machine(seen, stays)
    ipu = seen.machine.ipu(position) if seen.machine and position is not None else None
    body = _now(seen, controller, name, position) | {
        "events": read_events(controller, name, now, ipu.device if ipu else None),
        "partitions": [stay.partition for stay in stays],
    }
    data = MachineSerializer(body).data
    return view.answer(request, data, without(data, "read_at"), seen.read_at)


def _now(seen: Seen, controller: str, name: str, position: int | None) -> dict[str, Any]:
    found, heartbeat = seen.machine, seen.heartbeat
    return {
        "read_at": seen.read_at,
        "problem": seen.problem,
        "controller": controller,
        "machine": name,
        "state": found.state if found else "gone" if seen.is_gone else "unknown",
        "cluster": found.cluster if found else "",
        "ipulink_domain": found.domain if found else None,
        "agent_problem": found.lost if found else "",
        "heard_at": heard_at(heartbeat),
        "hardware": found.hardware if found else {},
        "ipus": [_ipu(ipu, heartbeat) for ipu in _chosen(found, position)] if found else [],
    }


def _chosen(machine: MachineFacts, position: int | None) -> tuple[IpuFacts, ...]:
    if position is None:
        return machine.ipus
    ipu = machine.ipu(position)
    if ipu is None:
        raise Http404(NO_IPU)
    return (ipu,)


def _ipu(ipu: IpuFacts, heartbeat: Heartbeat) -> dict[str, Any]:
    names = ("position", "device", "state", "reason", "partition", "since", "hardware")
    job = {"job_uid": ipu.job.uid if ipu.job else ""}
    sensors = dataclasses.asdict(sensors_of(heartbeat, ipu.device))
    return {name: getattr(ipu, name) for name in names} | job | sensors
