"""glue: the URL table of the web process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.auth.views import LogoutView
from django.urls import include, path

from dashboard.account import PasswordPage, revoke_token, tokens
from dashboard.job import job_page
from dashboard.metrics import metrics
from dashboard.overview import overview
from dashboard.partitions import partition_list
from dashboard.system import system
from ipuhub.web.probes import healthz, readyz
from ipuhub.web.signin import SignInPage
from jobs.urls import urlpatterns as job_pages
from partitions.urls import urlpatterns as partition_pages
from usage.utilization.pages import utilization_chart, utilization_page

if TYPE_CHECKING:
    from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview, name="overview"),
    path("jobs/", include(([*job_pages, path("<str:uid>/", job_page, name="detail")], "jobs"))),
    path(
        "partitions/",
        include(([path("", partition_list, name="list"), *partition_pages], "partitions")),
    ),
    path("api/v1/", include("dashboard.apiurls")),
    path("system/", system, name="system"),
    path("account/tokens/", tokens, name="account-tokens"),
    path("account/tokens/<int:number>/revoke", revoke_token, name="account-token-revoke"),
    path("account/password/", PasswordPage.as_view(), name="account-password"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("login/", SignInPage.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
if settings.USAGE_ENABLED:
    urlpatterns += [
        path("utilization/", utilization_page, name="utilization"),
        path("utilization/chart.json", utilization_chart, name="utilization-chart"),
        path("", include("usage.urls")),  # /usage/... and, as its old readers expect, /report/...
    ]
handler400 = "ipuhub.web.problems.malformed"
handler403 = "ipuhub.web.problems.permission_denied"
handler404 = "ipuhub.web.problems.not_found"
handler500 = "ipuhub.web.problems.server_error"
