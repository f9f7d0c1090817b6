"""glue: month reports in the API: their files, at the addresses that PrimeHub's console uses, and
the runs that make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.conf import settings
from django.http import Http404
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.generics import RetrieveAPIView
from rest_framework.response import Response
from rest_framework.views import APIView

from ipuhub.api.auth import IsAccountant
from ipuhub.api.files import read_yes
from ipuhub.api.idempotency import idempotent
from ipuhub.api.parsing import AnyAccept, read_body
from ipuhub.api.views import FileList, PlainView
from ipuhub.web.audit import author_of
from ipuhub.web.columns import Column, file_columns
from usage.api.reportserializers import (
    ReportSerializer,
    ReviewSerializer,
    RunRequestSerializer,
    RunSerializer,
    cost_of,
)
from usage.models import MonthReport, ReportRun
from usage.reports.asking import ask_for_file, ask_for_month
from usage.reports.columns import PROFILES
from usage.reports.csv import FORMATS
from usage.reports.downloads import Wanted
from usage.reports.files import range_file, report_file
from usage.reports.making import ReportRefused
from usage.reports.outdated import add_outdated, add_outdated_runs
from usage.reports.review import review_month
from usage.reports.runs import BrokerAway, read_range
from usage.time.months import bounds_of
from usage.time.windows import Month, MonthError, WindowError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from ipuhub.web.audit import Author

TOTAL = OpenApiParameter(
    "total",
    str,
    enum=["yes", "no"],
    default="yes",
    description="`no` leaves out the line of totals. It is the last line of the CSV: "
    "its first column is `total`, and each number is the sum of the printed column.",
)
EXCEL = OpenApiParameter(
    "excel",
    bool,
    allow_blank=True,
    description="Write a byte-order mark and CRLF for Excel; `?excel` alone means true.",
)
_PATTERN = {"type": "string", "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])$"}
MONTH = OpenApiParameter("month", _PATTERN, OpenApiParameter.PATH, description="YYYY-MM")
_KIND = OpenApiParameter(
    "kind",
    str,
    OpenApiParameter.PATH,
    enum=["summary", "details"],
    description="Sums, or one line per pod and partition.",
)
_FORM = OpenApiParameter(
    "form",
    str,
    OpenApiParameter.PATH,
    enum=list(FORMATS),
    description="CSV, or JSON lines.",
)
_PROFILE = OpenApiParameter(
    "profile",
    str,
    enum=sorted(PROFILES),
    default="default",
    description="`primehub`: the columns of PrimeHub Usage.",
)


_OUTDATED: Final = Column(
    "outdated", "", lambda row: " ".join(each.reason for each in row.outdated), kind="export"
)
REPORT_COLUMNS: Final = (
    *file_columns(("month", "number", "version", "state", "zone", "first", "end")),
    *file_columns(("generated_at", "complete_until", "cause", "made_by")),
    Column("rows", "", lambda report: report.lifetimes, kind="export"),
    Column("summary_lines", "", lambda report: report.lines.get("summary"), kind="export"),
    Column("summary_sha256", "", lambda report: report.digests.get("summary"), kind="export"),
    Column("details_sha256", "", lambda report: report.digests.get("details"), kind="export"),
    Column("cost", "", cost_of, kind="export"),
    Column("currency", "", lambda report: report.tariff.get("currency", ""), kind="export"),
    _OUTDATED,
    Column("note", "", lambda report: bounds_of(report).note, kind="export"),
)
RUN_COLUMNS: Final = (
    *file_columns(("id", "state", "cause", "requested_by", "requested_at", "month")),
    Column("months", "", lambda run: " ".join(run.months), kind="export"),
    *file_columns(("done", "started_at", "finished_at", "message", "close", "kind", "profile")),
    *file_columns(("begin", "end", "lines", "digest", "complete_until", "expires_at")),
    _OUTDATED,
)


def read_total(request: Request) -> bool:
    """Return whether a file is to have its line of totals. Raises ValidationError."""
    text = request.query_params.get("total", "yes")
    if text not in {"yes", "no"}:
        raise ValidationError({"total": [f"must be yes or no, not {text[:80]!r}."]})
    return text == "yes"


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
        excel = read_yes(request, "excel")
        return report_file(request, Wanted(month, self.kind, "primehub", excel=excel))


class ReportList(FileList[MonthReport]):
    """The month reports and their corrections, newest first, each with its files."""

    queryset = MonthReport.objects.all()
    serializer_class = ReportSerializer
    permission_classes = (IsAccountant,)
    ordering = ("first", "id")
    columns = REPORT_COLUMNS
    file_name = "reports"

    @extend_schema(operation_id="usage_reports_list", summary="Month reports", tags=["usage"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The newest report of each month and all corrections, newest month first."""
        return super().get(request, *args, **kwargs)

    def prepare(self, rows: Sequence[Any]) -> None:
        """Add what they are older than."""
        add_outdated(rows)


class ReportReview(PlainView):
    """Points to check before a month is closed."""

    permission_classes = (IsAccountant,)

    @extend_schema(
        operation_id="usage_reports_review",
        summary="Review a month before closing it",
        tags=["usage"],
        parameters=[MONTH],
        responses=ReviewSerializer,
    )
    def get(self, _request: Request, month: str) -> Response:
        """Return it. Raises ValidationError for a month that cannot be closed."""
        try:
            review = review_month(read_month(month))
        except ReportRefused as error:
            raise ValidationError({"month": [str(error)]}) from error
        return Response(ReviewSerializer(review).data)


