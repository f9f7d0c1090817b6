"""glue: the pages of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import path

from partitions.views import partition_list, query, stats

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

app_name = "partitions"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", partition_list, name="list"),
    path("stats/", stats, name="stats"),
    path("query/", query, name="query"),
]
