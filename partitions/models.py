"""glue: tables of partition lifetimes and of controllers' capacity."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from ipuhub.models import long_lifetimes


class PartitionLifetime(models.Model):
    """One holding of a partition by a job, by the tracker's key: reserved to released.

    `size` in IPUs; `estimated`: the entry vanished from the tracker, `released_at` is when that
    was seen and `uncertainty_seconds` how long before it may have been. `shard` is the UID of the
    tracker's ConfigMap that shows the entry. `machines`: the positions of its IPUs in the IPU-Link
    domain by agent (empty: not known).
    """

    key = models.TextField(unique=True)
    cluster_uid = models.TextField(default="")
    shard = models.TextField(default="")
    job_uid = models.TextField()
    namespace = models.TextField()
    job_name = models.TextField()
    instance = models.IntegerField(default=0)
    attempt = models.IntegerField(default=0)
    partition = models.TextField()
    controller = models.TextField(default="")
    size = models.IntegerField()
    phase = models.TextField()
    reason = models.TextField(default="")
    message = models.TextField(default="")
    group = models.TextField(default="")
    user = models.TextField(default="")
    user_verified = models.BooleanField(default=False)
    reserved_at = models.DateTimeField()
    active_at = models.DateTimeField(null=True)
    released_at = models.DateTimeField(null=True)
    estimated = models.BooleanField(default=False)
    uncertainty_seconds = models.BigIntegerField(default=0)
    machines = models.JSONField(default=dict, db_default={})
    updated_at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [
            long_lifetimes("reserved_at", "released_at", name="partition_long"),
            models.Index(
                fields=["reserved_at"], name="partition_held", condition=Q(released_at=None)
            ),
            models.Index(fields=["reserved_at", "released_at"], name="partition_began"),
            models.Index(fields=["job_uid"], name="partition_job"),
            models.Index(F("reserved_at").desc(), F("id").desc(), name="partition_newest"),
            models.Index(
                F("namespace"),
                F("reserved_at").desc(),
                F("id").desc(),
                name="partition_namespace",
            ),
        ]

    def __str__(self) -> str:
        return self.partition


class CapacityChange(models.Model):
    """The IPUs of one V-IPU controller from `at` until its next row.

    `total` = used + `free` + `cordoned` + `faulty`; an unreachable controller keeps its total with
    `reachable` false.
    """

    controller = models.TextField()
    at = models.DateTimeField()
    total = models.IntegerField()
    free = models.IntegerField()
    cordoned = models.IntegerField(default=0)
    faulty = models.IntegerField(default=0)
    reachable = models.BooleanField(default=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["controller", "at"], name="capacity_change_once")
        ]

    def __str__(self) -> str:
        return f"{self.controller} at {self.at}"
