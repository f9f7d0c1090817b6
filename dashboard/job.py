"""glue: the page of one job. A composition root: joins jobs, pods and partitions.

The page stays after the job was deleted, and says so.

The tables of a job's page, declared once for the page and their CSV and JSON twins.

A job's pods, usage and wait in the API. A composition root: joins the apps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import yaml
from django.http import Http404
from django.shortcuts import render
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.response import Response
from rest_framework.views import APIView

from dashboard.jobqueue import read_waiting
from dashboard.jobusage import read_held
from dashboard.timeline import draw_timeline, timeline_rows
from ipuhub.web.access import may_see_cost, scope_of
from ipuhub.web.exports import FORMATS, export
from ipuhub.web.lists import Column, colour_of, make_cells
from ipuhub.web.readings import judge
from ipuhub.web.requests import fragment_etag, not_modified, signed_in, tagged, wants_fragment
from jobs.selectors import NO_JOB, find_job, jobs_with_uid, state_of
from usage.models import PodLifetime

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser
    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from dashboard.jobusage import Held
    from ipuhub.web.lists import Cell
    from jobs.models import JobRecord


@dataclass(frozen=True, slots=True)
class Table:
    """A table with all its rows; `empty` is said where there is none."""

    key: str
    title: str
    empty: str
    columns: Sequence[Column]
    rows: Sequence[Any]

    @property
    def shown_columns(self) -> list[Column]:
        """The columns of the page."""
        return [column for column in self.columns if column.kind != "export"]

    @property
    def cells(self) -> list[list[Cell]]:
        """What the page shows."""
        return [make_cells(self.shown_columns, row) for row in self.rows]


def _instant(text: str | None) -> datetime | None:
    return parse_datetime(text) if text else None


CONDITIONS = (
    Column("type", "Condition", lambda row: row.get("type")),
    Column("status", "Status", lambda row: row.get("status")),
    Column("reason", "Reason", lambda row: row.get("reason"), kind="code"),
    Column("message", "Message", lambda row: row.get("message"), kind="note"),
    Column("at", "Since", lambda row: _instant(row.get("lastTransitionTime")), kind="second"),
)
ATTEMPTS = (
    Column("instance", "Instance", lambda row: row.instance),
    Column("attempt", "Attempt", lambda row: row.attempt + 1),
    Column("outcome", "Outcome", lambda row: row.outcome, kind="badge"),
    Column("reason", "Reason", lambda row: row.reason, kind="code"),
    Column("exit_code", "Exit code", lambda row: row.exit_code, kind="number"),
    Column("began_at", "Began", lambda row: row.began_at, kind="second"),
    Column("ended_at", "Ended", lambda row: row.ended_at, kind="second"),
    Column("message", "How it failed", lambda row: row.message, kind="note"),
    Column("log", "Last log lines", lambda row: row.log, kind="log"),
)
TRANSITIONS = (
    Column("at", "At", lambda row: row.at, kind="second"),
    Column("state", "State", lambda row: row.state, kind="badge"),
    Column("reason", "Reason", lambda row: row.reason, kind="code"),
    Column("message", "Message", lambda row: row.message, kind="note"),
)
PODS = (
    Column("pod_name", "Pod", lambda row: row.pod_name),
    Column("role", "Role", lambda row: row.role),
    Column("attempt", "Attempt", lambda row: (row.attempt or 0) + 1, kind="number"),
    Column("phase", "Phase", lambda row: row.phase, kind="badge"),
    Column("reason", "Reason", lambda row: row.reason, kind="code"),
    Column("exit_code", "Exit code", lambda row: row.exit_code, kind="number"),
    Column("node", "Node", lambda row: row.node),
    Column("scheduled_at", "Scheduled", lambda row: row.scheduled_at, kind="second"),
    Column("started_at", "Started", lambda row: row.started_at, kind="second"),
    Column("finished_at", "Ended", lambda row: row.finished_at, kind="second"),
    Column("uid", "", lambda row: row.uid, kind="export"),
    Column("created_at", "", lambda row: row.created_at, kind="export"),
    Column("micro_ipus", "", lambda row: row.micro_ipus, kind="export"),
    Column("cpu_millicores", "", lambda row: row.cpu_millicores, kind="export"),
    Column("memory_bytes", "", lambda row: row.memory_bytes, kind="export"),
    Column("estimated", "", lambda row: row.estimated, kind="export"),
    Column("uncertainty_seconds", "", lambda row: row.uncertainty_seconds, kind="export"),
)
PARTITIONS = (
    Column("partition", "Partition", lambda row: row.partition, kind="code"),
    Column("size", "IPUs", lambda row: row.size, kind="number"),
    Column("phase", "Phase", lambda row: row.phase, kind="badge"),
    Column("controller", "Controller", lambda row: row.controller),
    Column("reserved_at", "Reserved", lambda row: row.reserved_at, kind="second"),
    Column("active_at", "Active", lambda row: row.active_at, kind="second"),
    Column("released_at", "Released", lambda row: row.released_at, kind="second"),
    Column("message", "", lambda row: row.message, kind="export"),
    Column("estimated", "", lambda row: row.estimated, kind="export"),
)


def job_tables(job: JobRecord, held: Held) -> list[Table]:
    """Return the tables in the order of the page."""
    attempts = sorted(job.past.attempts, key=lambda row: (row.attempt, row.instance))
    transitions = sorted(job.past.transitions, key=lambda row: (row.at, row.pk), reverse=True)
    conditions = [row for row in job.conditions if isinstance(row, dict)]
    return [
        Table("pods", "Pods", "No pods recorded.", PODS, held.pods),
        Table("attempts", "Attempts", "No attempts recorded.", ATTEMPTS, attempts),
        Table("transitions", "History", "No changes recorded.", TRANSITIONS, transitions),
        Table("conditions", "Conditions", "No conditions recorded.", CONDITIONS, conditions),
        Table("partitions", "Partitions", "No partitions recorded.", PARTITIONS, held.partitions),
    ]


GROWS_EACH_SECONDS = 15  # how often bars and sums of a running job are drawn anew


def require_job(request: HttpRequest, uid: str) -> JobRecord:
    """Return the job; a foreign one is as unknown as none. Raises Http404 with a sentence."""
    job = find_job(scope_of(request.user), uid)
    if job is None:
        raise Http404(NO_JOB)
    return job


@require_safe
@signed_in
def job_page(request: HttpRequest, uid: str) -> HttpResponseBase:
    """Show one job, the changing part of its page, or the twin of one of its tables."""
    now = timezone.now()
    job = require_job(request, uid)
    if kind := request.GET.get("format"):
        tables = job_tables(job, read_held(job, now, limit=None))
        return _export(kind, request.GET.get("table", "pods"), tables, job)
    held = read_held(job, now, costed=may_see_cost(request.user))
    tables = job_tables(job, held)
    fresh = judge(job.past.watched_at, now)
    # What grows is not drawn anew with each second; what has ended changes with rates alone.
    grows = int(now.timestamp() // GROWS_EACH_SECONDS) if _goes_on(held) else str(held.usage.costs)
    waiting = read_waiting(job, scope_of(request.user), now)
    cells = [table.cells for table in tables]
    tag = fragment_etag(request, job.updated_at, cells, fresh, grows, waiting)
    if same := not_modified(request, tag):
        return same
    context = _context(request, job, held, now)
    context |= {"tables": tables, "freshness": fresh, "etag": tag, "waiting": waiting}
    template = "jobs/_detail.html" if wants_fragment(request) else "jobs/detail.html"
    return tagged(render(request, template, context), tag)


def _goes_on(held: Held) -> bool:
    return any(pod.scheduled_at and not pod.finished_at for pod in held.pods) or any(
        not partition.released_at for partition in held.partitions
    )


def _context(request: HttpRequest, job: JobRecord, held: Held, now: datetime) -> dict[str, Any]:
    state = state_of(job)
    return {
        "job": job,
        "state": state,
        "colour": colour_of(state),
        "ended_at": job.completed_at or job.deleted_at,
        "held": held,
        "hidden": {
            "pods": held.usage.pods - len(held.pods),
            "partitions": held.partition_count - len(held.partitions),
        },
        "here": request.get_full_path(),
        "timeline": draw_timeline(timeline_rows(held), now),
        "spec": yaml.safe_dump(job.spec, allow_unicode=True, width=100),
        "now": now,
    }


def _export(kind: str, key: str, tables: Sequence[Table], job: JobRecord) -> HttpResponseBase:
    table = next((table for table in tables if table.key == key), None)
    if table is None or kind not in FORMATS:
        known = ", ".join(table.key for table in tables)
        raise Http404(f"Tables of a job are {known}, and their forms {' and '.join(FORMATS)}.")
    return export(kind, table.columns, table.rows, f"{job.name}-{key}")


class PodSerializer(serializers.ModelSerializer[PodLifetime]):
    """A pod of a job, in whole numbers; IPUs in millionths. `estimated`: the end may be off by up
    to `uncertainty_seconds`."""

    class Meta:
        model = PodLifetime
        fields: ClassVar = [
            "uid",
            "namespace",
            "pod_name",
            "role",
            "instance",
            "attempt",
            "phase",
            "reason",
            "exit_code",
            "node",
            "partition",
            "micro_ipus",
            "cpu_millicores",
            "memory_bytes",
            "gpus",
            "created_at",
            "scheduled_at",
            "started_at",
            "finished_at",
            "estimated",
            "uncertainty_seconds",
        ]


class JobUsageSerializer(serializers.Serializer[Any]):
    """The usage of a job's pods up to `until`, in exact whole numbers and in hours. Hours of
    partitions are separate and not included in the hours of pods."""

    until = serializers.DateTimeField()
    pods = serializers.IntegerField()
    ipu_microseconds = serializers.IntegerField(help_text="Micro-IPUs x seconds.")
    cpu_millicore_seconds = serializers.IntegerField()
    memory_byte_seconds = serializers.IntegerField()
    partition_ipu_seconds = serializers.IntegerField()
    ipu_hours = serializers.FloatField()
    cpu_hours = serializers.FloatField()
    memory_gib_hours = serializers.FloatField()
    partition_ipu_hours = serializers.FloatField()
    cost = serializers.CharField(
        source="money.amount",
        allow_null=True,
        help_text="Cost of pods and partitions. Null if no rate applies, if rates have "
        "different currencies, or if the user may not see rates.",
    )
    currency = serializers.CharField(source="money.currency", allow_null=True)


class JobWaitingSerializer(serializers.Serializer[Any]):
    """State of a job that waits for IPUs, computed for this response. A smaller job can start
    before a larger one, even if it is newer, so `jobs_before` is not a position in a queue."""

    waits = serializers.BooleanField(
        help_text="False: the job does not wait for IPUs, and the other fields are null."
    )
    jobs_before = serializers.IntegerField(
        allow_null=True,
        help_text="Older waiting jobs of all namespaces, which are tried before this job.",
    )
    free = serializers.IntegerField(
        allow_null=True,
        help_text="Free IPUs of the whole fleet, not necessarily one block. Null: unknown.",
    )
    free_as_of = serializers.DateTimeField(
        allow_null=True,
        help_text="When `free` was read, if the V-IPU Proxy does not answer now; null: just now.",
    )
    problem = serializers.CharField(
        help_text="Why `free` is old or unknown; empty if `free` is current."
    )


def _require_job(user: AbstractBaseUser | AnonymousUser, uid: str) -> JobRecord:
    job = jobs_with_uid(scope_of(user), uid).first()
    if job is None:
        raise Http404(NO_JOB)
    return job


@extend_schema_view(
    get=extend_schema(operation_id="jobs_pods", summary="A job's pods", tags=["jobs"])
)
class JobPods(ListAPIView[PodLifetime]):
    """The pods of a job, including finished pods, newest first."""

    queryset = PodLifetime.objects.none()
    serializer_class = PodSerializer
    filter_backends = ()
    ordering = ("created_at", "id")

    def get_queryset(self) -> QuerySet[PodLifetime]:
        """Return the pods in the job's own namespace. Raises Http404."""
        job = _require_job(self.request.user, self.kwargs["uid"])
        return PodLifetime.objects.filter(job_uid=job.uid, namespace=job.namespace)


