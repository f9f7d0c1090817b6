"""domain: the end of a job that runs for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ipujob.conditions import JobState, Reason
from jobs.ipujob.manifests import parse_time
from jobs.operator.outcome import End

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.ipujob.spec import JobSpec
    from jobs.operator.observed import Observed


def seconds_left(observed: Observed, spec: JobSpec, now: datetime) -> float | None:
    """Seconds until `activeDeadlineSeconds` is over (0 or less: it is); None: there is no end.

    It counts from startTime, which begins anew when a suspended job is resumed.
    """
    started = parse_time(observed.status().get("startTime"))
    if spec.deadline_seconds is None or started is None or observed.state() is JobState.SUSPENDED:
        return None
    return spec.deadline_seconds - (now - started).total_seconds()


def deadline_end(spec: JobSpec) -> End:
    """How the deadline ends an instance."""
    seconds = spec.deadline_seconds
    return End(
        False,
        Reason.DEADLINE_EXCEEDED,
        f"it has run for longer than its activeDeadlineSeconds of {seconds} s",
    )
