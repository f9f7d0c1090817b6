"""glue: the URLs in /api/v1/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.urls import include, path

from dashboard.accounts.tokensapi import OneToken, TokenList
from dashboard.accounts.usersapi import GrantRole, RevokeRole, TokenOfUser, UserList
from dashboard.actions.api import (
    CancelJob,
    JobsView,
    ResumeJob,
    RunJobAgain,
    ScaleJob,
    SuspendJob,
)
from dashboard.actions.auditlist import AuditList
from dashboard.actions.rolechanges import RoleChangeList
from dashboard.apidocument import Document
from dashboard.fleet import FleetView
from dashboard.health import Components
from dashboard.job.api import JobEvents, JobManifest, JobPods, JobUsageSoFar, JobWaiting
from dashboard.job.happened import JobTimeline
from dashboard.job.logsapi import JobLogs
from dashboard.machines.api import IpuView, MachineView
from dashboard.notify.api import NotificationList
from dashboard.notify.subscriptionapi import (
    OneSubscription,
    RetrySubscription,
    SubscriptionList,
    TestSubscription,
)
from dashboard.partitions import AllPartitions, PartitionUsage
from dashboard.queue.api import QueueView
from dashboard.search import SearchView
from dashboard.system import SystemView
from ipuhub.api.files import with_files
from ipuhub.web.audit import JOB, ROLE, SUBSCRIPTION, TOKEN
from ipuhub.web.refusals import Write, register_writes
from partitions.api import urlpatterns as partition_api

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from django.urls import URLPattern, URLResolver


urlpatterns: list[URLPattern | URLResolver] = [
    *with_files("jobs", JobsView, "jobs"),
    path("", include("jobs.api")),
    *with_files("jobs/<str:uid>/pods", JobPods, "job-pods"),
    *with_files("jobs/<str:uid>/events", JobEvents, "job-events"),
    *with_files("jobs/<str:uid>/timeline", JobTimeline, "job-timeline"),
    path("jobs/<str:uid>/manifest", JobManifest.as_view(), name="job-manifest"),
    path("jobs/<str:uid>/logs", JobLogs.as_view(), name="job-logs"),
    path("jobs/<str:uid>/waiting", JobWaiting.as_view(), name="job-waiting"),
    path("jobs/<str:uid>/suspend", SuspendJob.as_view(), name="job-suspend"),
    path("jobs/<str:uid>/resume", ResumeJob.as_view(), name="job-resume"),
    path("jobs/<str:uid>/cancel", CancelJob.as_view(), name="job-cancel"),
    path("jobs/<str:uid>/scale", ScaleJob.as_view(), name="job-scale"),
    path("jobs/<str:uid>/run-again", RunJobAgain.as_view(), name="job-run-again"),
    path("search", SearchView.as_view(), name="api-search"),
    *with_files("audit", AuditList, "api-audit"),
    *with_files("notifications", NotificationList, "api-notifications"),
    *with_files("subscriptions", SubscriptionList, "api-subscriptions"),
    path("subscriptions/<int:pk>", OneSubscription.as_view(), name="api-subscription"),
    path("subscriptions/<int:pk>/test", TestSubscription.as_view(), name="api-subscription-test"),
    path(
        "subscriptions/<int:pk>/retry", RetrySubscription.as_view(), name="api-subscription-retry"
    ),
    *with_files("users", UserList, "api-users"),
    path("users/tokens/<int:pk>", TokenOfUser.as_view(), name="api-user-token"),
    path("roles/grant", GrantRole.as_view(), name="api-role-grant"),
    path("roles/revoke", RevokeRole.as_view(), name="api-role-revoke"),
    *with_files("tokens", TokenList, "api-tokens"),
    path("tokens/<int:pk>", OneToken.as_view(), name="api-token"),
    *with_files("role-changes", RoleChangeList, "api-role-changes"),
    path(
        "",
        include(
            (
                [*with_files("partitions", AllPartitions, "partitions"), *partition_api],
                "partitions-api",
            )
        ),
    ),
    *with_files("queue", QueueView, "api-queue"),
    path("fleet", FleetView.as_view(), name="api-fleet"),
    path(
        "fleet/machines/<str:controller>/<str:machine>", MachineView.as_view(), name="api-machine"
    ),
    path(
        "fleet/machines/<str:controller>/<str:machine>/ipus/<int:position>",
        IpuView.as_view(),
        name="api-ipu",
    ),
    path("components", Components.as_view(), name="api-components"),
    path("system", SystemView.as_view(), name="api-system"),
    path("schema/", Document.as_view(), name="api-schema"),
]
if settings.USAGE_ENABLED:
    urlpatterns += [
        path("jobs/<str:uid>/usage", JobUsageSoFar.as_view(), name="job-usage"),
        *with_files("usage/partitions", PartitionUsage, "usage-partitions"),
        path("usage/", include("usage.api.urls")),
    ]


def _subscription_action(values: Mapping[str, Any]) -> str:
    if values["method"] == "DELETE":
        return "delete"
    return "resume" if values.get("is_paused") is False else "pause"


register_writes(
    {
        "jobs": Write(JOB, "create"),
        "job-suspend": Write(JOB, "suspend"),
        "job-resume": Write(JOB, "resume"),
        "job-cancel": Write(JOB, "cancel"),
        "job-scale": Write(JOB, "scale"),
        "job-run-again": Write(JOB, "run-again"),
        "api-role-grant": Write(ROLE, "grant", "user"),
        "api-role-revoke": Write(ROLE, "revoke", "user"),
        "api-subscriptions": Write(SUBSCRIPTION, "create", "event"),
        "api-subscription": Write(SUBSCRIPTION, _subscription_action, "pk"),
        "api-tokens": Write(TOKEN, "create", "name"),
        "api-token": Write(TOKEN, "revoke", "pk"),
        "api-user-token": Write(TOKEN, "revoke", "pk"),
    }
)
