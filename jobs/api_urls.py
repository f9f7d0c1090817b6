"""glue: the addresses below /api/v1/ that belong to jobs; `dashboard/apiurls.py` adds `/pods`
etc."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import path

from jobs.api import JobDetail, JobList

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

app_name = "jobs-api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("jobs", JobList.as_view(), name="list"),
    path("jobs/<str:uid>", JobDetail.as_view(), name="detail"),
]
