"""glue: partitions, statistics, capacity and queries in the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.exceptions import APIException
from rest_framework.generics import ListAPIView
from rest_framework.response import Response
from rest_framework.views import APIView

from ipuhub.api.permissions import IsAdmin, IsSignedIn
from ipuhub.web.access import scope_of
from ipuhub.web.readings import say
from partitions.errors import PartitionsError
from partitions.filters import PartitionFilters
from partitions.live import PROXY_AWAY, fleet_reader
from partitions.models import PartitionLifetime
from partitions.selectors import capacity_now, visible_partitions
from partitions.serializers import (
    CapacityListSerializer,
    FitSerializer,
    PartitionSerializer,
    QuerySerializer,
    StatsSerializer,
)
from partitions.stats import stat_table

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from rest_framework.request import Request


class ProxyAway(APIException):
    """The V-IPU Proxy cannot answer now."""

    status_code = 503


@extend_schema_view(get=extend_schema(summary="Partitions, newest reservation first"))
class PartitionList(ListAPIView[PartitionLifetime]):
    """Partitions that jobs hold and held, newest reservation first."""

    serializer_class = PartitionSerializer
    filterset_class = PartitionFilters
    ordering = ("reserved_at", "id")
    queryset = PartitionLifetime.objects.none()

    def get_queryset(self) -> QuerySet[PartitionLifetime]:
        """Return what the caller may see."""
        return visible_partitions(scope_of(self.request.user))


class Stats(APIView):
    """IPUs held per namespace and free in the fleet, now or as last known."""

    permission_classes = (IsSignedIn,)

    @extend_schema(operation_id="stats", summary="IPUs held and free", responses=StatsSerializer)
    def get(self, request: Request) -> Response:
        """IPUs held per namespace and free in the fleet, now or as last known."""
        reading, scope = fleet_reader().stats(timezone.now()), scope_of(request.user)
        table = stat_table(reading.value, scope.covers, sees_all=scope.sees_all)
        body: dict[str, Any] = {
            "read_at": reading.read_at,
            "problem": reading.said(in_full=scope.sees_all),
            "available": table.available,
            "total": table.total,
            "namespaces": table.rows,
        }
        return Response(StatsSerializer(body).data)


class Capacity(APIView):
    """The IPUs of each V-IPU controller, as last recorded."""

    permission_classes = (IsSignedIn, IsAdmin)

    @extend_schema(
        operation_id="capacity",
        summary="IPUs of each V-IPU controller",
        responses=CapacityListSerializer,
    )
    def get(self, _request: Request) -> Response:
        """The IPUs of each V-IPU controller, as last recorded; for administrators."""
        return Response(CapacityListSerializer({"results": capacity_now()}).data)


class Query(APIView):
    """How many partitions of a size fit now."""

    permission_classes = (IsSignedIn,)

    @extend_schema(
        operation_id="query",
        summary="How many partitions of a size fit now",
        request=QuerySerializer,
        responses=FitSerializer,
    )
    def post(self, request: Request) -> Response:
        """How many partitions of a size fit now; 503 while the V-IPU Proxy is away."""
        asked = QuerySerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        try:
            fit = fleet_reader().query(asked.validated_data["size"])
        except PartitionsError as error:
            in_full = scope_of(request.user).sees_all
            raise ProxyAway(say(PROXY_AWAY, str(error), in_full=in_full)) from error
        return Response(FitSerializer(fit).data)
