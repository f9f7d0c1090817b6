"""domain: attempts whose pods cannot start: they do not hold their partition for ever."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from jobs.ipujob.conditions import JobState, Reason
from jobs.operator.outcome import End
from jobs.operator.restart import LONGEST_PAUSE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from jobs.ipujob.conditions import Verdict
    from jobs.operator.instancerecord import InstanceRecord
    from jobs.operator.instances import Instance

LONGEST_CAUSE = 300


def given_up(
    instances: Iterable[Instance], cause: Verdict, now: datetime, hold_seconds: float
) -> dict[int, InstanceRecord]:
    """The instances that have held a partition for too long without a start, as they begin anew
    after a pause in which others can have the IPUs; `cause` is what the job has said so far."""
    found = {}
    for instance in instances:
        left = seconds_left([instance], now, hold_seconds)
        if left is None or left > 0:
            continue
        again = now + timedelta(seconds=LONGEST_PAUSE_SECONDS)
        said = (
            f"The pods could not start for {hold_seconds / 60:.0f} min; the partition is given "
            f"back and asked for again at {again:%H:%M:%S} UTC. {cause.message[:LONGEST_CAUSE]}"
        )
        end = End(False, Reason.START_BLOCKED, said)
        record = instance.record.next_attempt(
            JobState.PENDING, restart_at=again, losses=instance.record.losses
        )
        found[instance.index] = record.after(end, now)
    return found


def seconds_left(instances: Iterable[Instance], now: datetime, hold_seconds: float) -> float | None:
    """Seconds until the first is given up; None: none is blocked, or there is no end to it."""
    waits = [
        (instance.blocked_since - now).total_seconds() + hold_seconds
        for instance in instances
        if instance.blocked_since is not None
    ]
    return min(waits) if waits and hold_seconds else None


def causes(instances: Iterable[Instance]) -> Iterator[tuple[str, str]]:
    """What is said during the pause."""
    for instance in instances:
        if instance.is_blocked_out:
            yield Reason.START_BLOCKED, str((instance.record.last_exit or {}).get("message"))
