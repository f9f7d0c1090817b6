"""io: reads recorded jobs and their state, limited to what the user may see."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import (
    Case,
    Count,
    F,
    IntegerField,
    Model,
    OuterRef,
    Q,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Extract, JSONObject

from ipuhub.models import WatchCheckpoint
from jobs.ipujob.conditions import FINISHED, JobState
from jobs.models import EarlierFailure, JobAttempt, JobPast, JobRecord, JobTransition
from jobs.operator.observer import ASKING, BY_AGE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from django.db.models import Field, QuerySet

    from ipuhub.web.access import Scope

_M = TypeVar("_M", bound=Model)
WATCH = "ipujobs"  # the checkpoint of the jobs' recorder
_ASKS = Q(reason__in=sorted(ASKING), deleted_at=None, completed_at=None)
_LOOKED_AT: Final = 1000  # jobs that ended last, of which those of one size count
_TYPICAL: Final = 50
_EARLIER: Final = 3
_EARLIER_DAYS: Final = 30
_LARGE = ("spec", "conditions", "labels", "partitions")  # shown for one job, not for fifty


def visible_jobs(scope: Scope) -> QuerySet[JobRecord]:
    """All jobs that `scope` covers, in no order."""
    if scope.namespaces is None:
        return JobRecord.objects.all()
    return JobRecord.objects.filter(namespace__in=sorted(scope.namespaces))


def listed_jobs(scope: Scope) -> QuerySet[JobRecord]:
    """Return the jobs without the columns that a list does not show."""
    return visible_jobs(scope).defer(*_LARGE)


def jobs_with_uid(scope: Scope, uid: str) -> QuerySet[JobRecord]:
    """Return the job with this UID, or none, even if the URL's value is no UID."""
    if "\0" in uid:  # no text in PostgreSQL has it
        return JobRecord.objects.none()
    return visible_jobs(scope).filter(uid=uid)


def find_job(scope: Scope, uid: str) -> JobRecord | None:
    """Return a job with its `past` in one query; None if `scope` covers no such job."""
    seen = WatchCheckpoint.objects.filter(name=WATCH).values("position_at")[:1]
    told = {
        "told_attempts": _told(JobAttempt.objects.all()),
        "told_transitions": _told(JobTransition.objects.all()),
        "watched_at": Subquery(seen),
        "asking_before": _asking_before(),
        "typical": _typical_seconds(scope),
        "earlier": _earlier_failures(),
    }
    job = jobs_with_uid(scope, uid).annotate(**told).first()
    if job is not None:
        past = {name: vars(job).pop(name) for name in told}
        job.past = JobPast(
            attempts=_rows(JobAttempt, past["told_attempts"]),
            transitions=_rows(JobTransition, past["told_transitions"]),
            watched_at=past["watched_at"],
            asking_before=past["asking_before"],
            typical_seconds=[each["seconds"] for each in past["typical"] or ()],
            earlier=[EarlierFailure(**each) for each in past["earlier"] or ()],
        )
    return job


def _typical_seconds(scope: Scope) -> Case:
    """How long each of the jobs of the same size ran that completed last, of those `scope` covers;
    null for a job that asks for no IPUs."""
    recent = visible_jobs(scope).filter(completed_at__isnull=False).order_by("-completed_at")
    alike = (
        JobRecord.objects.filter(
            pk__in=recent.values("pk")[:_LOOKED_AT],
            ipus=OuterRef("ipus"),
            status=JobState.COMPLETED.value,
            started_at__isnull=False,
        )
        .order_by("-completed_at")
        .annotate(ran=Extract(F("completed_at") - F("started_at"), "epoch"))
    )
    rows = ArraySubquery(alike.values(row=JSONObject(seconds="ran"))[:_TYPICAL])
    return Case(When(_ASKS, then=rows), default=None)


def _earlier_failures() -> Case:
    """Jobs of the same namespace that failed for the same reason in the 30 days before; null for a
    job that did not fail."""
    same = JobRecord.objects.filter(
        namespace=OuterRef("namespace"),
        reason=OuterRef("reason"),
        status=JobState.FAILED.value,
        completed_at__lt=OuterRef("completed_at"),
        completed_at__gt=OuterRef("completed_at") - timedelta(days=_EARLIER_DAYS),
    ).order_by("-completed_at")
    rows = ArraySubquery(same.values(row=JSONObject(uid="uid", name="name"))[:_EARLIER])
    return Case(When(status=JobState.FAILED.value, then=rows), default=None)


def _asking_before() -> Case:
    """Return how many jobs of all namespaces request IPUs before this job, in the order of
    `turn_of`.

    None if the job requests none.
    """
    is_older = Q(created_at__lt=OuterRef("created_at")) | Q(
        created_at=OuterRef("created_at"), uid__lt=OuterRef("uid")
    )
    others = JobRecord.objects.filter(_ASKS).exclude(pk=OuterRef("pk")).order_by()

    def count(rows: QuerySet[JobRecord]) -> Subquery:
        counted = rows.annotate(whole=Value(1)).values("whole").annotate(sum=Count("pk"))
        return Subquery(counted.values("sum"))

    first = ~Q(status=BY_AGE)
    return Case(
        When(_ASKS & first, then=Value(0)),
        When(_ASKS, then=Coalesce(count(others.filter(first | is_older)), 0)),
        output_field=IntegerField(null=True),
    )


def _told(rows: QuerySet[_M]) -> ArraySubquery:
    """Return those of `rows` that are of a job, as objects of JSON."""
    columns = {field.attname: field.attname for field in _fields(rows.model)}
    own = rows.filter(job=OuterRef("pk")).order_by("pk")
    return ArraySubquery(own.values(row=JSONObject(**columns)))


def _rows(model: type[_M], told: Sequence[dict[str, Any]]) -> list[_M]:
    fields = _fields(model)
    return [
        model(**{each.attname: each.to_python(row[each.attname]) for each in fields})
        for row in told
    ]


def _fields(model: type[Model]) -> Sequence[Field[Any, Any]]:
    return model._meta.concrete_fields  # noqa: SLF001  # of Django's documented API


NO_JOB = "Job not found, or you do not have access to its namespace."
DELETED = "Deleted"
DELETED_EARLY = "Deleted before it ended."
ENDED = tuple(state.value for state in FINISHED)
STATES = (*(state.value for state in JobState), DELETED)


class Remembered(Protocol):
    """The facts of a recorded job that decide its state."""

    status: str
    deleted_at: datetime | None


def state_of(job: Remembered) -> str:
    """Return the state that pages show: a job that was deleted while it ran does not run."""
    return DELETED if _deleted_early(job) else job.status


def message_of(job: Remembered, last: str) -> str:
    """Return the message to show if `last` was its last message: that of a deleted job is past."""
    if not _deleted_early(job):
        return last
    return f"{DELETED_EARLY} Last message: {last}" if last else DELETED_EARLY


def _deleted_early(job: Remembered) -> bool:
    return bool(job.deleted_at) and job.status not in ENDED
