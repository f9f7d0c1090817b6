"""glue: the URL table of the web process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from ipuhub.web.overview import healthz, overview

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview, name="overview"),
    path("healthz", healthz, name="healthz"),
    path("login/", LoginView.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
handler403 = "ipuhub.web.overview.permission_denied"
