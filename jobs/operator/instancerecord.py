"""domain: the part of a job's status about one instance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.ipujob.conditions import JobState, Reason
from jobs.ipujob.names import format_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from typing import Any

    from jobs.ipujob.names import Manifest

_SETTLED = frozenset({JobState.COMPLETED.value, JobState.FAILED.value})


@dataclass(frozen=True, slots=True)
class InstanceRecord:
    """One entry of status.instances.

    `restarts` counts against backOffLimit: restarts after a pod or partition was lost do not;
    `losses` counts those in a row. `restart_at`: pods of the attempt are not made before.
    `blocked_since`: something has kept them from starting since then, while the partition is
    there. Of an attempt that has ended for good `reason`, `exit_code` and `message` say how;
    `last_exit` is the same of the attempt before.
    """

    index: int
    attempt: int = 0
    state: str = JobState.PENDING.value
    restarts: int = 0
    losses: int = 0
    restart_at: datetime | None = None
    blocked_since: datetime | None = None
    reason: str = ""
    exit_code: int | None = None
    message: str = ""
    log: str = ""
    last_exit: Manifest | None = None

    @property
    def is_settled(self) -> bool:
        """The instance has ended for good."""
        return self.state in _SETTLED

    @property
    def has_succeeded(self) -> bool:
        """It has ended for good, and well."""
        return self.state == JobState.COMPLETED

    @property
    def was_running(self) -> bool:
        """Its current attempt has been running."""
        return self.state == JobState.RUNNING

    def settled(self, end: End) -> InstanceRecord:
        """The instance has ended for good."""
        state = JobState.COMPLETED if end.succeeded else JobState.FAILED
        return replace(
            self,
            state=state.value,
            restart_at=None,
            blocked_since=None,
            reason=end.reason.value,
            exit_code=end.exit_code,
            message="" if end.succeeded else end.message,
            log=end.log,
        )

    def next_attempt(
        self,
        state: JobState,
        *,
        restart_at: datetime | None = None,
        counted: bool = False,
        losses: int = 0,
    ) -> InstanceRecord:
        """Return the record of a new attempt; what the old attempt holds keeps its number and is
        removed."""
        return InstanceRecord(
            index=self.index,
            attempt=self.attempt + 1,
            state=state.value,
            restarts=self.restarts + counted,
            losses=losses,
            restart_at=restart_at,
            last_exit=self.last_exit,
        )

    def after(self, end: End, now: datetime) -> InstanceRecord:
        """Return the record with `end` as the end of the previous attempt, at `now`."""
        last: Manifest = {
            "attempt": self.attempt - 1,
            "at": format_time(now),
            "reason": end.reason.value,
        }
        if end.exit_code is not None:
            last["exitCode"] = end.exit_code
        last["message"] = end.message
        if end.log:
            last["log"] = end.log
        return replace(self, last_exit=last)

    def to_entry(self) -> Manifest:
        """Return the entry for the status."""
        entry: Manifest = {"index": self.index, "attempt": self.attempt, "state": self.state}
        if self.restarts:
            entry["restarts"] = self.restarts
        if self.losses:
            entry["losses"] = self.losses
        if self.restart_at is not None:
            entry["restartAt"] = format_time(self.restart_at)
        if self.blocked_since is not None:
            entry["blockedSince"] = format_time(self.blocked_since)
        if self.reason:
            entry["reason"] = self.reason
        if self.exit_code is not None:
            entry["exitCode"] = self.exit_code
        if self.message:
            entry["message"] = self.message
        if self.log:
            entry["log"] = self.log
        if self.last_exit:
            entry["lastExit"] = self.last_exit
        return entry


def record_of(status: Mapping[str, Any], index: int) -> InstanceRecord:
    """Return the record of an instance in `status`; a new record if there is none."""
    for entry in status.get("instances") or ():
        if entry.get("index") == index:
            return _from_entry(entry)
    return InstanceRecord(index)


def records_of(status: Mapping[str, Any]) -> tuple[InstanceRecord, ...]:
    """Every instance in the status, including instances that are no longer wanted."""
    return tuple(_from_entry(entry) for entry in status.get("instances") or ())


def _from_entry(entry: Mapping[str, Any]) -> InstanceRecord:
    return InstanceRecord(
        index=int(entry.get("index") or 0),
        attempt=int(entry.get("attempt") or 0),
        state=str(entry.get("state") or JobState.PENDING.value),
        restarts=int(entry.get("restarts") or 0),
        losses=int(entry.get("losses") or 0),
        restart_at=parse_time(entry.get("restartAt")),
        blocked_since=parse_time(entry.get("blockedSince")),
        reason=str(entry.get("reason") or ""),
        exit_code=entry.get("exitCode"),
        message=str(entry.get("message") or ""),
        log=str(entry.get("log") or ""),
        last_exit=entry.get("lastExit"),
    )


def end_reason(record: InstanceRecord) -> str:
    """The reason of a settled instance that has failed."""
    return record.reason or Reason.FAILED.value


@dataclass(frozen=True, slots=True)
class End:
    """The end of an attempt.

    `exit_code` is None if no container's exit code decided it; `log` has the last lines of the
    failed container.
    """

    succeeded: bool
    reason: Reason
    message: str
    exit_code: int | None = None
    log: str = ""
