"""domain: in which order jobs ask for IPUs, and how many wait before each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.conditions import JobState
from jobs.manifests import metadata, parse_time, uid_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jobs.manifests import Manifest


def turn_of(job: Manifest | None) -> float:
    """A number by which those who wait are asked for, least first: their creation in seconds since
    1970, and 0 for a job that has run already and for one that has gone."""
    if job is None:
        return 0.0
    state = (job.get("status") or {}).get("launcherStatus", JobState.PENDING)
    if state != JobState.PENDING:
        return 0.0
    created = parse_time(metadata(job).get("creationTimestamp"))
    return created.timestamp() if created else 0.0


def line_of(jobs: Iterable[Manifest]) -> dict[str, int]:
    """How many of these jobs come before each, by UID."""
    ordered = sorted(jobs, key=lambda job: (turn_of(job), uid_of(job)))
    return {uid_of(job): before for before, job in enumerate(ordered)}
