"""glue: URLs of month reports, included by `usage/urls.py` and `usage/api/urls.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import path, re_path

from ipuhub.api.files import with_files
from ipuhub.web.audit import RATE, REPORT
from ipuhub.web.refusals import Write, register_writes
from usage.api.primehub import OpenDetails, OpenMonths, OpenSummary, health
from usage.api.rates import RateEnd, RateList, RatePreview
from usage.api.reports import (
    CorrectionFile,
    ReportFile,
    ReportList,
    ReportReview,
    RunDetail,
    RunFile,
    RunList,
)
from usage.api.statements import GroupsView, StatementView
from usage.rates.pages import end, rates
from usage.reports.pages import make_range, make_reports, reports, review
from usage.reports.statement import groups, statement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from django.urls import URLPattern, URLResolver

PAGES: list[URLPattern | URLResolver] = [
    path("usage/reports/", reports, name="reports"),
    path("usage/reports/make/", make_reports, name="make-reports"),
    path("usage/reports/range/", make_range, name="make-range"),
    path("usage/reports/<str:month>/close/", review, name="review"),
    path("usage/reports/<str:month>/groups/", groups, name="report-groups"),
    path("usage/reports/<str:month>/statement/", statement, name="statement"),
    path("usage/rates/", rates, name="rates"),
    path("usage/rates/<int:pk>/end/", end, name="end-rate"),
    path("report/monthly", OpenMonths.as_view(), name="primehub-months"),
    path("report/monthly/<int:year>/<int:number>", OpenSummary.as_view(), name="primehub-summary"),
    path(
        "report/monthly/details/<int:year>/<int:number>",
        OpenDetails.as_view(),
        name="primehub-details",
    ),
    path("health", health, name="primehub-health"),
]
API: list[URLPattern | URLResolver] = [
    *with_files("reports", ReportList, "reports"),
    *with_files("reports/runs", RunList, "runs"),
    path("reports/runs/<int:pk>", RunDetail.as_view(), name="run"),
    path("reports/runs/<int:pk>/file.csv", RunFile.as_view(), name="run-file"),
    path("reports/<str:month>/review", ReportReview.as_view(), name="review"),
    *with_files("reports/<str:month>/groups", GroupsView, "groups"),
    path("reports/<str:month>/statement", StatementView.as_view(), name="statement"),
    *with_files("rates", RateList, "rates"),
    path("rates/preview", RatePreview.as_view(), name="rate-preview"),
    path("rates/<int:pk>/end", RateEnd.as_view(), name="rate-end"),
    path(
        "reports/<str:month>/corrections/<int:number>.csv",
        CorrectionFile.as_view(),
        name="correction-file",
    ),
    re_path(
        r"^reports/(?P<month>[^/]+)/(?P<kind>summary|details)\.(?P<form>csv|jsonl)$",
        ReportFile.as_view(),
        name="report-file",
    ),
]


def _report_action(values: Mapping[str, Any]) -> str:
    return "close" if values.get("close") in ("yes", True) else "generate"  # of any type, as sent


register_writes(
    {
        "usage:rates": Write(RATE, "create", "resource", only=("save", "yes")),
        "usage:end-rate": Write(RATE, "end", "pk"),
        "usage:make-reports": Write(REPORT, _report_action, "month"),
        "usage:make-range": Write(REPORT, "generate", "from"),
        "usage-api:rates": Write(RATE, "create", "resource"),
        "usage-api:rate-end": Write(RATE, "end", "pk"),
        "usage-api:runs": Write(REPORT, _report_action, "month"),
    }
)
