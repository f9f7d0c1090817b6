"""domain: the state of a remembered job: its last status, or that it was deleted before its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jobs.ipujob.conditions import FINISHED, JobState

if TYPE_CHECKING:
    from datetime import datetime

NO_JOB = "There is no job with this UID, or you have no access to its namespace."
DELETED = "Deleted"
DELETED_EARLY = "Deleted before its end."
ENDED = tuple(state.value for state in FINISHED)
STATES = (*(state.value for state in JobState), DELETED)


class Remembered(Protocol):
    """What of a job decides."""

    status: str
    deleted_at: datetime | None


def state_of(job: Remembered) -> str:
    """Return what the pages show: a job that was deleted while it ran does not run."""
    return DELETED if _deleted_early(job) else job.status


def message_of(job: Remembered, last: str) -> str:
    """Return what to say of it where `last` was its last message: that of a deleted job is past."""
    if not _deleted_early(job):
        return last
    return f"{DELETED_EARLY} Last said: {last}" if last else DELETED_EARLY


def _deleted_early(job: Remembered) -> bool:
    return bool(job.deleted_at) and job.status not in ENDED