class ReportFile(PlainView):
    """A month's summary or details, streamed; see the headers for what the report says of it."""

    has_etag = True
    parameters = frozenset({"excel", "profile", "total"})
    permission_classes = (IsAccountant,)
    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="usage_reports_file",
        summary="A month's file",
        description="Headers: `ETag`, `Repr-Digest` (of the stored file), `X-IPUHub-Version`, "
        "`-State`, `-Begin`, `-End`, `-Lines`, `-Corrections`, `-Complete-Until`, `-Generated-At`, "
        "`-Currency`. Details of an open month are generated from the current records, so they "
        "may contain more than the report and have no `ETag` and `-Lines`. A month without "
        "usage is an empty file of version 0.",
        tags=["usage"],
        parameters=[
            MONTH,
            _KIND,
            _FORM,
            _PROFILE,
            EXCEL,
            TOTAL,
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
        excel, total = read_yes(request, "excel"), read_total(request)
        wanted = Wanted(read_month(month), kind, profile, form=form, excel=excel, total=total)
        return report_file(request, wanted)


class CorrectionFile(PlainView):
    """The differences that one correction of a closed month makes, as CSV."""

    has_etag = True
    parameters = frozenset({"excel", "total"})
    permission_classes = (IsAccountant,)
    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="usage_reports_correction",
        summary="A correction of a closed month",
        description="Summary lines with deltas to add to the report; a delta may be negative.",
        tags=["usage"],
        parameters=[
            MONTH,
            OpenApiParameter("number", int, OpenApiParameter.PATH, description="1 and up"),
            EXCEL,
            TOTAL,
        ],
        responses={(200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request, month: str, number: int) -> HttpResponseBase:
        """Return the file. Raises ValidationError and Http404."""
        if not number:
            raise Http404("Corrections are numbered starting at 1.")
        excel, total = read_yes(request, "excel"), read_total(request)
        wanted = Wanted(read_month(month), "correction", number=number, excel=excel, total=total)
        return report_file(request, wanted)


class RunList(FileList[ReportRun]):
    """Runs that make reports, newest first; POST starts a run."""

    queryset = ReportRun.objects.all()
    serializer_class = RunSerializer
    permission_classes = (IsAccountant,)
    ordering = ("requested_at", "id")
    columns = RUN_COLUMNS
    file_name = "report-runs"

    @extend_schema(operation_id="usage_runs_list", summary="Report runs", tags=["usage"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """The latest report runs, newest first."""
        return super().get(request, *args, **kwargs)

    def prepare(self, rows: Sequence[Any]) -> None:
        """Add the reasons that files are out of date."""
        add_outdated_runs(rows)

    @extend_schema(
        operation_id="usage_runs_create",
        summary="Generate reports now",
        description="Generates the reports of this and last month, of the given month, or a "
        "file of a range (`from`, `to`). If the same run is already in progress, that run "
        "is returned. Poll `Location` for its progress.",
        tags=["usage"],
        request=RunRequestSerializer,
        responses={202: RunSerializer},
    )
    @idempotent(sends=True)
    def post(self, request: Request) -> Response:
        """Ask for a run. Raises ValidationError for a bad month and 503 without a broker."""
        requested = read_body(RunRequestSerializer, request)
        try:
            run = _ask(requested, author_of(request))
        except BrokerAway as error:
            raise Unavailable(str(error)) from error
        where = request.build_absolute_uri(reverse("usage-api:run", args=[run.pk]))
        add_outdated_runs([run])
        body = RunSerializer(run, context={"request": request}).data
        return Response(body, status=status.HTTP_202_ACCEPTED, headers={"Location": where})


class RunDetail(PlainView, RetrieveAPIView[ReportRun]):
    """A run: its progress and result."""

    queryset = ReportRun.objects.all()
    serializer_class = RunSerializer
    permission_classes = (IsAccountant,)
    filter_backends = ()

    @extend_schema(operation_id="usage_runs_read", summary="One report run", tags=["usage"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return it."""
        return super().get(request, *args, **kwargs)

    def get_object(self) -> ReportRun:
        """Return it. Raises Http404 with a sentence."""
        run = ReportRun.objects.filter(pk=self.kwargs["pk"]).first()
        if run is None:
            raise Http404("Run not found.")
        add_outdated_runs([run])
        return run


class RunFile(PlainView):
    """The file of a range that a run made."""

    parameters = frozenset({"excel", "total"})
    permission_classes = (IsAccountant,)
    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="usage_runs_file",
        summary="The file of a range",
        tags=["usage"],
        parameters=[EXCEL, TOTAL],
        responses={(200, "text/csv"): OpenApiTypes.STR},
    )
    def get(self, request: Request, pk: int) -> HttpResponseBase:
        """Return it. Raises Http404 where it is not made yet, or no longer kept."""
        run = ReportRun.objects.filter(pk=pk).first()
        if run is None:
            raise Http404("Run not found.")
        excel, total = read_yes(request, "excel"), read_total(request)
        return range_file(run, excel=excel, total=total)


class Unavailable(APIException):
    """A required service is unavailable."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "queue-unavailable"


def _ask(requested: Mapping[str, Any], by: Author) -> ReportRun:
    if not (requested["from"] or requested["to"]):
        try:
            return ask_for_month(by, requested["month"], close=requested["close"])
        except (MonthError, ReportRefused) as error:
            raise ValidationError({"month": [str(error)]}) from error
    if requested["month"] or requested["close"]:
        raise ValidationError({"month": ["Specify either month, or from and to."]})
    try:
        file = read_range(requested, timezone.now(), settings.REPORT_ZONE)
    except (WindowError, ReportRefused) as error:
        raise ValidationError({"from": [str(error)]}) from error
    return ask_for_file(by, file)
