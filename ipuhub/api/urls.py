"""glue: the addresses below /api/v1/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("jobs.api.urls")),
    path("", include("partitions.api.urls")),
    path("", include("usage.api.urls")),
    path("schema/", SpectacularAPIView.as_view(), name="api-schema"),
]
