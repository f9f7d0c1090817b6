"""glue: the pages of usage; included at the root, so that /usage/... and /report/... fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

app_name = "usage"
urlpatterns: list[URLPattern | URLResolver] = []
