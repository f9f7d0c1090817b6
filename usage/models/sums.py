"""glue: tables of sums: of lifetimes by day, hour and span of days, and of utilization by quarter
hour.

With them a page does not add up a month of lifetimes or of capacity changes. Accelerators have sums
by name, because a price can apply to one name.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

from django.db import models

POD_KEY = ("namespace", "group", "user", "component", "instance_type")
USER_KEY = ("namespace", "group", "user")
KIND_KEY = ("namespace", "group", "component", "instance_type")
PARTITION_KEY = ("namespace", "group", "user", "size")


class PodSums(models.Model):
    """The amounts that pods held in a period, as exact whole numbers: amount x seconds.

    Times are cut as in usage/time/windows.py. `pods` existed in that period, `begun` of them
    began in it. `estimated_seconds` belong to pods with an estimated end, `unverified_seconds` to
    pods with an unverified user.
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
    """Sums of pods by namespace, group, user, component and instance type."""

    user = models.TextField()
    component = models.TextField()
    instance_type = models.TextField()

    class Meta:
        abstract = True


class UserSums(PodSums):
    """Sums of pods by namespace, group and user: few rows where `FullSums` has many."""

    user = models.TextField()

    class Meta:
        abstract = True


class KindSums(PodSums):
    """Sums of pods by namespace, group, component and instance type, for the same reason."""

    component = models.TextField()
    instance_type = models.TextField()

    class Meta:
        abstract = True


