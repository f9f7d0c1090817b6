"""glue: the URL table of the web process: probes, sign-in, and the dashboard by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.urls import include, path

from ipuhub.oidc.views import backchannel_logout, callback, sign_out, start
from ipuhub.web.middleware import healthz, readyz
from ipuhub.web.signin import SignInPage

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("login/", SignInPage.as_view(), name="login"),
    path("logout/", sign_out, name="logout"),
    path("oidc/start", start, name="oidc-start"),
    path("oidc/callback", callback, name="oidc-callback"),
    path("oidc/backchannel-logout", backchannel_logout, name="oidc-backchannel-logout"),
    path("", include("dashboard.urls")),
]
handler400 = "ipuhub.web.problems.malformed"
handler403 = "ipuhub.web.problems.permission_denied"
handler404 = "ipuhub.web.problems.not_found"
handler500 = "ipuhub.web.problems.server_error"
