"""glue: usage in the API: any range, in one sum or in steps, and the rows behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework.generics import ListAPIView
from rest_framework.response import Response
from rest_framework.views import APIView

from ipuhub.api.filtering import PageFilterBackend
from ipuhub.api.negotiation import AnyAccept
from ipuhub.api.permissions import IsAdmin
from ipuhub.models import RecordFault, WatchGap
from ipuhub.web.access import scope_of
from ipuhub.web.exports import FORMATS, export
from ipuhub.web.filters import BadFilter
from usage.api.serializers import (
    FaultSerializer,
    GapSerializer,
    LifetimeSerializer,
    SeriesSerializer,
    SummarySerializer,
)
from usage.asking import read_question
from usage.columns import measures_record, ranked, step_columns, step_rows, sums_columns
from usage.dimensions import DIMENSIONS
from usage.filters import FaultFilters, GapFilters, LifetimeFilters
from usage.listcolumns import LIFETIME_COLUMNS
from usage.measures import OUTPUTS, total
from usage.models import PodLifetime
from usage.selectors import faults, gaps, series, summary, visible_lifetimes
from usage.windows import STEPS, WindowError
from usage.zones import usage_zone

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from usage.selectors import Question

_FORMAT = OpenApiParameter("format", str, enum=list(FORMATS), description="json by default.")
_RANGE = [
    OpenApiParameter("month", str, description="YYYY-MM; this month by default."),
    OpenApiParameter("from", str, description="First day or instant, instead of month."),
    OpenApiParameter("to", str, description="Last day, or instant; now by default."),
    OpenApiParameter("by", str, enum=list(DIMENSIONS), description="Dimension to group by."),
    *(
        OpenApiParameter(name, str, description=f"Only this {each.label.lower()}.")
        for name, each in DIMENSIONS.items()
    ),
    _FORMAT,
]
_STEP = OpenApiParameter("step", str, enum=list(STEPS), description="day by default.")


class SummaryView(APIView):
    """Usage of a range, in all and by one dimension."""

    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="usage_summary",
        summary="Usage of a month or any range",
        tags=["usage"],
        parameters=_RANGE,
        responses={(200, "application/json"): SummarySerializer, (200, "text/csv"): str},
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Return the sums, most IPU-hours first. Raises BadFilter and PermissionDenied."""
        question = _question(request)
        by = question.by.name if question.by else ""
        sums = summary(question)
        rows = ranked(sums, OUTPUTS["ipu_hours"])
        if _is_csv(request):
            return export("csv", sums_columns(by), rows, "usage")
        return Response(
            {
                **_range_record(question),
                "total": _record("", total(sums.values())),
                "results": [_record(*row) for row in rows],
            }
        )


class SeriesView(APIView):
    """Usage of a range, step by step."""

    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="usage_series",
        summary="Usage by hour, day, week or month",
        tags=["usage"],
        parameters=[*_RANGE, _STEP],
        responses={(200, "application/json"): SeriesSerializer, (200, "text/csv"): str},
    )
    def get(self, request: Request) -> HttpResponseBase:
        """Return the steps in order. Raises BadFilter and PermissionDenied."""
        question = _question(request, "step")
        step = request.query_params.get("step") or "day"
        try:
            begins, sums = series(question, step)
        except WindowError as error:
            raise BadFilter([str(error)]) from error
        rows = step_rows(begins, question.window.end, sums)
        if _is_csv(request):
            by = question.by.name if question.by else ""
            return export("csv", step_columns(by), rows, "usage-series")
        results = [_record(key, found) | {"begin": a, "end": b} for key, found, a, b in rows]
        return Response({**_range_record(question), "step": step, "results": results})


@extend_schema_view(
    get=extend_schema(
        operation_id="usage_lifetimes",
        summary="Pods, newest first",
        tags=["usage"],
        parameters=[_FORMAT],
    )
)
class LifetimeList(ListAPIView[PodLifetime]):
    """The pods behind the sums; `format=csv`: all that pass the filters, in one file."""

    queryset = PodLifetime.objects.none()
    serializer_class = LifetimeSerializer
    filterset_class = LifetimeFilters
    ordering = ("created_at", "id")
    content_negotiation_class = AnyAccept
    formats = FORMATS

    def get_queryset(self) -> QuerySet[PodLifetime]:
        """Return the pods of the caller's namespaces."""
        return visible_lifetimes(scope_of(self.request.user))

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Return a page, or the file. Raises BadFilter and PermissionDenied."""
        if not _is_csv(request):
            return super().list(request, *args, **kwargs)
        rows = PageFilterBackend().filter_queryset(request, self.get_queryset(), self)
        ordered = rows.order_by("-created_at", "-id").iterator(chunk_size=2000)
        return export("csv", LIFETIME_COLUMNS, ordered, "pods")


@extend_schema_view(
    get=extend_schema(operation_id="usage_faults", summary="Faults, newest first", tags=["usage"])
)
class FaultList(ListAPIView[RecordFault]):
    """What the recorders could not take as it stood; for administrators."""

    queryset = RecordFault.objects.none()
    serializer_class = FaultSerializer
    filterset_class = FaultFilters
    permission_classes = (IsAdmin,)
    ordering = ("last_at", "id")

    def get_queryset(self) -> QuerySet[RecordFault]:
        """Return all of them."""
        return faults(scope_of(self.request.user))


@extend_schema_view(
    get=extend_schema(operation_id="usage_gaps", summary="Gaps, newest first", tags=["usage"])
)
class GapList(ListAPIView[WatchGap]):
    """When watches saw nothing, so that the record may lack something."""

    queryset = WatchGap.objects.none()
    serializer_class = GapSerializer
    filterset_class = GapFilters
    ordering = ("began_at", "id")

    def get_queryset(self) -> QuerySet[WatchGap]:
        """Return all of them."""
        return gaps(scope_of(self.request.user))


def _question(request: Request, *also: str) -> Question:
    params = {name: str(value) for name, value in request.query_params.items() if value}
    return read_question(params, request.user, timezone.now(), usage_zone(), *also)


def _is_csv(request: Request) -> bool:
    kind = request.query_params.get("format") or "json"
    if kind not in FORMATS:
        raise BadFilter([f"format: {kind!r} is none of {', '.join(FORMATS)}."])
    return kind == "csv"


def _range_record(question: Question) -> dict[str, Any]:
    window = question.window
    by = question.by.name if question.by else ""
    return {"begin": window.begin, "end": window.end, "until": window.until, "by": by}


def _record(key: str, measures: Any) -> dict[str, Any]:
    return {"value": key, **measures_record(measures)}
