"""glue: the addresses below /api/v1/ that belong to partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import path

from partitions.api.views import Capacity, PartitionList, Query, Stats

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

app_name = "partitions-api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("partitions", PartitionList.as_view(), name="partitions"),
    path("stats", Stats.as_view(), name="stats"),
    path("capacity", Capacity.as_view(), name="capacity"),
    path("query", Query.as_view(), name="query"),
]
