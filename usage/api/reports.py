"""glue: month reports in the API, and their files at the addresses that PrimeHub's console asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.http import Http404, StreamingHttpResponse
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.generics import ListAPIView, RetrieveAPIView
from rest_framework.response import Response
from rest_framework.views import APIView

from ipuhub.api.negotiation import AnyAccept
from ipuhub.api.permissions import IsAdmin
from ipuhub.months import Month, MonthError
from usage.api.reportserializers import ReportSerializer, RunRequestSerializer, RunSerializer
from usage.downloads import NoReportError, open_download
from usage.makereports import ReportRefused, state_of
from usage.models import MonthReport, ReportRun
from usage.monthly import PROFILES
from usage.reportruns import BrokerAway, ask_for_run

if TYPE_CHECKING:
    from rest_framework.request import Request


class AdminsOnly(IsAdmin):
    """Reports are about every namespace."""

    message = "Month reports show every namespace and are for administrators."


def report_file(month: Month, kind: str, profile: str) -> StreamingHttpResponse:
    """Return the download. Raises Http404 where there is no such report, and says why."""
    try:
        state_of(month, timezone.now(), settings.REPORT_ZONE)
        download = open_download(month, kind, profile)
    except (ReportRefused, NoReportError) as error:
        raise Http404(str(error)) from error
    answer = StreamingHttpResponse(download.body, content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{download.file_name}"'
    answer["Cache-Control"] = "private, no-cache"
    answer["X-Accel-Buffering"] = "no"  # a proxy in front passes the first line on at once
    return answer


@extend_schema(exclude=True)
class PrimeHubMonths(APIView):
    """`/report/monthly`: the months with a report, newest first, as PrimeHub Usage wrote them."""

    permission_classes = (AdminsOnly,)
    content_negotiation_class = AnyAccept

    def get(self, _request: Request) -> Response:
        """Return the list."""
        months = MonthReport.objects.values_list("month", flat=True).order_by("-month").distinct()
        return Response([f"{m.year}/{m.number}" for m in map(Month.parse, months)])


@extend_schema(exclude=True)
class PrimeHubFile(APIView):
    """`/report/monthly/<year>/<month>` and `/report/monthly/details/<year>/<month>`."""

    permission_classes = (AdminsOnly,)
    content_negotiation_class = AnyAccept
    kind: ClassVar[str] = "summary"

    def get(self, _request: Request, year: int, number: int) -> StreamingHttpResponse:
        """Return the file in the primehub profile."""
        try:
            month = Month(year, number)
        except MonthError as error:
            raise Http404(str(error)) from error
        return report_file(month, self.kind, "primehub")


class ReportList(ListAPIView[MonthReport]):
    """The month reports, newest first, each with its state, its sums and its files."""

    queryset = MonthReport.objects.all()
    serializer_class = ReportSerializer
    permission_classes = (AdminsOnly,)
    filter_backends = ()
    ordering = ("first", "id")

    @extend_schema(operation_id="usage_reports_list", summary="Month reports", tags=["usage"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page of them."""
        return super().get(request, *args, **kwargs)


class ReportFile(APIView):
    """A month's summary or details as CSV, streamed."""

    permission_classes = (AdminsOnly,)
    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="usage_reports_file",
        summary="A month's file",
        tags=["usage"],
        parameters=[
            OpenApiParameter("month", str, OpenApiParameter.PATH, description="YYYY-MM"),
            OpenApiParameter("kind", str, OpenApiParameter.PATH, enum=["summary", "details"]),
            OpenApiParameter("profile", str, enum=sorted(PROFILES), default="default"),
        ],
        responses={(200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request, month: str, kind: str) -> StreamingHttpResponse:
        """Return the file. Raises ValidationError and Http404."""
        profile = request.query_params.get("profile", "default")
        if profile not in PROFILES:
            known = " or ".join(sorted(PROFILES))
            raise ValidationError({"profile": [f"must be {known}, not {profile!r}."]})
        return report_file(_month(month), kind, profile)


class RunList(ListAPIView[ReportRun]):
    """Runs that make reports, newest first; POST asks for one."""

    queryset = ReportRun.objects.all()
    serializer_class = RunSerializer
    permission_classes = (AdminsOnly,)
    filter_backends = ()
    ordering = ("requested_at", "id")

    @extend_schema(operation_id="usage_runs_list", summary="Report runs", tags=["usage"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page of them."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="usage_runs_create",
        summary="Make reports now",
        description="This and last month, or the one given. Follow `Location` for its progress.",
        tags=["usage"],
        request=RunRequestSerializer,
        responses={202: RunSerializer},
    )
    def post(self, request: Request) -> Response:
        """Ask for a run. Raises ValidationError for a bad month and 503 without a broker."""
        asked = RunRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        month = asked.validated_data["month"]
        try:
            run = ask_for_run(request.user.get_username(), timezone.now(), month)
        except (MonthError, ReportRefused) as error:
            raise ValidationError({"month": [str(error)]}) from error
        except BrokerAway as error:
            raise Unavailable(str(error)) from error
        where = request.build_absolute_uri(reverse("usage-api:run", args=[run.pk]))
        shown = RunSerializer(run, context={"request": request}).data
        return Response(shown, status=status.HTTP_202_ACCEPTED, headers={"Location": where})


class RunDetail(RetrieveAPIView[ReportRun]):
    """One run: how far it is, and what became of it."""

    queryset = ReportRun.objects.all()
    serializer_class = RunSerializer
    permission_classes = (AdminsOnly,)
    filter_backends = ()

    @extend_schema(operation_id="usage_runs_read", summary="One report run", tags=["usage"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return it."""
        return super().get(request, *args, **kwargs)

    def get_object(self) -> ReportRun:
        """Return it. Raises Http404 with a sentence."""
        run = ReportRun.objects.filter(pk=self.kwargs["pk"]).first()
        if run is None:
            raise Http404("There is no run with this number.")
        return run


class Unavailable(APIException):
    """Something that this needs is away."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE


def _month(text: str) -> Month:
    try:
        return Month.parse(text)
    except MonthError as error:
        raise ValidationError({"month": [str(error)]}) from error
