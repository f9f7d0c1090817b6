"""glue: rates: what an hour of a resource costs, from when to when."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import DateRangeField, RangeOperators
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Concat


def _one_value() -> Func:
    # A range of one number: GiST compares those without the extension that texts would need.
    key = Func(
        Concat(F("resource"), Value(" "), F("name"), output_field=models.TextField()),
        Value(0),
        function="hashtextextended",
    )
    return Func(key, key, Value("[]"), function="int8range")


class Rate(models.Model):
    """The price of one hour of `resource` from `valid_from` until the day before `valid_until`.

    `name` is an accelerator's or an instance type's and empty for other resources. Days are those
    of the report zone. Two rates of the same thing never overlap; one that ends on the day it
    begins never held. Rates are ended, never changed or deleted.
    """

    class Resource(models.TextChoices):
        """What has a price."""

        CPU = "cpu", "CPU core-hour"
        MEMORY = "memory", "GiB-hour of memory"
        GPU = "gpu", "accelerator-hour, any"
        ACCELERATOR = "accelerator", "accelerator-hour, by name"
        IPU = "ipu", "IPU-hour of a pod"
        PARTITION_IPU = "partition-ipu", "IPU-hour of a partition"
        INSTANCE = "instance", "pod-hour of an instance type"

    resource = models.CharField(max_length=16, choices=Resource.choices)
    name = models.TextField(default="", blank=True)
    price = models.DecimalField(max_digits=18, decimal_places=6)
    valid_from = models.DateField()
    valid_until = models.DateField(null=True, blank=True)
    created_by = models.TextField()
    created_at = models.DateTimeField()
    ended_by = models.TextField(default="", blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            ExclusionConstraint(
                name="rate_once_a_day",
                expressions=[
                    (_one_value(), RangeOperators.OVERLAPS),
                    (
                        Func(
                            F("valid_from"),
                            F("valid_until"),
                            function="daterange",
                            output_field=DateRangeField(),
                        ),
                        RangeOperators.OVERLAPS,
                    ),
                ],
            ),
            models.CheckConstraint(name="rate_not_negative", condition=Q(price__gte=0)),
            models.CheckConstraint(
                name="rate_ends_after_it_begins",
                condition=Q(valid_until=None) | Q(valid_until__gte=F("valid_from")),
            ),
            models.CheckConstraint(
                name="rate_named_where_needed",
                condition=Q(resource__in=["accelerator", "instance"]) ^ Q(name=""),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.resource} {self.name}".strip()
