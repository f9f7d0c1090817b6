"""glue: what pods held of each accelerator, by its name, beside the sums of `usage.models.sums`.

Those count accelerators together; a price may be of one by its name.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from usage.models.sums import KIND_KEY, POD_KEY, USER_KEY


class AcceleratorSums(models.Model):
    """Accelerators of one name x seconds, a whole number, of the pods of some sum."""

    namespace = models.TextField()
    group = models.TextField()
    accelerator = models.TextField()
    gpu_seconds = models.DecimalField(max_digits=40, decimal_places=0)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.accelerator} of {self.namespace}/{self.group}"


class FullAcceleratorSums(AcceleratorSums):
    """Of a row of `FullSums`."""

    user = models.TextField()
    component = models.TextField()
    instance_type = models.TextField()

    class Meta:
        abstract = True


class UserAcceleratorSums(AcceleratorSums):
    """Of a row of `UserSums`."""

    user = models.TextField()

    class Meta:
        abstract = True


class KindAcceleratorSums(AcceleratorSums):
    """Of a row of `KindSums`."""

    component = models.TextField()
    instance_type = models.TextField()

    class Meta:
        abstract = True


class UsageAcceleratorSpan(FullAcceleratorSums):
    """Of a row of `UsageSpan`."""

    span = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["span", "accelerator", *POD_KEY], name="usage_accelerator_span_once"
            )
        ]


class UsageAcceleratorDay(FullAcceleratorSums):
    """Of a row of `UsageDay`."""

    day = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["day", "accelerator", *POD_KEY], name="usage_accelerator_day_once"
            )
        ]


class UsageAcceleratorHour(FullAcceleratorSums):
    """Of a row of `UsageHour`, and how many were held as the hour ended."""

    hour = models.DateTimeField()
    going_gpus = models.DecimalField(max_digits=40, decimal_places=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["hour", "accelerator", *POD_KEY], name="usage_accelerator_hour_once"
            )
        ]


class UserAcceleratorSpan(UserAcceleratorSums):
    """Of a row of `UserSpan`."""

    span = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["span", "accelerator", *USER_KEY], name="user_accelerator_span_once"
            )
        ]


class UserAcceleratorDay(UserAcceleratorSums):
    """Of a row of `UserDay`."""

    day = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["day", "accelerator", *USER_KEY], name="user_accelerator_day_once"
            )
        ]


class UserAcceleratorHour(UserAcceleratorSums):
    """Of a row of `UserHour`, and how many were held as the hour ended."""

    hour = models.DateTimeField()
    going_gpus = models.DecimalField(max_digits=40, decimal_places=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["hour", "accelerator", *USER_KEY], name="user_accelerator_hour_once"
            )
        ]


class KindAcceleratorSpan(KindAcceleratorSums):
    """Of a row of `KindSpan`."""

    span = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["span", "accelerator", *KIND_KEY], name="kind_accelerator_span_once"
            )
        ]


class KindAcceleratorDay(KindAcceleratorSums):
    """Of a row of `KindDay`."""

    day = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["day", "accelerator", *KIND_KEY], name="kind_accelerator_day_once"
            )
        ]


class KindAcceleratorHour(KindAcceleratorSums):
    """Of a row of `KindHour`, and how many were held as the hour ended."""

    hour = models.DateTimeField()
    going_gpus = models.DecimalField(max_digits=40, decimal_places=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["hour", "accelerator", *KIND_KEY], name="kind_accelerator_hour_once"
            )
        ]
