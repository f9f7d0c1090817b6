"""glue: the list of jobs. A job's own page joins pods and partitions: `dashboard.job`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.urls import reverse
from django.utils import timezone

from ipuhub.web.freshness import freshness
from ipuhub.web.lists import Column, ListPage
from jobs.filters import JobFilters
from jobs.ipujob.conditions import brief_message
from jobs.selectors import WATCH, listed_jobs
from jobs.states import message_of, state_of

if TYPE_CHECKING:
    from django.http import HttpRequest

    from jobs.models import JobRecord


def _address(job: JobRecord) -> str:
    return reverse("jobs:detail", args=[job.uid])


def _message(job: JobRecord) -> str:
    return message_of(job, job.message)


def _brief_message(job: JobRecord) -> str:
    return message_of(job, brief_message(job.message, f"{job.namespace}/{job.name}"))


def _freshness(_request: HttpRequest) -> dict[str, Any]:
    return {"freshness": freshness(WATCH, timezone.now())}


COLUMNS = (
    Column("state", "Status", state_of, kind="badge"),
    Column("name", "Job", lambda job: job.name, link=_address),
    Column("namespace", "Namespace", lambda job: job.namespace),
    Column("group", "Group", lambda job: job.group),
    Column("user", "User", lambda job: job.user),
    Column("ipus", "IPUs", lambda job: job.ipus, kind="number"),
    Column("workers", "Workers", lambda job: job.workers, kind="number"),
    Column("restart_count", "Restarts", lambda job: job.restart_count, kind="number"),
    Column("created_at", "Age", lambda job: job.created_at, kind="age"),
    Column("message", "Message", _message, kind="note", shown=_brief_message),
    Column("uid", "", lambda job: job.uid, kind="export"),
    Column("instances", "", lambda job: job.instances, kind="export"),
    Column("user_verified", "", lambda job: job.user_verified, kind="export"),
    Column("status", "", lambda job: job.status, kind="export"),
    Column("reason", "", lambda job: job.reason, kind="export"),
    Column("started_at", "", lambda job: job.started_at, kind="export"),
    Column("completed_at", "", lambda job: job.completed_at, kind="export"),
    Column("deleted_at", "", lambda job: job.deleted_at, kind="export"),
    Column("estimated", "", lambda job: job.estimated, kind="export"),
)
job_list = ListPage(
    title="Jobs",
    noun="job",
    columns=COLUMNS,
    filters=JobFilters,
    select=listed_jobs,
    empty="Submit one: kubectl apply -f examples/single-gcd-sample.yaml",
    more=_freshness,
).view
