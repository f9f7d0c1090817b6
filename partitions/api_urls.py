"""glue: the addresses below /api/v1/ of partitions, but for their list (dashboard/apiurls.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import path

from partitions.api import Capacity, Query, Stats

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = [
    path("stats", Stats.as_view(), name="stats"),
    path("capacity", Capacity.as_view(), name="capacity"),
    path("query", Query.as_view(), name="query"),
]
