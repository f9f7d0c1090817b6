"""domain: objects under a name the job needs that are not the job's, or will not go with it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from jobs.ipujob.conditions import JobState, Reason, Verdict, plain_verdict
from jobs.ipujob.manifests import metadata, parse_time
from jobs.operator.actions import DeleteChild

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.operator.observed import Observed

LOOK_AGAIN_SECONDS = 2.0
COLLECTED_WITHIN = timedelta(seconds=30)


def verdict(observed: Observed, now: datetime) -> Verdict | None:
    """Pending because of a foreign object; None: there is none.

    Right after a job was replaced by one of the same name its predecessor's objects are still
    being collected; that passes by itself and is no news.
    """
    created = parse_time(metadata(observed.job or {}).get("creationTimestamp"))
    for child in observed.children.values():
        if child.job_uid != observed.key.uid:
            if created is not None and now - created < COLLECTED_WITHIN:
                return plain_verdict(JobState.PENDING, observed.key.path)
            return Verdict(
                JobState.PENDING,
                Reason.NAME_CONFLICT,
                f"{child.kind} {child.namespace}/{child.name} exists and belongs to something "
                "else: delete it or rename the job",
            )
    return None


def orphans(observed: Observed) -> tuple[DeleteChild, ...]:
    """Our children without an owner (`--cascade=orphan` strips it): nobody else deletes them."""
    return tuple(
        DeleteChild(child.kind, child.namespace, child.name, child.uid)
        for child in observed.children.values()
        if child.is_orphan_of(observed.key.uid) and not child.is_deleting
    )
