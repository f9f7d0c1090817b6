"""glue: lifetimes summed by day and by hour, so that a page need not add up a month of them.

Lifetimes summed by span: sums of `usage.models.sums` of the days of a third of a month.

`span` is the first of these days. Made from the sums of days, in the same transaction.

Utilization summed by quarter of an hour, so that a page need not tell a month's story.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models

POD_KEY = ("namespace", "group", "user", "component", "instance_type")
USER_KEY = ("namespace", "group", "user")
KIND_KEY = ("namespace", "group", "component", "instance_type")
PARTITION_KEY = ("namespace", "group", "user", "size")


class PodSums(models.Model):
    """What some pods held in a time.

    Exact whole numbers: amount x seconds, cut as in usage/time/intervals.py. `pods` were there in
    that
    time, `begun` of them began in it; `estimated_seconds` are those of pods with an estimated end,
    `unverified_seconds` those of pods whose user nobody verified.
    """

    namespace = models.TextField()
    group = models.TextField()
    pods = models.BigIntegerField()
    begun = models.BigIntegerField()
    seconds = models.BigIntegerField()
    estimated_seconds = models.BigIntegerField()
    unverified_seconds = models.BigIntegerField()
    millicore_seconds = models.DecimalField(max_digits=40, decimal_places=0)
    byte_seconds = models.DecimalField(max_digits=40, decimal_places=0)
    gpu_seconds = models.DecimalField(max_digits=40, decimal_places=0)
    micro_ipu_seconds = models.DecimalField(max_digits=40, decimal_places=0)

    class Meta:
        abstract = True


class FullSums(PodSums):
    """What the pods of one namespace, group, user, component and instance type held."""

    user = models.TextField()
    component = models.TextField()
    instance_type = models.TextField()

    class Meta:
        abstract = True


class UserSums(PodSums):
    """What the pods of one namespace, group and user held: a few rows where `FullSums` has many."""

    user = models.TextField()

    class Meta:
        abstract = True


class KindSums(PodSums):
    """What the pods of one namespace, group, component and instance type held, likewise."""

    component = models.TextField()
    instance_type = models.TextField()

    class Meta:
        abstract = True


class UsageDay(FullSums):
    """One day of the zone in `RollupState`."""

    day = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["day", *POD_KEY], name="usage_day_once")
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.namespace}/{self.group}/{self.user}"


class Levels(models.Model):
    """What pods that had begun held as an hour ended, those that end at that instant included.

    With it a time after the hour needs no search for the pods that were carried into it: only
    those that begin and end in it.
    """

    going_pods = models.BigIntegerField()
    going_estimated = models.BigIntegerField()
    going_unverified = models.BigIntegerField()
    going_millicores = models.DecimalField(max_digits=40, decimal_places=0)
    going_bytes = models.DecimalField(max_digits=40, decimal_places=0)
    going_gpus = models.DecimalField(max_digits=40, decimal_places=0)
    going_micro_ipus = models.DecimalField(max_digits=40, decimal_places=0)

    class Meta:
        abstract = True


class UsageHour(FullSums, Levels):
    """One hour of UTC that no day sum has yet: today's, so far, and the one before them."""

    hour = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["hour", *POD_KEY], name="usage_hour_once")
        ]

    def __str__(self) -> str:
        return f"{self.hour} {self.namespace}/{self.group}/{self.user}"


class UserDay(UserSums):
    """The sum of `UsageDay`."""

    day = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["day", *USER_KEY], name="user_day_once")
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.namespace}/{self.group}"


class UserHour(UserSums, Levels):
    """The sum of `UsageHour`."""

    hour = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["hour", *USER_KEY], name="user_hour_once")
        ]

    def __str__(self) -> str:
        return f"{self.hour} {self.namespace}/{self.group}"


class KindDay(KindSums):
    """The sum of `UsageDay`."""

    day = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["day", *KIND_KEY], name="kind_day_once")
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.namespace}/{self.group}"


class KindHour(KindSums, Levels):
    """The sum of `UsageHour`."""

    hour = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["hour", *KIND_KEY], name="kind_hour_once")
        ]

    def __str__(self) -> str:
        return f"{self.hour} {self.namespace}/{self.group}"


