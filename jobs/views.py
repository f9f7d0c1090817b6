"""glue: the list of jobs and its filters, which page, exports and API share."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final

import django_filters
from django.db.models.lookups import GreaterThan
from django.urls import reverse
from django.utils import timezone

from ipuhub.web.access import access_of
from ipuhub.web.columns import Column
from ipuhub.web.filters import AnyOfFilter, Filters, InstantFilter
from ipuhub.web.lists import Chip, ListPage
from ipuhub.web.readings import freshness
from jobs.ipujob.conditions import JobState, brief_message
from jobs.models import ENDED_AT, JobRecord
from jobs.selectors import (
    DELETED,
    ENDED,
    NAMED,
    SORTS,
    STATES,
    WATCH,
    listed_jobs,
    message_of,
    state_of,
)

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest


_SPANS: Final = {
    "24h": ("24 hours", dt.timedelta(hours=24)),
    "7d": ("7 days", dt.timedelta(days=7)),
    "30d": ("30 days", dt.timedelta(days=30)),
}


_RUNS: Final = frozenset({JobState.RUNNING.value, JobState.RESTARTING.value})


class JobFilters(Filters):
    """By namespace, group and user (exact), state, part of the name, time of the end, and day of
    creation."""

    sorts = SORTS
    suggested = ("name", *NAMED)

    namespace = django_filters.CharFilter(label="Namespace")
    name = django_filters.CharFilter(label="Name contains", method="has_in_name")
    status = django_filters.ChoiceFilter(
        label="State",
        choices=[(state, state) for state in STATES],
        empty_label="Any",
        method="in_state",
    )
    ended = django_filters.ChoiceFilter(
        label="Ended",
        choices=[(name, f"Last {words}") for name, (words, _) in _SPANS.items()],
        empty_label="Any",
        method="in_span",
    )
    group = AnyOfFilter(label="Group")
    user = AnyOfFilter(label="User")
    since = InstantFilter(field_name="created_at", lookup_expr="gte", label="Created from")
    until = InstantFilter(
        field_name="created_at", lookup_expr="lt", label="Created until", end=True
    )

    class Meta:
        model = JobRecord
        fields: tuple[str, ...] = ()

    def has_in_name(self, rows: QuerySet[JobRecord], _name: str, value: str) -> QuerySet[JobRecord]:
        """Names are in lower case; which of them match is read from the index of names alone."""
        found = JobRecord.objects.filter(name__contains=value.lower())
        return rows.filter(pk__in=found.values("pk"))

    def in_state(self, rows: QuerySet[JobRecord], _name: str, value: str) -> QuerySet[JobRecord]:
        """Jobs that were deleted before their end are Deleted, whatever they were then."""
        if value == DELETED:
            return rows.filter(deleted_at__isnull=False).exclude(status__in=ENDED)
        found = rows.filter(status=value)
        return found if value in ENDED else found.filter(deleted_at=None)

    def in_span(self, rows: QuerySet[JobRecord], _name: str, value: str) -> QuerySet[JobRecord]:
        """Jobs that ended, or were deleted before that, in a span of time up to now."""
        return rows.filter(GreaterThan(ENDED_AT, timezone.now() - _SPANS[value][1]))


def _chips(request: HttpRequest) -> list[Chip]:
    names = (request.user.get_username(), access_of(request.user).cluster_name)
    return [
        Chip("Waiting", {"status": JobState.PENDING.value, "ended": ""}),
        Chip("Running", {"status": JobState.RUNNING.value, "ended": ""}),
        Chip("Failed 24 h", {"status": JobState.FAILED.value, "ended": "24h"}),
        Chip("Mine", {"user": tuple(dict.fromkeys(name for name in names if name))}),
    ]


def _address(job: JobRecord) -> str:
    return reverse("jobs:detail", args=[job.uid])


def _message(job: JobRecord) -> str:
    return message_of(job, job.message)


def _brief_message(job: JobRecord) -> str:
    return message_of(job, brief_message(job.message, f"{job.namespace}/{job.name}"))


def _duration(job: Any) -> int | None:
    """Return the whole seconds from the start of a job to its end; None without either."""
    return None if job.seconds is None else max(0, job.seconds)


def _duration_so_far(job: Any) -> int | dt.datetime | None:
    """Return the duration, or since when the job runs: a page counts on from there."""
    runs = job.ended_at is None and job.status in _RUNS
    return job.started_at if runs else _duration(job)


def _freshness(_request: HttpRequest) -> dict[str, Any]:
    return {"freshness": freshness(WATCH, timezone.now())}


COLUMNS = (
    Column("state", "State", state_of, kind="badge", phone="1.1"),
    Column("name", "Job", lambda job: job.name, link=_address, sort="name", phone="1.2"),
    Column("namespace", "Namespace", lambda job: job.namespace),
    Column("group", "Group", lambda job: job.group, room=1600),
    Column("user", "User", lambda job: job.user, sort="user", phone="2.3"),
    Column("ipus", "IPUs", lambda job: job.ipus, kind="number", sort="ipus", phone="1.3"),
    Column("workers", "Workers", lambda job: job.workers, kind="number", room=1600),
    Column(
        "restart_count",
        "Restarts",
        lambda job: job.restart_count,
        kind="number",
        rendered=lambda job: job.restart_count or None,
        sparse=True,
        room=1200,
    ),
    Column(
        "created_at", "Created", lambda job: job.created_at, kind="ago", sort="created", phone="2.1"
    ),
    Column("ended_at", "Ended", lambda job: job.ended_at, kind="ago", sort="ended", room=1200),
    Column(
        "duration_seconds",
        "Duration",
        _duration,
        kind="duration",
        rendered=_duration_so_far,
        sort="duration",
        room=1200,
    ),
    Column(
        "message", "Message", _message, kind="brief", rendered=_brief_message, phone="2.2", room=992
    ),
    Column("uid", "", lambda job: job.uid, kind="export"),
    Column("instances", "", lambda job: job.instances, kind="export"),
    Column("user_verified", "", lambda job: job.user_verified, kind="export"),
    Column("status", "", lambda job: job.status, kind="export"),
    Column("reason", "", lambda job: job.reason, kind="export"),
    Column("started_at", "", lambda job: job.started_at, kind="export"),
    Column("completed_at", "", lambda job: job.completed_at, kind="export"),
    Column("deleted_at", "", lambda job: job.deleted_at, kind="export"),
    Column("estimated", "", lambda job: job.estimated, kind="export"),
    Column("updated_at", "", lambda job: job.updated_at, kind="export"),
)
JOBS = ListPage(
    title="Jobs",
    noun="job",
    columns=COLUMNS,
    filters=JobFilters,
    select=listed_jobs,
    template="jobs/list.html",
    empty="Submit a job: `kubectl apply -f examples/single-gcd-sample.yaml`",
    more=_freshness,
    chips=_chips,
    suggestions="jobs:suggestions",
)
"""`dashboard/job/list.py` adds costs and suggestions."""