class Levels(models.Model):
    """The amounts held by running pods at the end of an hour, including pods that end at that
    instant.

    With them a period after the hour needs only the pods that begin or end in it, not those that
    were carried into it.
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


class PartitionKindSums(models.Model):
    """The amounts that partitions of one size held in a period, by namespace and group.

    `partitions` were held in it, `begun` of them were reserved in it.
    """

    namespace = models.TextField()
    group = models.TextField()
    size = models.IntegerField()
    partitions = models.BigIntegerField()
    begun = models.BigIntegerField()
    partition_ipu_seconds = models.DecimalField(max_digits=40, decimal_places=0)

    class Meta:
        abstract = True


class PartitionSums(PartitionKindSums):
    """The same by user, too."""

    user = models.TextField()

    class Meta:
        abstract = True


class AcceleratorSums(models.Model):
    """Accelerators of one name x seconds, as a whole number, for the pods of a sum."""

    namespace = models.TextField()
    group = models.TextField()
    accelerator = models.TextField()
    gpu_seconds = models.DecimalField(max_digits=40, decimal_places=0)

    class Meta:
        abstract = True


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


class GoingAccelerators(models.Model):
    """The accelerators that were held as an hour ended."""

    going_gpus = models.DecimalField(max_digits=40, decimal_places=0)

    class Meta:
        abstract = True


_Key = tuple[str, ...]


def _table(
    name: str, grain: str, time: models.Field[Any, Any], key: _Key, *bases: type[models.Model]
) -> Any:
    words = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
    once = models.UniqueConstraint(fields=[grain, *key], name=f"{words}_{grain}_once")
    meta = type("Meta", (), {"constraints": [once], "app_label": "usage"})
    attributes = {"__module__": __name__, "Meta": meta, grain: time}
    return type(f"{name}{grain.capitalize()}", bases, attributes)


def _by_grain(
    name: str, sums: type[models.Model], key: _Key, *levels: type[models.Model]
) -> tuple[type[models.Model], type[models.Model], type[models.Model]]:
    """Return the tables of these sums: by span of days (its first day), by day of the zone in
    `RollupState`, and by hour of UTC, which also has `levels`.

    Spans are made from days, in the same transaction. Hours cover today, which has no daily total
    yet, and the hour before; sums by kind keep all hours.
    """
    return (
        _table(name, "span", models.DateField(), key, sums),
        _table(name, "day", models.DateField(), key, sums),
        _by_hour(name, key, sums, *levels),
    )


def _by_hour(name: str, key: _Key, *bases: type[models.Model]) -> type[models.Model]:
    """Return the table of sums by hour of UTC."""
    table: type[models.Model] = _table(name, "hour", models.DateTimeField(), key, *bases)
    return table


UsageSpan, UsageDay, UsageHour = _by_grain("Usage", FullSums, POD_KEY, Levels)
UserSpan, UserDay, UserHour = _by_grain("User", UserSums, USER_KEY, Levels)
KindSpan, KindDay, KindHour = _by_grain("Kind", KindSums, KIND_KEY, Levels)
PartitionSpan, PartitionDay, PartitionHour = _by_grain("Partition", PartitionSums, PARTITION_KEY)
UsageAcceleratorSpan, UsageAcceleratorDay, UsageAcceleratorHour = _by_grain(
    "UsageAccelerator", FullAcceleratorSums, ("accelerator", *POD_KEY), GoingAccelerators
)
UserAcceleratorSpan, UserAcceleratorDay, UserAcceleratorHour = _by_grain(
    "UserAccelerator", UserAcceleratorSums, ("accelerator", *USER_KEY), GoingAccelerators
)
KindAcceleratorSpan, KindAcceleratorDay, KindAcceleratorHour = _by_grain(
    "KindAccelerator", KindAcceleratorSums, ("accelerator", *KIND_KEY), GoingAccelerators
)

GROUP_KEY = ("namespace", "group")
GroupHour = _by_hour("Group", GROUP_KEY, PodSums, Levels)
GroupAcceleratorHour = _by_hour(
    "GroupAccelerator", ("accelerator", *GROUP_KEY), AcceleratorSums, GoingAccelerators
)
PartitionKindHour = _by_hour("PartitionKind", (*GROUP_KEY, "size"), PartitionKindSums)


class RollupState(models.Model):
    """The summed time: all days before `until`, in the days of `zone`, and after them the hours
    from `hours_from` to `hours_until`. At most one row.

    `accelerated_from`: from which day on there are sums of accelerators by name; of spans there are
    all. Empty: an older release, which knows neither, summed last. `kept_from`: from when on hours
    are kept by kind and group; empty: an older release, which keeps none, summed last.
    """

    zone = models.TextField()
    until = models.DateField()
    hours_from = models.DateTimeField(null=True)
    hours_until = models.DateTimeField(null=True)
    accelerated_from = models.DateField(null=True)
    kept_from = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.zone} until {self.until}"


class HourDirt(models.Model):
    """Hours whose rows changed after they were summed; `last_hour` empty: up to now.

    Triggers write it in the transaction of the change, by any writer. Rows are only added, so a
    recorder never waits for a refresh.
    """

    first_hour = models.DateTimeField()
    last_hour = models.DateTimeField(null=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.first_hour} to {self.last_hour or 'now'}"


class RollupDirt(HourDirt):
    """Of the sums of lifetimes."""


class UtilizationSums(models.Model):
    """The use of one controller's IPUs from `begin` on: the sums of `Utilization`
    (usage/utilization/amounts.py); no row if all are zero."""

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
        abstract = True

    def __str__(self) -> str:
        return f"{self.controller} at {self.begin}"


class UtilizationQuarter(UtilizationSums):
    """The same for a quarter hour, the longest period that divides the days of every zone and the
    hours of UTC."""

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["begin", "controller"], name="utilization_once")
        ]


class UtilizationHour(UtilizationSums):
    """The sums of the quarters of an hour of UTC: a year has too many quarters for a page."""

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["begin", "controller"], name="utilization_hour_once")
        ]


class UtilizationState(models.Model):
    """The summed quarter hours are in [begin, until). At most one row.

    `known_until`: until when the controllers had been asked at that time (empty: never).
    `with_hours`: whether their hours are summed too. False: an older release, which knows no hours,
    summed last; it leaves out the column.
    """

    begin = models.DateTimeField()
    until = models.DateTimeField()
    known_until = models.DateTimeField(null=True)
    with_hours = models.BooleanField(default=False, db_default=False)

    def __str__(self) -> str:
        return f"{self.begin} to {self.until}"


class UtilizationDirt(HourDirt):
    """The dirt of utilization: all of `RollupDirt`, and changes that affect only utilization."""
