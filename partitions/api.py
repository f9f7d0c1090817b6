"""glue: partitions, statistics, capacity and queries in the API.

The URL of their list is in dashboard/apiurls.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.urls import path
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.exceptions import APIException
from rest_framework.response import Response

from ipuhub.api.auth import IsAdmin, IsSignedIn
from ipuhub.api.parsing import read_body
from ipuhub.api.schema import body_example
from ipuhub.api.scopes import READ
from ipuhub.api.views import FileList, LiveView, PlainView, without
from ipuhub.web.access import scope_of
from ipuhub.web.readings import problem_sentence
from partitions.connections import PROXY_AWAY, fleet_reader
from partitions.errors import PartitionsError
from partitions.models import PartitionLifetime
from partitions.selectors import capacity_now, visible_partitions
from partitions.stats import stat_table
from partitions.views import COLUMNS, LARGEST, MESSAGES, PartitionFilters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from django.urls import URLPattern, URLResolver
    from rest_framework.request import Request

    from ipuhub.web.columns import Column


class PartitionSerializer(serializers.ModelSerializer[PartitionLifetime]):
    """One allocation of a partition to a job, from reserved to released (null: still held)."""

    machines = serializers.DictField(
        child=serializers.ListField(child=serializers.IntegerField()),
        help_text="Positions of its IPUs in the IPU-Link domain, by IPU-Machine. Empty: not known.",
    )

    class Meta:
        model = PartitionLifetime
        fields: ClassVar = [
            "key",
            "partition",
            "job_uid",
            "namespace",
            "job_name",
            "instance",
            "attempt",
            "controller",
            "size",
            "machines",
            "phase",
            "reason",
            "message",
            "group",
            "user",
            "reserved_at",
            "active_at",
            "released_at",
            "estimated",
            "uncertainty_seconds",
        ]


class StatRowSerializer(serializers.Serializer[Any]):
    """IPUs held by jobs of a namespace, and IPUs free in the whole fleet."""

    namespace = serializers.CharField()
    used = serializers.IntegerField()
    available = serializers.IntegerField()


class StatsSerializer(serializers.Serializer[Any]):
    """The proxy's statistics as of `read_at`; `problem` says why they are not current."""

    read_at = serializers.DateTimeField(allow_null=True)
    problem = serializers.CharField(allow_blank=True)
    available = serializers.IntegerField(allow_null=True)
    total = StatRowSerializer(allow_null=True, help_text="Administrators only.")
    namespaces = StatRowSerializer(many=True)


class CapacitySerializer(serializers.Serializer[Any]):
    """The IPUs of one V-IPU controller since `at`; total = used + free + cordoned + faulty."""

    controller = serializers.CharField()
    at = serializers.DateTimeField()
    total = serializers.IntegerField()
    used = serializers.IntegerField()
    free = serializers.IntegerField()
    cordoned = serializers.IntegerField()
    faulty = serializers.IntegerField()
    reachable = serializers.BooleanField()


class CapacityListSerializer(serializers.Serializer[Any]):
    """All recorded controllers, by name."""

    results = CapacitySerializer(many=True)


@body_example({"size": 16})
class QuerySerializer(serializers.Serializer[Any]):
    """Asks how many partitions of `size` IPUs fit now."""

    size = serializers.IntegerField(min_value=1, max_value=LARGEST, error_messages=MESSAGES)


class FitSerializer(serializers.Serializer[Any]):
    """The result. `message` says why no partition fits. `available`: at least one V-IPU controller
    answered."""

    size = serializers.IntegerField()
    count = serializers.IntegerField()
    message = serializers.CharField(allow_blank=True)
    available = serializers.BooleanField()


class ProxyAway(APIException):
    """The V-IPU Proxy cannot answer now."""

    status_code = 503
    default_code = "proxy-unavailable"


@extend_schema_view(
    get=extend_schema(
        operation_id="partitions_list",
        summary="Partitions, newest reservation first",
        tags=["partitions"],
    )
)
class PartitionList(FileList[PartitionLifetime]):
    """Current and past partitions of jobs, newest reservation first."""

    serializer_class = PartitionSerializer
    filterset_class = PartitionFilters
    ordering = ("reserved_at", "id")
    columns: ClassVar[Sequence[Column]] = COLUMNS
    file_name = "partitions"
    queryset = PartitionLifetime.objects.none()

    def get_queryset(self) -> QuerySet[PartitionLifetime]:
        """Return what the caller may see."""
        return visible_partitions(scope_of(self.request.user))


class Stats(LiveView):
    """IPUs held per namespace and free in the fleet: current or last known numbers."""

    permission_classes = (IsSignedIn,)

    @extend_schema(operation_id="stats", summary="IPUs held and free", responses=StatsSerializer)
    def get(self, request: Request) -> Response:
        """IPUs held per namespace and free in the fleet: current or last known numbers."""
        reading, scope = fleet_reader().stats(timezone.now()), scope_of(request.user)
        table = stat_table(reading.value, scope.covers, sees_all=scope.sees_all)
        body: dict[str, Any] = {
            "problem": reading.sentence(in_full=scope.sees_all),
            "available": table.available,
            "total": table.total,
            "namespaces": table.rows,
        }
        at = reading.read_at
        data = StatsSerializer(body | {"read_at": at}).data
        return self.answer(request, data, without(data, "read_at"), at)


class Capacity(PlainView):
    """The IPUs of each V-IPU controller, as last recorded."""

    permission_classes = (IsSignedIn, IsAdmin)

    @extend_schema(
        operation_id="capacity",
        summary="IPUs of each V-IPU controller",
        responses=CapacityListSerializer,
    )
    def get(self, _request: Request) -> Response:
        """The last recorded IPUs of each V-IPU controller; administrators only."""
        return Response(CapacityListSerializer({"results": capacity_now()}).data)


class Query(PlainView):
    """The number of partitions of a size that fit now."""

    permission_classes = (IsSignedIn,)
    token_scope = READ  # it changes nothing

    @extend_schema(
        operation_id="query",
        summary="How many partitions of a size fit now",
        request=QuerySerializer,
        responses=FitSerializer,
    )
    def post(self, request: Request) -> Response:
        """Return how many partitions of a size fit now; 503 while the V-IPU Proxy is
        unavailable."""
        question = read_body(QuerySerializer, request)
        try:
            fit = fleet_reader().query(question["size"])
        except PartitionsError as error:
            in_full = scope_of(request.user).sees_all
            raise ProxyAway(problem_sentence(PROXY_AWAY, str(error), in_full=in_full)) from error
        return Response(FitSerializer(fit).data)


urlpatterns: list[URLPattern | URLResolver] = [
    path("stats", Stats.as_view(), name="stats"),
    path("capacity", Capacity.as_view(), name="capacity"),
    path("query", Query.as_view(), name="query"),
]
