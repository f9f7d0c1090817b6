"""glue: the addresses of month reports, which `usage/urls.py` and `usage/api/urls.py` take in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import path, re_path

from usage.api.primehub import OpenDetails, OpenMonths, OpenSummary, health
from usage.api.reports import ReportFile, ReportList, RunDetail, RunList
from usage.reportpages import make_reports, reports

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

PAGES: list[URLPattern | URLResolver] = [
    path("usage/reports/", reports, name="reports"),
    path("usage/reports/make/", make_reports, name="make-reports"),
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
    path("reports", ReportList.as_view(), name="reports"),
    path("reports/runs", RunList.as_view(), name="runs"),
    path("reports/runs/<int:pk>", RunDetail.as_view(), name="run"),
    re_path(
        r"^reports/(?P<month>[^/]+)/(?P<kind>summary|details)\.csv$",
        ReportFile.as_view(),
        name="report-file",
    ),
]
