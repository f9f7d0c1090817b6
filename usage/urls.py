"""glue: URLs of the usage pages; included at the root, because they begin with /usage/ and
/report/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import path

from usage.page import month_page
from usage.reports.urls import PAGES
from usage.views import fault_list, gap_list, lifetime_list, month_chart

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

app_name = "usage"
urlpatterns: list[URLPattern | URLResolver] = [
    path("usage/", month_page, name="month"),
    path("usage/chart.json", month_chart, name="chart"),
    path("usage/pods/", lifetime_list, name="lifetimes"),
    path("usage/faults/", fault_list, name="faults"),
    path("usage/gaps/", gap_list, name="gaps"),
    *PAGES,
]
