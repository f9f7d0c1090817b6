"""glue: URLs of the pages of partitions; the URL of their list is in dashboard/urls.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import path

from partitions.views import query, stats

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = [
    path("stats/", stats, name="stats"),
    path("query/", query, name="query"),
]
