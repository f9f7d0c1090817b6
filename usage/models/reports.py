"""glue: tables of month reports, their rows and files, of runs that make them, and of rates."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import DateRangeField, RangeOperators
from django.db import models
from django.db.models import F, Func, Q, Value
from django.db.models.functions import Concat
from django.utils import timezone


class ReportState(models.TextChoices):
    """The states of a month's report."""

    OPEN = "open", "current month: updated by every run"
    PROVISIONAL = "provisional", "last month: late data still counts until it is closed"
    CLOSED = "closed", "final: later differences become a numbered correction"
    CORRECTION = "correction", "differences found after the month was closed"


class MonthReport(models.Model):
    """One version of one month's report; `month` is YYYY-MM in `zone`.

    It knows what happened before `generated_at`; the watch of pods had then seen everything
    until `complete_until` (none: no prober watched). `lifetimes` counts the lines of the details.
    `digests` are SHA-256 sums by file: `summary`, `summary-primehub` and, where the details are
    stored, `details`, `details-primehub`; `lines` counts their lines without the header. `tariff`
    is the price of a resource then (usage/rates/pricing.py), `cost` the sum of the rows,
    null where nothing had a price. An open or provisional month keeps its newest version only; a
    closed month is never written again: a correction (`number` 1 and up, state `correction`) is a
    version of its own with the differences.
    """

    month = models.CharField(max_length=7)
    version = models.IntegerField()
    state = models.CharField(max_length=11, choices=ReportState.choices)
    zone = models.TextField()
    first = models.DateTimeField()
    end = models.DateTimeField()
    generated_at = models.DateTimeField()
    complete_until = models.DateTimeField(null=True)
    lifetimes = models.BigIntegerField()
    digests = models.JSONField(default=dict)
    lines = models.JSONField(default=dict)
    number = models.IntegerField(default=0)
    cause = models.TextField(default="")
    made_by = models.TextField(default="")
    tariff = models.JSONField(default=dict)
    cost = models.DecimalField(max_digits=40, decimal_places=6, null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["month", "version"], name="month_report_version"),
            models.UniqueConstraint(
                fields=["month", "number"],
                condition=Q(number__gt=0),
                name="month_report_correction",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.month}, version {self.version}"


class ReportRow(models.Model):
    """One line of a summary: exact sums of resource times whole seconds.

    Lines of component `partition` carry only `partition_ipu_seconds`, the others never, so that no
    column counts anything twice. `pods` and `estimated` count lifetimes (of partitions: 0 pods).
    `idle_micro_ipu_seconds`: what partitions held beyond the IPUs of their pods. `cost` is money,
    rounded to the tariff's decimals; its sum is the report's. It is null where nothing at all had a
    price in the time of these lifetimes; what had a price of 0 cost 0. In a
    correction every number may be negative.
    """

    report = models.ForeignKey(
        MonthReport, on_delete=models.CASCADE, related_name="rows", db_index=False
    )
    namespace = models.TextField()
    group = models.TextField()
    user = models.TextField()
    user_verified = models.BooleanField()
    component = models.TextField()
    instance_type = models.TextField()
    running = models.BooleanField()
    lifetimes = models.BigIntegerField()
    pods = models.BigIntegerField()
    estimated = models.BigIntegerField()
    seconds = models.DecimalField(max_digits=40, decimal_places=0)
    millicore_seconds = models.DecimalField(max_digits=40, decimal_places=0)
    byte_seconds = models.DecimalField(max_digits=40, decimal_places=0)
    gpu_seconds = models.DecimalField(max_digits=40, decimal_places=0)
    micro_ipu_seconds = models.DecimalField(max_digits=40, decimal_places=0)
    partition_ipu_seconds = models.DecimalField(max_digits=40, decimal_places=0)
    idle_micro_ipu_seconds = models.DecimalField(max_digits=40, decimal_places=0, default=0)
    cost = models.DecimalField(max_digits=40, decimal_places=6, null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["report", "id"], name="report_row_order")]

    def __str__(self) -> str:
        return f"{self.report_id}: {self.namespace}/{self.group}/{self.user}/{self.component}"


