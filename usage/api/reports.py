"""glue: month reports in the API, and their files at the addresses that PrimeHub's console asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.http import Http404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.generics import ListAPIView
from rest_framework.response import Response
from rest_framework.views import APIView

from ipuhub.api.negotiation import AnyAccept
from ipuhub.api.permissions import IsAccountant
from ipuhub.months import Month, MonthError
from usage.api.reportserializers import ReportSerializer
from usage.models import MonthReport
from usage.reports.columns import PROFILES
from usage.reports.downloads import Wanted
from usage.reports.fileforms import FORMATS
from usage.reports.files import report_file

if TYPE_CHECKING:
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

_EXCEL = OpenApiParameter(
    "excel", bool, allow_blank=True, description="With a byte-order mark and CRLF, for Excel."
)


def read_month(text: str) -> Month:
    """Return the month written in an address. Raises ValidationError."""
    try:
        return Month.parse(text)
    except MonthError as error:
        raise ValidationError({"month": [str(error)]}) from error


@extend_schema(exclude=True)
class PrimeHubMonths(APIView):
    """`/report/monthly`: the months with a report, newest first, as PrimeHub Usage wrote them."""

    permission_classes = (IsAccountant,)
    content_negotiation_class = AnyAccept

    def get(self, _request: Request) -> Response:
        """Return the list."""
        months = MonthReport.objects.values_list("month", flat=True).order_by("-month").distinct()
        return Response([f"{m.year}/{m.number}" for m in map(Month.parse, months)])


@extend_schema(exclude=True)
class PrimeHubFile(APIView):
    """`/report/monthly/<year>/<month>` and `/report/monthly/details/<year>/<month>`."""

    permission_classes = (IsAccountant,)
    content_negotiation_class = AnyAccept
    kind: ClassVar[str] = "summary"

    def get(self, request: Request, year: int, number: int) -> HttpResponseBase:
        """Return the file in the primehub profile."""
        try:
            month = Month(year, number)
        except MonthError as error:
            raise Http404(str(error)) from error
        excel = "excel" in request.query_params
        return report_file(request, Wanted(month, self.kind, "primehub", excel=excel))


class ReportList(ListAPIView[MonthReport]):
    """The month reports and their corrections, newest first, each with its files."""

    queryset = MonthReport.objects.all()
    serializer_class = ReportSerializer
    permission_classes = (IsAccountant,)
    filter_backends = ()
    ordering = ("first", "id")

    @extend_schema(operation_id="usage_reports_list", summary="Month reports", tags=["usage"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page of them."""
        return super().get(request, *args, **kwargs)


class ReportFile(APIView):
    """A month's summary or details, streamed; see the headers for what the report says of it."""

    permission_classes = (IsAccountant,)
    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="usage_reports_file",
        summary="A month's file",
        description="Headers: `ETag`, `Repr-Digest` (of what is stored), `X-IPUHub-Version`, "
        "`-State`, `-Begin`, `-End`, `-Lines`, `-Corrections`, `-Complete-Until`, `-Generated-At`, "
        "`-Currency`. Details of a month that is not closed are made from the records, with what "
        "was found since the report: without `ETag` and `-Lines`. A month without usage is an "
        "empty file of version 0.",
        tags=["usage"],
        parameters=[
            OpenApiParameter("month", str, OpenApiParameter.PATH, description="YYYY-MM"),
            OpenApiParameter("kind", str, OpenApiParameter.PATH, enum=["summary", "details"]),
            OpenApiParameter("form", str, OpenApiParameter.PATH, enum=list(FORMATS)),
            OpenApiParameter("profile", str, enum=sorted(PROFILES), default="default"),
            _EXCEL,
        ],
        responses={
            (200, "text/csv"): OpenApiTypes.STR,
            (200, "application/x-ndjson"): OpenApiTypes.STR,
        },
    )
    def get(self, request: Request, month: str, kind: str, form: str) -> HttpResponseBase:
        """Return the file. Raises ValidationError and Http404."""
        profile = request.query_params.get("profile", "default")
        if profile not in PROFILES:
            known = " or ".join(sorted(PROFILES))
            raise ValidationError({"profile": [f"must be {known}, not {profile!r}."]})
        excel = "excel" in request.query_params
        return report_file(
            request, Wanted(read_month(month), kind, profile, form=form, excel=excel)
        )


class CorrectionFile(APIView):
    """The differences that one correction of a closed month makes, as CSV."""

    permission_classes = (IsAccountant,)
    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="usage_reports_correction",
        summary="A correction of a closed month",
        description="Lines of a summary: each number is added to the report's; it may be negative.",
        tags=["usage"],
        parameters=[
            OpenApiParameter("month", str, OpenApiParameter.PATH, description="YYYY-MM"),
            OpenApiParameter("number", int, OpenApiParameter.PATH, description="1 and up"),
            _EXCEL,
        ],
        responses={(200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request, month: str, number: int) -> HttpResponseBase:
        """Return the file. Raises ValidationError and Http404."""
        if not number:
            raise Http404("Corrections are numbered from 1 on.")
        excel = "excel" in request.query_params
        wanted = Wanted(read_month(month), "correction", number=number, excel=excel)
        return report_file(request, wanted)
