"""glue: jobs in the API; a job's pods and usage are in `dashboard/job/`.

`dashboard/apiurls.py` adds `/jobs` itself, which also creates jobs and has costs, `/pods` and the
other paths that join apps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.urls import path
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import RetrieveAPIView

from ipuhub.api.views import FileList, PlainView
from ipuhub.web.access import scope_of
from jobs.models import JobAttempt, JobRecord, JobTransition
from jobs.selectors import STATES, find_job, listed_jobs, state_of
from jobs.views import COLUMNS, JobFilters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from django.urls import URLPattern, URLResolver

    from ipuhub.web.columns import Column

_LISTED = [
    "uid",
    "namespace",
    "name",
    "state",
    "status",
    "reason",
    "message",
    "group",
    "user",
    "user_verified",
    "ipus",
    "instances",
    "workers",
    "restart_count",
    "created_at",
    "started_at",
    "completed_at",
    "deleted_at",
    "estimated",
    "updated_at",
]


class JobSerializer(serializers.ModelSerializer[JobRecord]):
    """A job in a list. `state` is its last status, or Deleted if it was deleted before it ended;
    `estimated`: `deleted_at` is when the recorder noticed the deletion."""

    state = serializers.SerializerMethodField()

    class Meta:
        model = JobRecord
        fields = _LISTED
        read_only_fields = _LISTED

    @extend_schema_field({"type": "string", "enum": list(STATES)})
    def get_state(self, job: JobRecord) -> str:
        """Return the state that the pages show."""
        return state_of(job)


class AttemptSerializer(serializers.ModelSerializer[JobAttempt]):
    """One attempt of an instance; attempts count from 0. `message` says how it failed, `log` has
    the last lines of the failed container."""

    class Meta:
        model = JobAttempt
        fields: ClassVar = [
            "instance",
            "attempt",
            "outcome",
            "reason",
            "exit_code",
            "message",
            "log",
            "began_at",
            "ended_at",
        ]


class TransitionSerializer(serializers.ModelSerializer[JobTransition]):
    """A change of a job's state."""

    class Meta:
        model = JobTransition
        fields: ClassVar = ["at", "state", "reason", "message"]


class JobRunSerializer(serializers.Serializer[Any]):
    """Another job of the same name in the same namespace, made later or earlier."""

    uid = serializers.CharField()
    state = serializers.ChoiceField(choices=STATES)
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    duration_seconds = serializers.IntegerField(source="seconds", allow_null=True)
    is_later = serializers.BooleanField()


class JobDetailSerializer(JobSerializer):
    """A job with all recorded details. `runs`: up to three jobs of its name before it and three
    after it, the newest first."""

    spec = serializers.DictField(read_only=True)
    conditions = serializers.ListField(child=serializers.DictField(), read_only=True)
    labels = serializers.DictField(child=serializers.CharField(), read_only=True)
    partitions = serializers.ListField(child=serializers.DictField(), read_only=True)
    attempts = AttemptSerializer(source="past.attempts", many=True, read_only=True)
    transitions = TransitionSerializer(source="past.transitions", many=True, read_only=True)
    runs = JobRunSerializer(source="past.runs", many=True, read_only=True)

    class Meta(JobSerializer.Meta):
        fields = [  # noqa: RUF012
            *_LISTED,
            "labels",
            "spec",
            "conditions",
            "partitions",
            "attempts",
            "transitions",
            "runs",
        ]


@extend_schema_view(
    get=extend_schema(
        operation_id="jobs_list", summary="Jobs, newest first or by `sort`", tags=["jobs"]
    )
)
class JobList(FileList[JobRecord]):
    """All jobs that the caller may see, including deleted jobs, newest first or by `sort`."""

    queryset = JobRecord.objects.none()
    serializer_class = JobSerializer
    filterset_class = JobFilters
    ordering = ("created_at", "id")
    columns: ClassVar[Sequence[Column]] = COLUMNS
    file_name = "jobs"

    def get_queryset(self) -> QuerySet[JobRecord]:
        """Return the jobs of the caller's namespaces."""
        return listed_jobs(scope_of(self.request.user))


@extend_schema_view(get=extend_schema(operation_id="jobs_read", summary="One job", tags=["jobs"]))
class JobDetail(PlainView, RetrieveAPIView[JobRecord]):
    """One job by its UID, with attempts and transitions. Deleted jobs stay available."""

    queryset = JobRecord.objects.none()
    serializer_class = JobDetailSerializer
    lookup_field = "uid"
    filter_backends = ()

    def get_object(self) -> JobRecord:
        """Return it. Raises Http404 where there is none, or none that the caller may see."""
        return find_job(scope_of(self.request.user), self.kwargs["uid"])


app_name = "jobs-api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("jobs/<str:uid>", JobDetail.as_view(), name="detail"),
]