class ReportChunk(models.Model):
    """A piece of at most 1 MiB of a file of a closed month, in order.

    `profile` is the profile of details, and `summary` or `summary-primehub` for a summary.
    """

    report = models.ForeignKey(
        MonthReport, on_delete=models.CASCADE, related_name="chunks", db_index=False
    )
    profile = models.CharField(max_length=16)
    number = models.IntegerField()
    data = models.BinaryField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["report", "profile", "number"], name="report_chunk")
        ]

    def __str__(self) -> str:
        return f"{self.report_id}: {self.profile} {self.number}"


class ReportRun(models.Model):
    """One run of the reports: its task, progress and outcome.

    It makes months (`months`, `done` of them are), or, with a `kind` (summary or details), one file
    of [begin, end): `done` of about `lines` are written; its pieces are deleted at `expires_at`.
    `close`: closes the month.
    """

    class State(models.TextChoices):
        """The state of a run."""

        QUEUED = "queued", "waiting for a worker"
        RUNNING = "running", "running"
        DONE = "done", "finished"
        REFUSED = "refused", "refused: another run was in progress"
        FAILED = "failed", "failed"

    state = models.CharField(max_length=8, choices=State.choices, default=State.QUEUED)
    cause = models.TextField(default="")
    requested_by = models.TextField(default="")
    requested_at = models.DateTimeField()
    month = models.CharField(max_length=7, default="")
    months = models.JSONField(default=list)
    done = models.IntegerField(default=0)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    message = models.TextField(default="")
    close = models.BooleanField(default=False)
    kind = models.CharField(max_length=7, default="")
    profile = models.CharField(max_length=16, default="default")
    begin = models.DateTimeField(null=True)
    end = models.DateTimeField(null=True)
    lines = models.BigIntegerField(default=0)
    digest = models.CharField(max_length=64, default="")
    complete_until = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["-requested_at", "-id"], name="report_run_newest")
        ]

    def __str__(self) -> str:
        return f"run {self.pk} ({self.state})"

    @property
    def is_over(self) -> bool:
        """Return whether nothing more comes of it."""
        return self.state in {self.State.DONE, self.State.REFUSED, self.State.FAILED}

    @property
    def has_file(self) -> bool:
        """Return whether the file of a range is there; see also `expires_at`."""
        return bool(self.kind) and self.state == self.State.DONE and not self.is_expired

    @property
    def is_expired(self) -> bool:
        """Return whether the time of its file is over."""
        return self.expires_at is not None and self.expires_at <= timezone.now()


class RunChunk(models.Model):
    """A piece of at most 1 MiB of the file that a run made, in order."""

    run = models.ForeignKey(
        ReportRun, on_delete=models.CASCADE, related_name="chunks", db_index=False
    )
    number = models.IntegerField()
    data = models.BinaryField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["run", "number"], name="report_run_chunk")
        ]

    def __str__(self) -> str:
        return f"{self.run_id}: {self.number}"


def _one_value() -> Func:
    # A range of one number: GiST compares those without the extension that texts would need.
    key = Func(
        Concat(F("resource"), Value(" "), F("name"), output_field=models.TextField()),
        Value(0),
        function="hashtextextended",
    )
    return Func(key, key, Value("[]"), function="int8range")


class Rate(models.Model):
    """The price of an hour of `resource`, from `valid_from` until the day before `valid_until`.

    `name` is the name of an accelerator or an instance type, empty for other resources. Days are
    days of the report zone. Two rates of the same resource never overlap; a rate that ends on the
    day it begins was never in force. Rates are ended, never changed or deleted.
    """

    class Resource(models.TextChoices):
        """Resources that can have a price."""

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
