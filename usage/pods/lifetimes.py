"""domain: the time a pod held its resources: from its scheduling to the end of its last container.

Also SQL for the last time when a pod was known to exist, over a row `known` of its lifetime. Three
things are sightings: the last recorded change, the monitor's last check, and the position of the
watch, because every change before it is recorded. The position proves nothing for a pod outside the
watched namespace, or for a pod with a later change that PostgreSQL or the decoder refused: that
change may be its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from ipuhub.recording.shapes import FAULT_TABLE
from usage.pods.resources import PodStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from usage.pods.resources import ContainerStatus, Pod, Terminated

BY_EVENT: Final = "event"
BY_DELETION: Final = "deleted"
BY_LIST: Final = "relist"
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_NOTICED: Final = timedelta(minutes=5)
"""Delay until a control plane with default timeouts notices a lost node."""
_CLOCKS_DIFFER: Final = timedelta(seconds=2)
"""Tolerance for synchronized clocks and for times cut to whole seconds."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a pod. An `estimated` end is off by at most `uncertainty_seconds`.

    `skew_seconds`: by the node's clock the pod ended before it began, or in the future; `at` is the
    nearest possible time, that many seconds away.
    """

    at: datetime
    source: str
    estimated: bool = False
    uncertainty_seconds: int = 0
    skew_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The times in a pod's status. A pod that was never scheduled has no `scheduled_at`."""

    scheduled_at: datetime | None
    started_at: datetime | None
    end: End | None
    phase: str = ""
    reason: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class _Heard:
    """News received `at`, of a change that happened after `since`."""

    at: datetime
    since: datetime | None


_NO_STATUS: Final = PodStatus()


def lifetime_of(
    pod: Pod, *, is_deleted: bool, at: datetime, since: datetime | None = None
) -> Lifetime:
    """Return a pod's times; `is_deleted`: this is the last state of a deleted pod, received `at`.

    `since`: the change happened after this; None: at any time before `at`.
    """
    status = pod.status or _NO_STATUS
    scheduled_at = _scheduled_at(pod, status)
    ended = [*_terminated(status)]
    started = [instant for instant in _started_at(status) if instant]
    lifetime_end = None
    if is_deleted or status.phase in _ENDED:
        lifetime_end = _end(pod, status, scheduled_at, _Heard(at, since))
    failed = next((end for end in ended if end.exit_code), ended[0] if ended else None)
    is_over = lifetime_end is not None and failed is not None
    return Lifetime(
        scheduled_at,
        min(started) if started else None,
        lifetime_end,
        status.phase,
        status.reason or (failed and failed.reason if is_over else "") or "",
        failed.exit_code if is_over and failed else None,
    )


def _scheduled_at(pod: Pod, status: PodStatus) -> datetime | None:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled":
            if condition.status != "True":  # Unschedulable carries a time, too
                return None
            known = condition.last_transition_time or status.start_time
            return known or pod.metadata.creation_timestamp
    return None


def _terminated(status: PodStatus) -> Iterator[Terminated]:
    for container in status.container_statuses or ():
        if container.state is not None and container.state.terminated is not None:
            yield container.state.terminated


def _started_at(status: PodStatus) -> Iterator[datetime | None]:
    for container in status.container_statuses or ():
        if container.state is not None:
            if container.state.running is not None:
                yield container.state.running.started_at
            elif container.state.terminated is not None:
                yield container.state.terminated.started_at


