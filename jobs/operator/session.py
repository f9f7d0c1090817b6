"""domain: the end of an interactive session, and the warning before it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from jobs.ipujob.conditions import Reason
from jobs.operator.outcome import End

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.ipujob.spec import JobSpec
    from jobs.operator.instances import Instance

WARNED_BEFORE = timedelta(minutes=5)
LONGEST_SECONDS = 10**10  # three centuries: no clock can say when 64 bits of seconds are over


def ends_at(instance: Instance, spec: JobSpec) -> datetime | None:
    """When the session's time is over: `ttl` after the launcher began to run; None: not known."""
    launcher = instance.launcher
    if spec.ttl_seconds is None or launcher is None or launcher.started_at is None:
        return None
    return launcher.started_at + timedelta(seconds=min(spec.ttl_seconds, LONGEST_SECONDS))


def session_end(instance: Instance, spec: JobSpec, now: datetime) -> End | None:
    """The session's end, if its time is over: a success whatever the launcher did."""
    over = ends_at(instance, spec)
    if over is None or now < over:
        return None
    return End(True, Reason.SUCCEEDED, f"The session's {spec.ttl_seconds} s are over", 0)


def warning(instance: Instance, spec: JobSpec, now: datetime) -> str:
    """What to tell people in the session; empty: it is too early."""
    over = ends_at(instance, spec)
    if over is None or now < over - WARNED_BEFORE:
        return ""
    return f"The session ends at {over:%H:%M:%S} UTC: save your work"


def seconds_to_next(instance: Instance, spec: JobSpec, now: datetime) -> float | None:
    """Seconds until the warning or, after it, the end."""
    over = ends_at(instance, spec)
    if over is None:
        return None
    next_at = over if now >= over - WARNED_BEFORE else over - WARNED_BEFORE
    return max((next_at - now).total_seconds(), 0.0)
