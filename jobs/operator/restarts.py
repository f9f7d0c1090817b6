"""domain: the restart policy: whether an ended instance gets another attempt, and the delay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from ipuhub.backoff import exponential
from jobs.ipujob.conditions import LOST
from jobs.ipujob.names import parse_time

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.ipujob.spec import RestartPolicy
    from jobs.operator.instancerecord import End
    from jobs.operator.observed import Instance


FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 300.0
# An attempt that lasted longer than this, pause included, was no part of a series of losses.
SERIES = timedelta(seconds=900)
SIGNALS = range(128, 256)  # ExitCode without codes: the container was killed by a signal


@dataclass(frozen=True, slots=True)
class Tally:
    """The count of an instance's restarts: `used` restarts count against backOffLimit;
    `losses` are the attempts in a row that ended through no fault of the job."""

    used: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    """Another attempt after a pause. `is_counted`: it counts against backOffLimit."""

    pause_seconds: float
    is_counted: bool


def is_loss(end: End) -> bool:
    """Return whether the attempt was taken from the job: that is not the job's fault."""
    return end.reason in LOST and not end.succeeded


def tally_of(instance: Instance, now: datetime) -> Tally:
    """The restarts so far, as of an attempt that ends now."""
    record = instance.record
    began = parse_time((record.last_exit or {}).get("at"))
    was_sound = instance.has_started and (began is None or now - began >= SERIES)
    return Tally(record.restarts, 0 if was_sound else record.losses)


def is_series_over(policy: RestartPolicy, end: End, tally: Tally, most_losses: int) -> bool:
    """Return whether the job would be restarted, had it not been lost too often in a row."""
    limited = policy.type != "Never" and most_losses > 0
    return limited and is_loss(end) and tally.losses >= most_losses


def restart_after(
    policy: RestartPolicy, end: End, tally: Tally, most_losses: int = 0
) -> Restart | None:
    """Return the restart that follows `end`; None: the job ends.

    A lost pod or partition does not count against backOffLimit, but can happen at most
    `most_losses` times in a row (0: any number); under Never it also ends the job.
    """
    before = tally.used + tally.losses
    pause = exponential(before, base=FIRST_PAUSE_SECONDS, maximum=LONGEST_PAUSE_SECONDS)
    if is_loss(end):
        if policy.type == "Never" or is_series_over(policy, end, tally, most_losses):
            return None
        return Restart(pause, is_counted=False)
    if tally.used >= policy.back_off_limit or not _applies(policy, end):
        return None
    return Restart(pause, is_counted=True)


def _applies(policy: RestartPolicy, end: End) -> bool:
    match policy.type:
        case "Always":
            return True
        case "OnFailure":
            return not end.succeeded
        case "ExitCode":
            codes = policy.exit_codes or (SIGNALS,)
            return any(end.exit_code in part for part in codes)
        case _:
            return False
