"""glue: URLs of the pages and of metrics; included by `ipuhub/urls.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.urls import include, path

from dashboard.account import PasswordPage, revoke_token, tokens
from dashboard.actions.auditlist import audit_page
from dashboard.actions.pages import act_on_job, create_job
from dashboard.actions.rolechanges import role_changes
from dashboard.apireference import Index, api_reference
from dashboard.fleet import fleet_page
from dashboard.fleettable import fleet_table
from dashboard.health import health_dot
from dashboard.help import help_page
from dashboard.job.list import job_list, job_suggestions
from dashboard.job.logs import logs_page
from dashboard.job.named import named_job, or_named
from dashboard.job.page import events_page, job_page, pods_page, usage_page, yaml_page
from dashboard.machines.page import ipu_page, machine_page
from dashboard.metrics import metrics
from dashboard.notify.pages import change_subscription, notifications
from dashboard.overview.page import overview
from dashboard.partitions import partition_list
from dashboard.queue.page import queue_page
from dashboard.search import search
from dashboard.system import system
from dashboard.users import revoke_token_of, users_page
from ipuhub.web.access import signed_in
from ipuhub.web.audit import JOB, ROLE, SUBSCRIPTION, TOKEN, USER
from ipuhub.web.problems import takes
from ipuhub.web.refusals import Write, register_writes
from partitions.urls import urlpatterns as partition_pages
from usage.utilization.pages import utilization_chart, utilization_page, utilization_week

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from django.urls import URLPattern, URLResolver

job_pages = [
    path("", job_list, name="list"),
    path("new/", create_job, name="create"),
    path("suggestions/", job_suggestions, name="suggestions"),
    path("<str:uid>/do/<str:key>/", act_on_job, name="act"),
    path("<str:uid>/", job_page, name="detail"),
    path("<str:uid>/logs/", or_named("logs", logs_page), name="logs"),
    path("<str:uid>/pods/", or_named("pods", pods_page), name="pods"),
    path("<str:uid>/events/", or_named("events", events_page), name="events"),
    path("<str:uid>/yaml/", or_named("yaml", yaml_page), name="yaml"),
]
if settings.USAGE_ENABLED:
    job_pages += [path("<str:uid>/usage/", or_named("usage", usage_page), name="usage")]
job_pages += [path("<str:namespace>/<str:name>/", named_job, name="named")]  # after the tabs
urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview, name="overview"),
    path("jobs/", include((job_pages, "jobs"))),
    path(
        "partitions/",
        include(([path("", partition_list, name="list"), *partition_pages], "partitions")),
    ),
    path("api/", api_reference, name="api-reference"),
    path("api/v1/", Index.as_view(), name="api-index"),
    path("api/v1/", include("dashboard.apiurls")),
    path("search/", search, name="search"),
    path("help/", help_page, name="help"),
    path("queue/", queue_page, name="queue"),
    path("fleet/", fleet_page, name="fleet"),
    path("fleet/table/", fleet_table, name="fleet-table"),
    path("fleet/machines/<str:controller>/<str:name>/", machine_page, name="machine"),
    path("fleet/machines/<str:controller>/<str:name>/ipus/<int:position>/", ipu_page, name="ipu"),
    path("system/health", health_dot, name="health-dot"),
    path("system/", system, name="system"),
    path("account/tokens/", tokens, name="account-tokens"),
    path("account/tokens/<int:number>/revoke", revoke_token, name="account-token-revoke"),
    path("account/users/", users_page, name="account-users"),
    path(
        "account/users/tokens/<int:number>/revoke",
        revoke_token_of,
        name="account-user-token-revoke",
    ),
    path("account/notifications/", notifications, name="account-notifications"),
    path(
        "account/notifications/<int:number>/<str:change>",
        change_subscription,
        name="account-subscription",
    ),
    path("account/roles/", role_changes, name="role-changes"),
    path("account/password/", signed_in(takes()(PasswordPage.as_view())), name="account-password"),
    path("audit/", audit_page, name="audit"),
    path("metrics", metrics, name="metrics"),
]
if settings.USAGE_ENABLED:
    urlpatterns += [
        path("utilization/", utilization_page, name="utilization"),
        path("utilization/chart.json", utilization_chart, name="utilization-chart"),
        path("utilization/week.csv", utilization_week, name="utilization-week"),
        path("", include("usage.urls")),  # /usage/... and, as its old readers expect, /report/...
    ]


def _role_action(values: Mapping[str, Any]) -> str:
    return "revoke" if values.get("change") == "revoke" else "grant"


register_writes(
    {
        "account-users": Write(ROLE, _role_action, "user"),
        "account-tokens": Write(TOKEN, "create", "name"),
        "account-token-revoke": Write(TOKEN, "revoke", "number"),
        "account-user-token-revoke": Write(TOKEN, "revoke", "number"),
        "account-notifications": Write(SUBSCRIPTION, "create", "event"),
        "account-subscription": Write(SUBSCRIPTION, lambda form: str(form["change"]), "number"),
        "account-password": Write(USER, "change-password", "user"),
        "jobs:create": Write(JOB, "create", only=("confirm", "yes")),
        "jobs:act": Write(JOB, lambda form: str(form["key"])),
    }
)
