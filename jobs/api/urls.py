"""glue: the addresses below /api/v1/ that belong to jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

app_name = "jobs-api"
urlpatterns: list[URLPattern | URLResolver] = []
