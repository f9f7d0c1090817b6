"""glue: the usage URLs in /api/v1/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipuhub.api.files import with_files
from usage.api.capacity import CapacityView, WeekView
from usage.api.sums import FaultList, GapList, LifetimeList, SeriesView, SummaryView
from usage.reports.urls import API

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

app_name = "usage-api"
urlpatterns: list[URLPattern | URLResolver] = [
    *with_files("summary", SummaryView, "summary"),
    *with_files("series", SeriesView, "series"),
    *with_files("capacity", CapacityView, "capacity"),
    *with_files("capacity/week", WeekView, "capacity-week"),
    *with_files("lifetimes", LifetimeList, "lifetimes"),
    *with_files("faults", FaultList, "faults"),
    *with_files("gaps", GapList, "gaps"),
    *API,
]
