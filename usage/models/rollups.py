"""glue: pod lifetimes summed by day, so that a page need not add up a month of pods."""

from __future__ import annotations

from typing import ClassVar

from django.db import models


class UsageDay(models.Model):
    """What the pods of one namespace, group, user, component and instance type held on one day.

    A day of the zone in `RollupState`. Exact whole numbers: amount x seconds, cut as in
    usage/intervals.py. `pods` were there on that day, `begun` of them began on it;
    `estimated_seconds` are those of pods with an estimated end, `unverified_seconds` those of
    pods whose user nobody verified.
    """

    day = models.DateField()
    namespace = models.TextField()
    group = models.TextField()
    user = models.TextField()
    component = models.TextField()
    instance_type = models.TextField()
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
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["day", "namespace", "group", "user", "component", "instance_type"],
                name="usage_day_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.namespace}/{self.group}/{self.user}"


class RollupState(models.Model):
    """Which days are summed: all before `until`, in the days of `zone`. At most one row."""

    zone = models.TextField()
    until = models.DateField()

    def __str__(self) -> str:
        return f"{self.zone} until {self.until}"


class RollupDirt(models.Model):
    """UTC days whose pods changed after they were summed; `last_day` empty: up to now.

    Written by triggers on the lifetimes, in the transaction of the change, whoever makes it. Rows
    are only added, so a recorder never waits for a refresh.
    """

    first_day = models.DateField()
    last_day = models.DateField(null=True)

    def __str__(self) -> str:
        return f"{self.first_day} to {self.last_day or 'now'}"
