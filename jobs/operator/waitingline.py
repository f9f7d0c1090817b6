"""domain: in which order jobs ask for IPUs.

The order is no promise: whoever fits gets IPUs, so that a small job may pass older, larger ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobs.ipujob.conditions import JobState, Reason
from jobs.ipujob.manifests import metadata, parse_time

if TYPE_CHECKING:
    from jobs.ipujob.manifests import Manifest

ASKING: Final = frozenset(
    {
        Reason.NO_CAPACITY,
        Reason.NO_CONTROLLERS,
        Reason.CONTROLLER_UNAVAILABLE,
        Reason.NO_LABELLED_NODE,
    }
)
"""The reasons of jobs that ask for IPUs again and again."""
BY_AGE: Final = JobState.PENDING
"""The state in which a job asks in the order of age; any other job that waits asks before."""


def turn_of(job: Manifest | None) -> float:
    """A number by which those who wait are asked for, least first: their creation in seconds since
    1970, and 0 for a job that has run already and for one that has gone."""
    if job is None:
        return 0.0
    state = (job.get("status") or {}).get("launcherStatus", BY_AGE)
    if state != BY_AGE:
        return 0.0
    created = parse_time(metadata(job).get("creationTimestamp"))
    return created.timestamp() if created else 0.0