class PartitionSums(models.Model):
    """What partitions of one size held in a time, for one namespace, group and user.

    `partitions` were held in it, `begun` of them were reserved in it.
    """

    namespace = models.TextField()
    group = models.TextField()
    user = models.TextField()
    size = models.IntegerField()
    partitions = models.BigIntegerField()
    begun = models.BigIntegerField()
    partition_ipu_seconds = models.DecimalField(max_digits=40, decimal_places=0)

    class Meta:
        abstract = True


class PartitionDay(PartitionSums):
    """One day of the zone in `RollupState`."""

    day = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["day", *PARTITION_KEY], name="partition_day_once")
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.namespace}/{self.group}/{self.user}"


class PartitionHour(PartitionSums):
    """One hour of UTC that no day sum has yet."""

    hour = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["hour", *PARTITION_KEY], name="partition_hour_once")
        ]

    def __str__(self) -> str:
        return f"{self.hour} {self.namespace}/{self.group}/{self.user}"


class RollupState(models.Model):
    """What is summed: all days before `until`, in the days of `zone`, and after them the hours
    from `hours_from` to `hours_until`. At most one row.

    `accelerated_from`: from which day on there are sums of accelerators by name; of spans there are
    all. Empty: an older release, which knows neither, summed last.
    """

    zone = models.TextField()
    until = models.DateField()
    hours_from = models.DateTimeField(null=True)
    hours_until = models.DateTimeField(null=True)
    accelerated_from = models.DateField(null=True)

    def __str__(self) -> str:
        return f"{self.zone} until {self.until}"


class HourDirt(models.Model):
    """Hours whose rows changed after they were summed; `last_hour` empty: up to now.

    Written by triggers, in the transaction of the change, whoever makes it. Rows are only added,
    so a recorder never waits for a refresh.
    """

    first_hour = models.DateTimeField()
    last_hour = models.DateTimeField(null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.first_hour} to {self.last_hour or 'now'}"


class RollupDirt(HourDirt):
    """Of the sums of lifetimes."""


class UsageSpan(FullSums):
    """The sum of `UsageDay`."""

    span = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["span", *POD_KEY], name="usage_span_once")
        ]

    def __str__(self) -> str:
        return f"from {self.span} {self.namespace}/{self.group}/{self.user}"


class KindSpan(KindSums):
    """The sum of `KindDay`."""

    span = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["span", *KIND_KEY], name="kind_span_once")
        ]

    def __str__(self) -> str:
        return f"from {self.span} {self.namespace}/{self.group}"


class UserSpan(UserSums):
    """The sum of `UserDay`."""

    span = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["span", *USER_KEY], name="user_span_once")
        ]

    def __str__(self) -> str:
        return f"from {self.span} {self.namespace}/{self.group}"


class PartitionSpan(PartitionSums):
    """The sum of `PartitionDay`."""

    span = models.DateField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["span", *PARTITION_KEY], name="partition_span_once")
        ]

    def __str__(self) -> str:
        return f"from {self.span} {self.namespace}/{self.group}/{self.user}"


class UtilizationQuarter(models.Model):
    """What became of the IPUs of one controller in the quarter of an hour from `begin` on.

    The sums of `Utilization` (usage/utilization/amounts.py); none where all of them are zero. A
    quarter is the longest time of which the days of every zone and the hours of UTC consist.
    """

    controller = models.TextField()
    begin = models.DateTimeField()
    capacity = models.BigIntegerField()
    reserved = models.BigIntegerField()
    by_others = models.BigIntegerField()
    held_idle = models.BigIntegerField()
    idle = models.BigIntegerField()
    down = models.BigIntegerField()
    unknown = models.BigIntegerField()
    pod_micro = models.DecimalField(max_digits=40, decimal_places=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["begin", "controller"], name="utilization_once")
        ]

    def __str__(self) -> str:
        return f"{self.controller} at {self.begin}"


class UtilizationState(models.Model):
    """What is summed: all quarters in [begin, until), as if nobody had asked the controllers after
    `known_until` (empty: nobody ever did). At most one row."""

    begin = models.DateTimeField()
    until = models.DateTimeField()
    known_until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.begin} to {self.until}"


class UtilizationDirt(HourDirt):
    """Of the sums of utilization: all of `RollupDirt`, and what changes nothing but these."""