@extend_schema_view(
    get=extend_schema(
        operation_id="jobs_usage",
        summary="A job's usage so far",
        tags=["jobs"],
        responses=JobUsageSerializer,
    )
)
class JobUsageSoFar(APIView):
    """What a job's pods and partitions held so far."""

    def get(self, request: Request, uid: str) -> Response:
        """Return it. Raises Http404."""
        job = _require_job(request.user, uid)
        costed = may_see_cost(request.user)
        usage = read_held(job, timezone.now(), limit=1, costed=costed).usage
        return Response(JobUsageSerializer(usage).data)


@extend_schema_view(
    get=extend_schema(
        operation_id="jobs_waiting",
        summary="State of a waiting job",
        tags=["jobs"],
        responses=JobWaitingSerializer,
    )
)
class JobWaiting(APIView):
    """How many jobs ask for IPUs before this one, and how many IPUs are free."""

    def get(self, request: Request, uid: str) -> Response:
        """Return it. Raises Http404."""
        scope = scope_of(request.user)
        job = find_job(scope, uid)
        if job is None:
            raise Http404(NO_JOB)
        found = read_waiting(job, scope, timezone.now())
        body: dict[str, Any] = {
            "waits": found is not None,
            "jobs_before": found.before if found else None,
            "free": found.free if found else None,
            "free_as_of": found.free_as_of if found else None,
            "problem": found.problem if found else "",
        }
        return Response(JobWaitingSerializer(body).data)
