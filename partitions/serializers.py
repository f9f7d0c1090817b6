"""glue: the shapes of partitions, statistics, capacity and queries in the API."""

from __future__ import annotations

from typing import Any, ClassVar

from rest_framework import serializers

from partitions.forms import LARGEST, MESSAGES
from partitions.models import PartitionLifetime


class PartitionSerializer(serializers.ModelSerializer[PartitionLifetime]):
    """One holding of a partition by a job: reserved to released (null: held)."""

    class Meta:
        model = PartitionLifetime
        fields: ClassVar = [
            "key",
            "partition",
            "job_uid",
            "namespace",
            "job_name",
            "instance",
            "attempt",
            "controller",
            "size",
            "phase",
            "reason",
            "message",
            "group",
            "user",
            "reserved_at",
            "active_at",
            "released_at",
            "estimated",
            "uncertainty_seconds",
        ]


class StatRowSerializer(serializers.Serializer[Any]):
    """IPUs held by jobs of a namespace, and IPUs free in the whole fleet."""

    namespace = serializers.CharField()
    used = serializers.IntegerField()
    available = serializers.IntegerField()


class StatsSerializer(serializers.Serializer[Any]):
    """The proxy's statistics as of `read_at`; `problem` says why they are not of now."""

    read_at = serializers.DateTimeField(allow_null=True)
    problem = serializers.CharField(allow_blank=True)
    available = serializers.IntegerField(allow_null=True)
    total = StatRowSerializer(allow_null=True, help_text="Administrators only.")
    namespaces = StatRowSerializer(many=True)


class CapacitySerializer(serializers.Serializer[Any]):
    """The IPUs of one V-IPU controller since `at`; total = used + free + cordoned + faulty."""

    controller = serializers.CharField()
    at = serializers.DateTimeField()
    total = serializers.IntegerField()
    used = serializers.IntegerField()
    free = serializers.IntegerField()
    cordoned = serializers.IntegerField()
    faulty = serializers.IntegerField()
    reachable = serializers.BooleanField()


class CapacityListSerializer(serializers.Serializer[Any]):
    """All controllers that were ever recorded, by name."""

    results = CapacitySerializer(many=True)


class QuerySerializer(serializers.Serializer[Any]):
    """The question: how many partitions of `size` IPUs fit now?"""

    size = serializers.IntegerField(min_value=1, max_value=LARGEST, error_messages=MESSAGES)


class FitSerializer(serializers.Serializer[Any]):
    """The answer; `message` says why none can; `available`: some V-IPU controller answered."""

    size = serializers.IntegerField()
    count = serializers.IntegerField()
    message = serializers.CharField(allow_blank=True)
    available = serializers.BooleanField()
