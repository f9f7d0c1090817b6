"""glue: runs of reports in the API: asked for, followed, and the file of a range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.http import Http404
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.generics import ListAPIView, RetrieveAPIView
from rest_framework.response import Response
from rest_framework.views import APIView

from ipuhub.api.files import read_yes
from ipuhub.api.negotiation import AnyAccept
from ipuhub.api.permissions import IsAccountant
from ipuhub.months import MonthError
from usage.api.reports import EXCEL, TOTAL, read_total
from usage.api.reportserializers import RunRequestSerializer, RunSerializer
from usage.models import ReportRun
from usage.reports.files import range_file
from usage.reports.making import ReportRefused
from usage.reports.runs import BrokerAway, ask_for_range, ask_for_run, read_range
from usage.time.windows import WindowError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.http.response import HttpResponseBase
    from rest_framework.request import Request


class RunList(ListAPIView[ReportRun]):
    """Runs that make reports, newest first; POST asks for one."""

    queryset = ReportRun.objects.all()
    serializer_class = RunSerializer
    permission_classes = (IsAccountant,)
    filter_backends = ()
    ordering = ("requested_at", "id")

    @extend_schema(operation_id="usage_runs_list", summary="Report runs", tags=["usage"])
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return a page of them."""
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="usage_runs_create",
        summary="Make reports now",
        description="This and last month, the one given, or the file of a range (`from`, `to`). "
        "Where the same is under way already it is that run. Follow `Location` for its progress.",
        tags=["usage"],
        request=RunRequestSerializer,
        responses={202: RunSerializer},
    )
    def post(self, request: Request) -> Response:
        """Ask for a run. Raises ValidationError for a bad month and 503 without a broker."""
        asked = RunRequestSerializer(data=request.data)
        asked.is_valid(raise_exception=True)
        try:
            run = _ask(asked.validated_data, request.user.get_username())
        except BrokerAway as error:
            raise Unavailable(str(error)) from error
        where = request.build_absolute_uri(reverse("usage-api:run", args=[run.pk]))
        shown = RunSerializer(run, context={"request": request}).data
        return Response(shown, status=status.HTTP_202_ACCEPTED, headers={"Location": where})


class RunDetail(RetrieveAPIView[ReportRun]):
    """One run: how far it is, and what became of it."""

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
            raise Http404("There is no run with this number.")
        return run


class RunFile(APIView):
    """The file of a range that a run made."""

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
            raise Http404("There is no run with this number.")
        excel, total = read_yes(request, "excel"), read_total(request)
        return range_file(run, excel=excel, total=total)


class Unavailable(APIException):
    """Something that this needs is away."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE


def _ask(asked: Mapping[str, Any], by: str) -> ReportRun:
    now = timezone.now()
    if not (asked["from"] or asked["to"]):
        try:
            return ask_for_run(by, now, asked["month"], close=asked["close"])
        except (MonthError, ReportRefused) as error:
            raise ValidationError({"month": [str(error)]}) from error
    if asked["month"] or asked["close"]:
        raise ValidationError({"month": ["Give either a month, or from and to."]})
    try:
        file = read_range(asked, now, settings.REPORT_ZONE)
    except (WindowError, ReportRefused) as error:
        raise ValidationError({"from": [str(error)]}) from error
    return ask_for_range(file, by, now)
