"""glue: tables of pod lifetimes, of the monitor's last round, and of purges."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.fields.json import KT

from ipuhub.models import long_lifetimes

if TYPE_CHECKING:
    from usage.rates.pricing import LineCost


class PodLifetime(models.Model):
    """One pod, by UID: PodScheduled=True to the last container's end.

    Amounts are whole numbers: millicores, bytes, accelerators (each resource by name, and summed
    as `gpus`), micro-IPUs. A pod that was never scheduled has no `scheduled_at` and no allocation.
    `estimated` ends are off by at most `uncertainty_seconds`; `end_source` says who closed the row
    (`event`, `deleted`, `relist`, `monitor`; empty: not ended). Without a usable annotation
    `claim` is `namespace` and the pod counts for its namespace; `annotation` is a claim by the user
    who made the pod, `operator` a stamp of the IPU Operator on a pod of a recorded job. `stamp`: a
    stamp that waits for the record of its job, and counts as a claim until then. `labels` has those
    labels of the pod that USAGE_LABELS named when it was first seen. `user_verified`: an admission
    webhook saw who made it. `skew_seconds`: the clock of the pod's node was off by at least that,
    and the end was moved to where it is possible. `seen_at`: when the monitor last found the pod
    there. `claimed_component`: a component of the product's own (`ipujob`, `partition`) that only
    the pod's annotation gives it; it then has none.
    """

    uid = models.TextField(unique=True)
    cluster_uid = models.TextField(default="")
    namespace = models.TextField()
    pod_name = models.TextField()
    node = models.TextField(default="")
    claim = models.TextField(default="namespace")
    component = models.TextField(default="")
    claimed_component = models.TextField(default="", db_default="")
    component_name = models.TextField(default="")
    group = models.TextField(default="")
    user = models.TextField(default="")
    user_verified = models.BooleanField(default=False)
    instance_type = models.TextField(default="")
    job_uid = models.TextField(default="")
    role = models.TextField(default="")
    instance = models.IntegerField(null=True)
    attempt = models.IntegerField(null=True)
    partition = models.TextField(default="")
    cpu_millicores = models.BigIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)
    gpus = models.BigIntegerField(default=0)
    accelerators = models.JSONField(default=dict)
    micro_ipus = models.BigIntegerField(default=0)
    labels = models.JSONField(default=dict, db_default=Value({}, models.JSONField()))
    stamp = models.JSONField(null=True)
    phase = models.TextField(default="")
    reason = models.TextField(default="")
    exit_code = models.IntegerField(null=True)
    created_at = models.DateTimeField()
    scheduled_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    end_source = models.TextField(default="")
    estimated = models.BooleanField(default=False)
    uncertainty_seconds = models.BigIntegerField(default=0)
    skew_seconds = models.BigIntegerField(default=0, db_default=0)
    seen_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    cost: LineCost | None = None
    """No column: what it cost, once that was read for somebody who may know it."""

    class Meta:
        indexes: ClassVar = [
            # The month queries of usage/time/windows.py: what begins in a range, and what is
            # carried into it because it is long or has not ended.
            models.Index(fields=["scheduled_at", "finished_at"], name="lifetime_began"),
            long_lifetimes("scheduled_at", "finished_at", name="lifetime_long"),
            models.Index(
                fields=["scheduled_at"], name="lifetime_open", condition=Q(finished_at=None)
            ),
            # What ends in a range: of the sums that go on from those of the hour before.
            models.Index(fields=["finished_at"], name="lifetime_ended"),
            models.Index(fields=["job_uid"], name="lifetime_job", condition=~Q(job_uid="")),
            models.Index(F("created_at").desc(), F("id").desc(), name="lifetime_newest"),
            # Those of a job, once it is recorded; hardly any rows.
            models.Index(
                KT("stamp__job_uid"), name="lifetime_stamp", condition=Q(stamp__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod_name}"


class MonitorRound(models.Model):
    """The monitor's last round in each cluster.

    The monitor checked `checked` pods: `present` of them exist, `closed` were ended. `left` are
    gone, but the prober is about to record their exact end, or a later round will end them.
    `problem` says why the round was incomplete; empty: it was complete.
    """

    cluster_uid = models.TextField(unique=True)
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    checked = models.BigIntegerField()
    present = models.BigIntegerField()
    closed = models.BigIntegerField()
    left = models.BigIntegerField()
    problem = models.TextField(default="")

    def __str__(self) -> str:
        return f"{self.cluster_uid} at {self.ended_at}"


class PurgeState(models.Model):
    """A purge: what ended before `purged_before` (a day of `zone`) was deleted, and how much.

    Lifetimes before the latest such day may be gone. So no report of a range that begins before it
    can be made, and daily totals before it are never recomputed. `finished_at` empty: the purge was
    interrupted; the next purge deletes the rest.
    """

    purged_before = models.DateField()
    zone = models.TextField(default="UTC")
    began_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    counts = models.JSONField(default=dict)

    def __str__(self) -> str:
        return f"before {self.purged_before}"
