"""glue: a job's pods, Kubernetes Events, manifests, usage and wait in the API. A composition root:
joins the apps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.response import Response

from dashboard.job.logs import require_own_job
from dashboard.job.manifests import difference_of, manifests_of
from dashboard.job.queue import read_place
from dashboard.job.usage import read_held
from dashboard.queue.lines import WaitingJobSerializer, record_of
from ipuhub.api.views import FileList, LiveView, PlainView, without
from ipuhub.web.access import access_of, may_see_cost, scope_of
from ipuhub.web.columns import file_columns
from ipuhub.web.pollcache import known_by_rows, note_live_data, rows_now
from ipuhub.web.requests import note_as_of
from jobs.models import JobEvent
from jobs.selectors import find_job
from usage.models import PodLifetime
from usage.time.months import usage_zone
from usage.time.windows import local_day

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request


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


POD_COLUMNS: Final = file_columns(PodSerializer.Meta.fields)


class EventSerializer(serializers.ModelSerializer[JobEvent]):
    """A Kubernetes Event of a job, or of its pod `pod` (empty: of the job itself). It happened
    `count` times from `first_at` to `last_at`."""

    type = serializers.CharField(help_text="`Normal` or `Warning`.")

    class Meta:
        model = JobEvent
        fields: ClassVar = [
            "uid",
            "pod",
            "type",
            "reason",
            "message",
            "count",
            "first_at",
            "last_at",
        ]


EVENT_COLUMNS: Final = file_columns(EventSerializer.Meta.fields)


class ManifestsSerializer(serializers.Serializer[Any]):
    """A job as it was applied and as it runs. A job that only an earlier release recorded has its
    recorded spec in both."""

    applied = serializers.DictField(help_text="The manifest that was applied last.")
    applied_by = serializers.CharField(
        help_text="What applied it, such as `kubectl apply`. Empty: the job as first seen."
    )
    running = serializers.DictField(help_text="The manifest in effect, with its defaults.")
    difference = serializers.ListField(
        child=serializers.CharField(),
        help_text="Lines of a diff from the applied spec to the running spec, in YAML.",
    )
    waits = serializers.CharField(
        help_text="Why an edit is not in effect yet. Empty: no edit waits."
    )


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
    queue_length = serializers.IntegerField(
        allow_null=True, help_text="Jobs in the order of service."
    )
    line = WaitingJobSerializer(
        allow_null=True,
        help_text="Its line of the queue. Null: the V-IPU Proxy does not know of the job yet.",
    )
    free = serializers.IntegerField(
        allow_null=True,
        help_text="Free IPUs of the whole fleet, not necessarily one block. Null: unknown.",
    )
    largest_free = serializers.IntegerField(
        allow_null=True, help_text="IPUs of the largest free block. Null: unknown."
    )
    free_as_of = serializers.DateTimeField(
        allow_null=True,
        help_text="When `free` was read, if the V-IPU Proxy or a V-IPU controller does not answer "
        "now; null: just now.",
    )
    problem = serializers.CharField(
        help_text="Why `free` is old or unknown; empty if `free` is current."
    )


@extend_schema_view(
    get=extend_schema(operation_id="jobs_pods", summary="A job's pods", tags=["jobs"])
)
class JobPods(FileList[PodLifetime]):
    """The pods of a job, including finished pods, newest first."""

    queryset = PodLifetime.objects.none()
    serializer_class = PodSerializer
    ordering = ("created_at", "id")
    columns = POD_COLUMNS
    file_name = "pods"

    def get_queryset(self) -> QuerySet[PodLifetime]:
        """Return the pods in the job's own namespace. Raises Http404."""
        job = require_own_job(self.request.user, self.kwargs["uid"])
        return PodLifetime.objects.filter(job_uid=job.uid, namespace=job.namespace)


@extend_schema_view(
    get=extend_schema(
        operation_id="jobs_events", summary="A job's Kubernetes Events", tags=["jobs"]
    )
)
class JobEvents(FileList[JobEvent]):
    """The Kubernetes Events of a job and its pods, newest first. They stay after Kubernetes
    deletes them; a bounded number per job is kept."""

    queryset = JobEvent.objects.none()
    serializer_class = EventSerializer
    ordering = ("last_at", "id")
    columns = EVENT_COLUMNS
    file_name = "events"

    def get_queryset(self) -> QuerySet[JobEvent]:
        """Return the job's events. Raises Http404."""
        return JobEvent.objects.filter(job=require_own_job(self.request.user, self.kwargs["uid"]))


@extend_schema_view(
    get=extend_schema(
        operation_id="jobs_manifest",
        summary="A job's applied and running manifest",
        tags=["jobs"],
        responses=ManifestsSerializer,
    )
)
class JobManifest(PlainView):
    """The manifest of a job as it was applied, as it runs, and the difference."""

    def get(self, request: Request, uid: str) -> Response:
        """Return them. Raises Http404."""
        found = manifests_of(find_job(scope_of(request.user), uid, manifests=True))
        body: dict[str, Any] = {
            "applied": found.applied,
            "applied_by": found.applied_by,
            "running": found.running,
            "difference": difference_of(found),
            "waits": found.waits,
        }
        return Response(ManifestsSerializer(body).data)


@extend_schema_view(
    get=extend_schema(
        operation_id="jobs_usage",
        summary="A job's usage so far",
        tags=["jobs"],
        responses=JobUsageSerializer,
    )
)
class JobUsageSoFar(LiveView):
    """The amounts that a job's pods and partitions held so far."""

    def get(self, request: Request, uid: str) -> HttpResponseBase:
        """Return it. Raises Http404."""
        own, now = request._request, timezone.now()  # noqa: SLF001  # DRF hides Django's
        # A price that begins later may bring a currency that nothing of the job costs.
        values = (access_of(request.user), local_day(now, usage_zone()))
        if same := known_by_rows(own, now, rows_now(), *values):
            note_as_of(own, now)
            return same
        job = require_own_job(request.user, uid)
        costed = may_see_cost(request.user, job.namespace)
        usage = read_held(job, now, limit=1, costed=costed).usage
        if not usage.is_over:
            note_live_data(own)
        data = JobUsageSerializer(usage).data
        return self.answer(request, data, without(data, "until"), usage.until)


@extend_schema_view(
    get=extend_schema(
        operation_id="jobs_waiting",
        summary="State of a waiting job",
        tags=["jobs"],
        responses=JobWaitingSerializer,
    )
)
class JobWaiting(PlainView):
    """The number of jobs that ask for IPUs before this job, and of free IPUs."""

    def get(self, request: Request, uid: str) -> Response:
        """Return it. Raises Http404."""
        scope = scope_of(request.user)
        found = read_place(find_job(scope, uid), scope, timezone.now())
        body: dict[str, Any] = {
            "waits": found is not None,
            "jobs_before": found.before if found else None,
            "queue_length": found.queue if found else None,
            "line": record_of(found.line) if found and found.line else None,
            "free": found.free if found else None,
            "largest_free": found.largest_free if found else None,
            "free_as_of": found.free_as_of if found else None,
            "problem": found.problem if found else "",
        }
        return Response(JobWaitingSerializer(body).data)
