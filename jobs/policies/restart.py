"""domain: whether an attempt that has ended is followed by another, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ipuhub.backoff import exponential
from jobs.conditions import Reason

if TYPE_CHECKING:
    from jobs.policies.outcome import End
    from jobs.spec import RestartPolicy

FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 300.0
LOST = frozenset({Reason.WORKER_LOST, Reason.PARTITION_ERROR})
SIGNALS = range(128, 256)  # ExitCode without codes: the container was killed by a signal


@dataclass(frozen=True, slots=True)
class Restart:
    """Another attempt after a pause. `is_counted`: it uses up one of backOffLimit."""

    pause_seconds: float
    is_counted: bool


def restart_after(policy: RestartPolicy, end: End, *, attempt: int, used: int) -> Restart | None:
    """The restart that `end` of attempt number `attempt` (from 0) leads to; None: it is the end.

    `used` restarts have counted so far. What was taken from a job is not its fault and does not
    count; under Never it ends the job all the same.
    """
    pause = exponential(attempt, base=FIRST_PAUSE_SECONDS, maximum=LONGEST_PAUSE_SECONDS)
    if end.reason in LOST and not end.succeeded:
        return None if policy.type == "Never" else Restart(pause, is_counted=False)
    if used >= policy.back_off_limit or not _applies(policy, end):
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
