"""io: reads what is remembered of jobs, within what somebody may see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import Subquery

from ipuhub.models import WatchCheckpoint
from jobs.models import JobRecord

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from ipuhub.web.access import Scope

WATCH = "ipujobs"  # the checkpoint of the jobs' recorder
_LARGE = ("spec", "conditions", "labels", "partitions")  # shown for one job, not for fifty


def visible_jobs(scope: Scope) -> QuerySet[JobRecord]:
    """All jobs that `scope` covers, in no order."""
    if scope.namespaces is None:
        return JobRecord.objects.all()
    return JobRecord.objects.filter(namespace__in=sorted(scope.namespaces))


def listed_jobs(scope: Scope) -> QuerySet[JobRecord]:
    """Return the same without what a list does not show."""
    return visible_jobs(scope).defer(*_LARGE)


def jobs_with_uid(scope: Scope, uid: str) -> QuerySet[JobRecord]:
    """The job with this UID, or none, whatever an address has for one."""
    if "\0" in uid:  # no text in PostgreSQL has it
        return JobRecord.objects.none()
    return visible_jobs(scope).filter(uid=uid)


def find_job(scope: Scope, uid: str) -> JobRecord | None:
    """Return one job with attempts and transitions; None where there is none `scope` covers.

    Its `watched_at` says when the recorder of jobs last heard from the cluster.
    """
    seen = WatchCheckpoint.objects.filter(name=WATCH).values("position_at")[:1]
    jobs = jobs_with_uid(scope, uid).annotate(watched_at=Subquery(seen))
    return jobs.prefetch_related("attempts", "transitions").first()
