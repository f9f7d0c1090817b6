"""glue: the components of the product, each by its own sign of life: for System, header and API."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db.models import Min, Q
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from dashboard import components, recordedsigns
from dashboard.components import Component, Signs
from dashboard.live import live_reader
from ipuhub.api.auth import IsAdmin, IsSignedIn
from ipuhub.kube.errors import ApiError, ConfigError, NotFound
from ipuhub.kube.resources import LEASES
from ipuhub.models import Heartbeat, TaskMessage
from ipuhub.web.access import require_admin, signed_in
from ipuhub.web.readings import NO_CONFIG, PATIENCE_SECONDS, Latest
from ipuhub.workerhealth import WORKER
from partitions.connections import sources
from usage.models import ReportRun

if TYPE_CHECKING:
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from ipuhub.kube.client import KubeClient

OPERATOR: Final = "ipu-operator"
PROXY: Final = "ipuhub-proxy"
PROBER: Final = "ipuhub-prober"
WEBHOOKS: Final = "ipuhub-webhooks"
_LEASES: Final = (OPERATOR, PROXY, PROBER, WEBHOOKS)
_FRESH_SECONDS: Final = 2.0


def read_components(now: datetime) -> list[Component]:
    """All components, in the order in which a job meets them."""
    live = live_reader().read(now)
    leases = _lease_reader().at(now)
    led = {name: components.by_lease(_NAMES[name], leases[name], now) for name in _LEASES}
    found = [
        Component("PostgreSQL", components.UP, "answers"),
        _answering("Kubernetes API", live.jobs.problem, live.jobs.detail),
        led[OPERATOR],
        *_webhooks(leases[WEBHOOKS], led[WEBHOOKS]),
        components.of_proxy(led[PROXY], live.fleet.detail if live.fleet.problem else ""),
        *components.of_controllers({} if live.fleet.problem else live.fleet.value),
    ]
    found.append(recordedsigns.judge_prober(led[PROBER], now))
    return found + (_of_usage(now) if settings.USAGE_ENABLED else [])


_NAMES: Final = {
    OPERATOR: "IPU Operator",
    PROXY: recordedsigns.PROXY,
    PROBER: recordedsigns.PROBER,
    WEBHOOKS: "Webhooks",
}


def _of_usage(now: datetime) -> list[Component]:
    waiting = TaskMessage.objects.filter(Q(claimed_until=None) | Q(claimed_until__lt=now))
    return [
        recordedsigns.judge_monitor(now),
        *components.of_worker_and_beat(
            Heartbeat.objects.filter(name=WORKER).values_list("at", flat=True).first(),
            waiting.aggregate(oldest=Min("queued_at"))["oldest"],
            ReportRun.objects.filter(state=ReportRun.State.RUNNING).exists(),
            now,
        ),
    ]


def _answering(name: str, problem: str, detail: str) -> Component:
    if problem:
        return Component(name, components.DOWN, detail or problem)
    return Component(name, components.UP, "answers")


def _webhooks(signs: Signs, judged: Component) -> list[Component]:
    """Webhooks have a Lease only where they make their own certificate."""
    return [] if signs.lease is None and not signs.problem else [judged]


@lru_cache(maxsize=1)
def _lease_reader() -> Latest[dict[str, Signs]]:
    """Return the process's one reader of the Leases."""
    nothing = {name: Signs(problem="not asked yet") for name in _LEASES}
    return Latest(nothing, _read_leases, lambda _: True, fresh_seconds=_FRESH_SECONDS)


def _read_leases(_last: dict[str, Signs], _now: datetime) -> dict[str, Signs]:
    try:
        kube = sources().kube
    except ConfigError as error:
        return {name: Signs(problem=f"{NO_CONFIG}: {error}") for name in _LEASES}
    return kube.run(_ask_all, kube.client)


async def _ask_all(client: KubeClient) -> dict[str, Signs]:
    found = await asyncio.gather(*(_ask(client, name) for name in _LEASES))
    return dict(zip(_LEASES, found, strict=True))


async def _ask(client: KubeClient, name: str) -> Signs:
    asked = client.get(LEASES, f"{settings.LEASE_PREFIX}{name}", settings.NAMESPACE)
    try:
        return Signs(await asyncio.wait_for(asked, PATIENCE_SECONDS))
    except NotFound:
        return Signs()
    except (ApiError, TimeoutError) as error:
        return Signs(problem=str(error) or f"no answer within {PATIENCE_SECONDS:g} s")


@require_safe
@signed_in
def health_dot(request: HttpRequest) -> HttpResponseBase:
    """Show the header's one line of all components. Raises PermissionDenied."""
    require_admin(request.user)
    state, sentence = components.summary(read_components(timezone.now()))
    return render(request, "_health.html", {"state": state, "sentence": sentence})


class ComponentSerializer(serializers.Serializer[Any]):
    """A component. `state`: up, down or unknown; `since`: its last sign of life; `holder`: the
    replica that works."""

    name = serializers.CharField()
    state = serializers.CharField()
    detail = serializers.CharField()
    holder = serializers.CharField()
    since = serializers.DateTimeField(allow_null=True)


class ComponentListSerializer(serializers.Serializer[Any]):
    """All components, in the order in which a job meets them."""

    results = ComponentSerializer(many=True)


class Components(APIView):
    """Which component is up, and which is down."""

    permission_classes = (IsSignedIn, IsAdmin)

    @extend_schema(
        operation_id="components", summary="Components", responses=ComponentListSerializer
    )
    def get(self, _request: Request) -> Response:
        """The components by their own signs of life; administrators only."""
        found = read_components(timezone.now())
        return Response(ComponentListSerializer({"results": found}).data)
