"""glue: the pages of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

app_name = "jobs"
urlpatterns: list[URLPattern | URLResolver] = []
