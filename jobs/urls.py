"""glue: URLs of the pages of jobs; `dashboard/urls.py` adds the page of one job, `jobs:detail`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import path

from jobs.views import job_list

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

app_name = "jobs"
urlpatterns: list[URLPattern | URLResolver] = [path("", job_list, name="list")]
