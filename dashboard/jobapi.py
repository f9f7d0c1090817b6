"""glue: a job's pods, usage and wait in the API. A composition root: joins the apps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.response import Response
from rest_framework.views import APIView

from dashboard.jobqueue import read_waiting
from dashboard.jobusage import read_held
from ipuhub.web.access import may_see_cost, scope_of
from jobs.selectors import find_job, jobs_with_uid
from jobs.states import NO_JOB
from usage.models import PodLifetime

if TYPE_CHECKING:
    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser
    from django.db.models import QuerySet
    from rest_framework.request import Request

    from jobs.models import JobRecord


class PodSerializer(serializers.ModelSerializer[PodLifetime]):
    """A pod of a job: whole numbers, IPUs in millionths; `estimated` ends are off by at most
    `uncertainty_seconds`."""

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
    """What a job's pods held until `until`, in exact whole numbers and in hours; the hours of its
    partitions stand apart and are no part of the pods'."""

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
        help_text="Of pods and partitions. Null without a price, with prices in two currencies, "
        "and for whoever sees no rates.",
    )
    currency = serializers.CharField(source="money.currency", allow_null=True)


class JobWaitingSerializer(serializers.Serializer[Any]):
    """Where a job stands that waits for IPUs, computed for this answer. Smaller jobs may pass
    larger ones, newer jobs included: `jobs_before` is no position."""

    waits = serializers.BooleanField(help_text="False: it waits for no IPUs; the others are null.")
    jobs_before = serializers.IntegerField(
        allow_null=True, help_text="Jobs of all namespaces that ask for IPUs before this one."
    )
    free = serializers.IntegerField(
        allow_null=True,
        help_text="Free IPUs of the whole fleet, not all of one block. Null: not known.",
    )
    free_as_of = serializers.DateTimeField(
        allow_null=True,
        help_text="When `free` was read, while the V-IPU Proxy does not answer; null: just now.",
    )
    problem = serializers.CharField(help_text="Why `free` is old or not known; empty: it is not.")


def _require_job(user: AbstractBaseUser | AnonymousUser, uid: str) -> JobRecord:
    job = jobs_with_uid(scope_of(user), uid).first()
    if job is None:
        raise Http404(NO_JOB)
    return job


@extend_schema_view(
    get=extend_schema(operation_id="jobs_pods", summary="A job's pods", tags=["jobs"])
)
class JobPods(ListAPIView[PodLifetime]):
    """The pods of a job, newest first, ended ones too."""

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
        summary="Where a waiting job stands",
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
