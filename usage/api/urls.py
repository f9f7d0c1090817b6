"""glue: the addresses below /api/v1/ that belong to usage (`usage/...`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

app_name = "usage-api"
urlpatterns: list[URLPattern | URLResolver] = []
