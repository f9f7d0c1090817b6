"""glue: serializers of usage."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from rest_framework import serializers

from ipuhub.models import RecordFault, WatchGap
from usage.models import PodLifetime
from usage.pods.rows import COLUMNS


class ExactSerializer(serializers.Serializer[object]):
    """The sums as whole numbers: amount x seconds."""

    micro_ipu_seconds = serializers.IntegerField()
    partition_ipu_seconds = serializers.IntegerField()
    millicore_seconds = serializers.IntegerField()
    byte_seconds = serializers.IntegerField()
    gpu_seconds = serializers.IntegerField()
    seconds = serializers.IntegerField()


class SumsSerializer(serializers.Serializer[object]):
    """Usage. Hours have five decimals. Hours of pods and of partitions overlap: do not add them.
    `key`: the value of each dimension in `by`."""

    key = serializers.DictField(child=serializers.CharField())
    pods = serializers.IntegerField()
    partitions = serializers.IntegerField()
    ipu_hours = serializers.CharField()
    partition_ipu_hours = serializers.CharField()
    cpu_core_hours = serializers.CharField()
    memory_gib_hours = serializers.CharField()
    gpu_hours = serializers.CharField()
    pod_hours = serializers.CharField()
    estimated_percent = serializers.CharField()
    unverified_percent = serializers.CharField()
    cost = serializers.CharField(
        allow_null=True,
        help_text="Rounded once, half to even. Null if no rate applies or the user may not see "
        "rates.",
    )
    currency = serializers.CharField(allow_null=True)
    exact = ExactSerializer()


class StretchSerializer(serializers.Serializer[object]):
    """A part of a range."""

    begin = serializers.DateTimeField()
    end = serializers.DateTimeField()


class PricingSerializer(serializers.Serializer[object]):
    """Prices of the range. Amounts in several currencies are not added: then no row has a cost;
    request each part separately. `unpriced`: times without any rate. `lost_before`: accelerators
    are priced by name, but the pods before that day were purged before totals by name existed, so
    no row has a cost."""

    currencies = serializers.ListField(child=serializers.CharField())
    lost_before = serializers.DateField(allow_null=True)
    unpriced = StretchSerializer(many=True)


class SummarySerializer(serializers.Serializer[object]):
    """Usage of a range; `until`: how much of it had passed. Running pods count up to there."""

    begin = serializers.DateTimeField()
    end = serializers.DateTimeField()
    until = serializers.DateTimeField()
    by = serializers.ListField(child=serializers.CharField())
    pricing = PricingSerializer(
        allow_null=True, help_text="Null if the user may not see rates and reports."
    )
    next = serializers.URLField(allow_null=True, help_text="URL of the next page.")
    count = serializers.IntegerField(help_text="Number of results on all pages.")
    total = SumsSerializer()
    results = SumsSerializer(many=True)


class StepSerializer(SumsSerializer):
    """Usage in one step of a series."""

    begin = serializers.DateTimeField()
    end = serializers.DateTimeField()


class SeriesSerializer(serializers.Serializer[object]):
    """Usage of a range in steps; steps and values without usage are left out."""

    begin = serializers.DateTimeField()
    end = serializers.DateTimeField()
    until = serializers.DateTimeField()
    by = serializers.ListField(child=serializers.CharField())
    pricing = PricingSerializer(
        allow_null=True, help_text="Null if the user may not see rates and reports."
    )
    step = serializers.CharField()
    next = serializers.URLField(allow_null=True, help_text="URL of the next page.")
    count = serializers.IntegerField(help_text="Number of results on all pages.")
    results = StepSerializer(many=True)


class LineCostSerializer(serializers.Serializer[Any]):
    """Mixed into rows that have a `cost`."""

    cost = serializers.CharField(
        source="cost.amount",
        read_only=True,
        allow_null=True,
        help_text="Cost in the requested range, or up to now without a range, with five "
        "decimals as in the details of a report. Null if no rate applies or the user may "
        "not see rates.",
    )
    cost_micros = serializers.IntegerField(
        source="cost.cost_micros",
        read_only=True,
        allow_null=True,
        help_text="The same amount in millionths of the currency.",
    )
    currency = serializers.CharField(source="cost.currency", read_only=True, allow_null=True)


COST_FIELDS: Final = ("cost", "cost_micros", "currency")


class LifetimeSerializer(LineCostSerializer, serializers.ModelSerializer[PodLifetime]):
    """One pod, from PodScheduled to the end of its last container. `estimated`: the end may be off
    by up to `uncertainty_seconds`; `claim`: source of the pod's description; `accelerators`: by
    resource name; `labels`: the labels that USAGE_LABELS named when the pod was first seen."""

    accelerators = serializers.DictField(child=serializers.IntegerField(), read_only=True)
    labels = serializers.DictField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = PodLifetime
        fields: ClassVar = [*COLUMNS, *COST_FIELDS]


class FaultSerializer(serializers.ModelSerializer[RecordFault]):
    """An object that could not be recorded exactly as it was."""

    class Meta:
        model = RecordFault
        fields: ClassVar = [
            "watch",
            "uid",
            "namespace",
            "name",
            "code",
            "message",
            "excerpt",
            "count",
            "first_at",
            "last_at",
        ]


class GapSerializer(serializers.ModelSerializer[WatchGap]):
    """A time in which a watch saw nothing. `shows_loss`: the list after the gap differs from the
    objects recorded before it; otherwise figures count as complete."""

    class Meta:
        model = WatchGap
        fields: ClassVar = ["watch", "began_at", "ended_at", "cause", "shows_loss"]
