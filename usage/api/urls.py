"""glue: the addresses below /api/v1/ that belong to usage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import path

from usage.api.capacity import CapacityView
from usage.api.sums import SeriesView, SummaryView
from usage.api.views import FaultList, GapList, LifetimeList
from usage.reports.urls import API

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

app_name = "usage-api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("summary", SummaryView.as_view(), name="summary"),
    path("series", SeriesView.as_view(), name="series"),
    path("capacity", CapacityView.as_view(), name="capacity"),
    path("lifetimes", LifetimeList.as_view(), name="lifetimes"),
    path("faults", FaultList.as_view(), name="faults"),
    path("gaps", GapList.as_view(), name="gaps"),
    *API,
]
