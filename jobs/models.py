"""glue: tables of IPUJobs, which stay after a job is deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from django.db import models
from django.db.models import BigIntegerField, F, Func, Q
from django.db.models.functions import Coalesce

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class JobPast:
    """The history of a job, in the order of writing; `watched_at`: the last response of the cluster
    to its recorder; `asking_before`: number of jobs that request IPUs before it (None: it requests
    none); `typical_seconds`: run time of recently completed jobs of its size, only if it requests
    IPUs; `earlier`: jobs of its namespace that failed for the same reason in the 30 days before,
    the newest first, only where it failed; `requests`: number of changes that users requested
    through IPUHub; `events`: Kubernetes Events of it and its pods; `runs`: the nearest other jobs
    of its name in its namespace, the newest first."""

    attempts: Sequence[JobAttempt]
    transitions: Sequence[JobTransition]
    watched_at: datetime | None
    asking_before: int | None = None
    typical_seconds: Sequence[float] = ()
    earlier: Sequence[EarlierFailure] = ()
    requests: int = 0
    events: Sequence[JobEvent] = ()
    runs: Sequence[Run] = ()


@dataclass(frozen=True, slots=True)
class EarlierFailure:
    """Another job that failed for the same reason."""

    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class Run:
    """Another job of the same name, made `is_later` or before. `state` is as pages show it."""

    uid: str
    state: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    is_later: bool

    @property
    def seconds(self) -> int | None:
        """Return how long it ran; None before its start and its end."""
        if self.started_at is None or self.ended_at is None:
            return None
        return int((self.ended_at - self.started_at).total_seconds())


ENDED_AT = Coalesce("completed_at", "deleted_at")
"""The end of a job; for a job deleted while it ran, its deletion."""
DURATION_SECONDS = Func(
    Coalesce("completed_at", "deleted_at"),
    F("started_at"),
    arg_joiner=" - ",
    template="floor(extract(epoch FROM (%(expressions)s)))::bigint",
    output_field=BigIntegerField(),
)
"""The whole seconds from the start of a job to its end; without either it is no number."""


class JobRecord(models.Model):
    """One IPUJob by UID, as last seen. `status` is Pending, Running, Restarting, Suspended,
    Completed or Failed (a job deleted before its end keeps its last state and has `deleted_at`).

    `ipus` counts all instances; `spec` and `conditions` are the object's own; `user` is its
    creator, `user_verified` whether an admission webhook saw the creation; `estimated`:
    `deleted_at` is the time of the list in which the job was missing.

    `applied`: the applied manifest, `applied_by` the client that applied it (empty: unknown, and
    `applied` is the job as first seen); `running`: the spec in effect, with the operator's
    defaults. Both are empty of jobs that no release with these columns has seen.
    """

    uid = models.TextField(unique=True)
    cluster_uid = models.TextField(default="")
    namespace = models.TextField()
    name = models.TextField()
    group = models.TextField(default="")
    user = models.TextField(default="")
    user_verified = models.BooleanField(default=False)
    ipus = models.IntegerField(default=0)
    instances = models.IntegerField(default=1)
    workers = models.IntegerField(default=0)
    status = models.TextField(default="Pending")
    reason = models.TextField(default="")
    message = models.TextField(default="")
    restart_count = models.IntegerField(default=0)
    partitions = models.JSONField(default=list)
    spec = models.JSONField(default=dict)
    conditions = models.JSONField(default=list)
    labels = models.JSONField(default=dict)
    applied = models.JSONField(default=dict, db_default={})
    applied_by = models.TextField(default="", db_default="")
    running = models.JSONField(default=dict, db_default={})
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    deleted_at = models.DateTimeField(null=True)
    estimated = models.BooleanField(default=False)
    updated_at = models.DateTimeField()

    past: JobPast
    """No column: only of what `jobs.selectors.find_job` returned."""

    class Meta:
        indexes: ClassVar = [
            models.Index(F("created_at").desc(), F("id").desc(), name="job_newest"),
            models.Index(
                F("namespace"), F("created_at").desc(), F("id").desc(), name="job_namespace"
            ),
            models.Index(F("status"), F("created_at").desc(), F("id").desc(), name="job_status"),
            models.Index(F("group"), F("created_at").desc(), F("id").desc(), name="job_group"),
            # All in one direction: the list can be sorted by user.
            models.Index(fields=["user", "created_at", "id"], name="job_user"),
            # Whose jobs there are in a namespace, for readers who see only that namespace.
            models.Index(fields=["namespace", "group", "user"], name="job_owner"),
            # Read as a whole for a part of a name: a fiftieth of the table.
            models.Index(fields=["name", "id"], name="job_name_search"),
            models.Index(
                F("created_at").desc(),
                name="job_alive",
                condition=Q(deleted_at=None, completed_at=None),
            ),
            models.Index(
                F("completed_at").desc(), name="job_ended", condition=Q(completed_at__isnull=False)
            ),
            # Two orders of the list. PostgreSQL uses what it knows of an expression's values only
            # where its index is of all rows.
            models.Index(fields=["ipus", "id"], name="job_ipus"),
            models.Index(ENDED_AT, name="job_over"),
            models.Index(DURATION_SECONDS, name="job_duration"),
        ]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class JobAttempt(models.Model):
    """One attempt of one instance of a job. `outcome` is the instance's state as last seen;
    `message` says how it failed, `log` holds the last lines of the container that did."""

    job = models.ForeignKey(JobRecord, on_delete=models.CASCADE, related_name="attempts")
    instance = models.IntegerField()
    attempt = models.IntegerField()
    outcome = models.TextField(default="Pending")
    reason = models.TextField(default="")
    exit_code = models.IntegerField(null=True)
    message = models.TextField(default="")
    log = models.TextField(default="")
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job", "instance", "attempt"], name="job_attempt_once")
        ]

    def __str__(self) -> str:
        return f"{self.job} #{self.instance}.{self.attempt}"


class JobTransition(models.Model):
    """A change of a job's state, with its cause in a word and in a sentence."""

    job = models.ForeignKey(JobRecord, on_delete=models.CASCADE, related_name="transitions")
    at = models.DateTimeField()
    state = models.TextField()
    reason = models.TextField(default="")
    message = models.TextField(default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["job", "at", "state"], name="job_transition_once")
        ]

    def __str__(self) -> str:
        return f"{self.job}: {self.state}"


class JobEvent(models.Model):
    """A Kubernetes Event of a job, or of its pod `pod`, by the Event's UID; it happened `count`
    times from `first_at` to `last_at`. A bounded number of each job's is kept."""

    job = models.ForeignKey(JobRecord, on_delete=models.CASCADE, related_name="events")
    uid = models.TextField(unique=True)
    pod = models.TextField(default="")
    type = models.TextField(default="Normal")
    reason = models.TextField(default="")
    message = models.TextField(default="")
    count = models.IntegerField(default=1)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.job}: {self.reason}"
