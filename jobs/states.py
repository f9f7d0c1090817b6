"""domain: the state of a remembered job: its last status, or that it was deleted before its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jobs.conditions import FINISHED, JobState

if TYPE_CHECKING:
    from datetime import datetime

NO_JOB = "There is no job with this UID, or you have no access to its namespace."
DELETED = "Deleted"
ENDED = tuple(state.value for state in FINISHED)
STATES = (*(state.value for state in JobState), DELETED)


class Remembered(Protocol):
    """What of a job decides."""

    status: str
    deleted_at: datetime | None


def state_of(job: Remembered) -> str:
    """Return what the pages show: a job that was deleted while it ran does not run."""
    return DELETED if job.deleted_at and job.status not in ENDED else job.status
