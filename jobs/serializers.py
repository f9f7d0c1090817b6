"""glue: the shape of jobs in the API."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.models import JobAttempt, JobRecord, JobTransition
from jobs.states import STATES, state_of

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
    """A job in a list. `state` is its last status, or Deleted if it was deleted before its end;
    `estimated`: `deleted_at` is when it was found missing."""

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
    """One attempt of one instance; attempts count from 0. `message` says how it failed, `log` has
    the last lines of the container that did."""

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


class JobDetailSerializer(JobSerializer):
    """A job with all that is kept of it."""

    spec = serializers.DictField(read_only=True)
    conditions = serializers.ListField(child=serializers.DictField(), read_only=True)
    labels = serializers.DictField(child=serializers.CharField(), read_only=True)
    partitions = serializers.ListField(child=serializers.DictField(), read_only=True)
    attempts = AttemptSerializer(source="past.attempts", many=True, read_only=True)
    transitions = TransitionSerializer(source="past.transitions", many=True, read_only=True)

    class Meta(JobSerializer.Meta):
        fields = [*_LISTED, "labels", "spec", "conditions", "partitions", "attempts", "transitions"]  # noqa: RUF012