def _end(
    pod: Pod,
    status: PodStatus,
    scheduled_at: datetime | None,
    heard: _Heard,
) -> End:
    """The last container's end; where that is not known, the best there is, estimated."""
    at = heard.at
    finished = [instant for instant in _finished_at(status) if instant]
    latest = max(finished) if finished else None
    if latest is not None and _is_complete(status):
        possible = _possible(latest, scheduled_at, at)
        return End(possible, BY_EVENT, skew_seconds=_seconds(abs(possible - latest)))
    is_over = status.phase in _ENDED
    if scheduled_at is None:  # it held nothing: no estimate can be wrong
        # A deleted pod waited until then, whenever it was found unschedulable.
        ended = _changed_at(status) if is_over else None
        return End(ended or pod.metadata.deletion_timestamp or at, BY_EVENT)
    if is_over and (changed_at := _changed_at(status)):
        guess = max(changed_at, latest) if latest else changed_at
        guess = _not_before(guess, scheduled_at)
        seconds = _seconds(min(guess - scheduled_at, _NOTICED))
        return End(guess, BY_EVENT, estimated=True, uncertainty_seconds=seconds)
    source = BY_EVENT if is_over else BY_DELETION
    deleted_at = pod.metadata.deletion_timestamp
    if deleted_at is not None:
        # Kubernetes includes the grace period; a pod that is gone before its end had less.
        grace = timedelta(seconds=max(pod.metadata.deletion_grace_period_seconds or 0, 0))
        late = max(deleted_at - at, timedelta(0))
        guess = max(deleted_at - late, latest) if latest else deleted_at - late
        seconds = _seconds(grace - late)
        return End(
            _not_before(guess, scheduled_at), source, estimated=True, uncertainty_seconds=seconds
        )
    guess = _not_before(at, scheduled_at)
    known = min(max([scheduled_at, *_known_at(status, heard.since)]), guess)
    return End(guess, source, estimated=True, uncertainty_seconds=_seconds(guess - known))


def _known_at(status: PodStatus, since: datetime | None) -> Iterator[datetime]:
    """Yield the times at which a pod that was removed while it ran is known to have existed."""
    times = [since, *_started_at(status), *_finished_at(status), _changed_at(status)]
    yield from (instant for instant in times if instant)


def _finished_at(status: PodStatus) -> Iterator[datetime | None]:
    """The ends of all containers: init containers and sidecars hold what the pod holds."""
    for group in (
        status.container_statuses,
        status.init_container_statuses,
        status.ephemeral_container_statuses,
    ):
        for container in group or ():
            if container.state is not None and container.state.terminated is not None:
                yield container.state.terminated.finished_at


def _is_complete(status: PodStatus) -> bool:
    """Return whether no container ran on, would have been restarted, or ended at an unknown
    time."""
    if status.phase not in _ENDED and any(
        _waits(container) for container in status.container_statuses or ()
    ):
        return False
    for group in (status.container_statuses, status.init_container_statuses):
        for container in group or ():
            if container.state is None:
                continue
            if container.state.running is not None:
                return False
            ended = container.state.terminated
            if ended is not None and ended.finished_at is None:
                return False
    return True


def _waits(container: ContainerStatus) -> bool:
    """Return whether a container is yet to be started, or started again."""
    state = container.state
    return state is None or (state.running is None and state.terminated is None)


def _changed_at(status: PodStatus) -> datetime | None:
    """Return when the pod's conditions last changed."""
    times = [condition.last_transition_time for condition in status.conditions or ()]
    return max((instant for instant in times if instant), default=None)


def _possible(end: datetime, start: datetime | None, at: datetime) -> datetime:
    """The time nearest to a node's `end` that is neither before `start` nor after it arrived."""
    if end - at > _CLOCKS_DIFFER:
        end = at
    return _not_before(end, start)


def _not_before(end: datetime, start: datetime | None) -> datetime:
    """Clocks of nodes differ: a pod never ends before it begins."""
    return end if start is None or end >= start else start


def _seconds(length: timedelta) -> int:
    return max(0, -(-length // timedelta(seconds=1)))


REFUSALS: Final = ("refused", "unreadable")
"""Faults for which a change of a pod was not written."""


def last_seen(position: str, watched: str) -> str:
    """The expression; `position` and `watched` (empty: all namespaces) are SQL of the watch."""
    codes = ", ".join(f"'{code}'" for code in REFUSALS)
    return f"""GREATEST(known.updated_at, known.seen_at,
    CASE WHEN {watched} IN ('', known.namespace) AND NOT EXISTS (
        SELECT FROM {FAULT_TABLE} AS fault
        WHERE fault.watch = 'pods' AND fault.uid = known.uid AND fault.code IN ({codes})
          AND fault.last_at >= known.updated_at)
    THEN {position} END)"""  # text of this program
