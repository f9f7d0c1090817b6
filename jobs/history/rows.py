"""domain: the row of an IPUJob: the facts of one manifest, its attempts and transitions.

Nothing here raises: a job with an invalid spec also has a page, which shows why it waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from jobs.history.specs import applied_of, in_effect, storable_json
from jobs.ipujob.conditions import CONDITION_OF_STATE, CONDITION_TYPES, FINISHED, JobState
from jobs.ipujob.fields import whole_number
from jobs.ipujob.logtails import clean_tail
from jobs.ipujob.names import (
    ANNOTATION_CREATED_BY,
    annotations_of,
    labels_of,
    metadata,
    name_of,
    namespace_of,
    parse_time,
    uid_of,
)
from jobs.ipujob.spec import with_defaults
from jobs.ipujob.storedstatus import read_status
from jobs.operator.statuscarrier import plain_conditions, with_carried_fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from jobs.history.specs import Applied, InEffect
    from jobs.ipujob.names import Manifest

LARGEST = 2**31 - 1  # of an integer column
_STATE_OF_CONDITION = {str(kind): str(state) for state, kind in CONDITION_OF_STATE.items()}
_ORDER = {kind: place for place, kind in enumerate(CONDITION_TYPES)}
_ENDED = frozenset(state.value for state in FINISHED)


class Size(NamedTuple):
    """The resources that a job requests, over all its instances."""

    ipus: int
    instances: int
    workers: int


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of state at `at`.

    `is_inferred`: derived from the beginning of the next state, and used only if no watch saw the
    change itself.
    """

    at: datetime
    state: str
    reason: str
    message: str
    is_inferred: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """The current attempt of one instance, with its state so far."""

    instance: int
    attempt: int
    outcome: str
    reason: str
    exit_code: int | None
    message: str
    log: str
    began_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class JobRow:
    """One IPUJob in the state of one event; times are aware UTC.

    `group` is the label of its namespace, or else the namespace itself. The manifest does not say
    whether `user` is verified. The event that reports the deletion sets `deleted_at`.
    """

    uid: str
    namespace: str
    name: str
    group: str
    user: str
    size: Size
    status: str
    reason: str
    message: str
    restart_count: int
    partitions: list[Any]
    spec: Manifest
    conditions: list[Any]
    labels: dict[str, str]
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    deleted_at: datetime | None
    attempts: tuple[Attempt, ...]
    transitions: tuple[Transition, ...]
    applied: Applied
    running: InEffect
    user_verified: bool = False


def row_of(job: Manifest, group: str, now: datetime, *, is_deleted: bool = False) -> JobRow:
    """The row of a manifest that was seen at `now`; it must have a UID."""
    clean: Manifest = storable_json(job)
    status = with_carried_fields(read_status(clean.get("status")).fields)
    spec = _mapping(clean.get("spec"))
    created = parse_time(_text(metadata(clean).get("creationTimestamp"))) or now
    transitions = tuple(_transitions(status, created))
    current = _current(status)
    reason = current.get("reason", "")
    deletion = parse_time(_text(metadata(clean).get("deletionTimestamp"))) or now
    return JobRow(
        uid=uid_of(clean),
        namespace=namespace_of(clean),
        name=name_of(clean),
        group=group,
        user=_text(annotations_of(clean).get(ANNOTATION_CREATED_BY)),
        size=size_of(spec),
        status=status.get("launcherStatus") or JobState.PENDING.value,
        reason=reason,
        message=status.get("lastMessage") or current.get("message", ""),
        restart_count=status.get("restartCount", 0),
        partitions=status.get("partitions", []),
        spec=spec,
        conditions=plain_conditions(status),
        labels=labels_of(clean),
        created_at=created,
        started_at=min(
            (transition.at for transition in transitions if transition.state == JobState.RUNNING),
            default=None,
        ),
        completed_at=parse_time(status.get("completionTime")),
        deleted_at=deletion if is_deleted else None,
        attempts=tuple(_attempts(status, created, current)),
        transitions=transitions,
        applied=applied_of(clean),
        running=in_effect(clean, status, reason),
    )


def size_of(spec: Manifest) -> Size:
    """Return IPUs, instances and workers of a spec in either published form; 0 for invalid values.

    For a valid spec the numbers equal `jobs.ipujob.spec.parse_spec`.
    """
    filled = with_defaults(spec)
    replicas = whole_number(filled.get("modelReplicas"))
    per_replica = whole_number(filled.get("ipusPerModelReplica"))
    if replicas is not None and per_replica is not None:
        partition, instances = replicas * per_replica, 1
    else:
        partition = _count(filled.get("ipusPerJobInstance"))
        instances = _count(filled.get("jobInstances"), 1)
    per_instance = _count(_mapping(filled.get("workers")).get("replicas"), 1)
    per_instance = _count(filled.get("workersPerJobInstance"), per_instance)
    return Size(_bounded(partition * instances), instances, _bounded(per_instance * instances))


def _transitions(status: Manifest, created: datetime) -> Iterator[Transition]:
    """The current state, and earlier states with the beginnings that follow from their ends.

    A condition keeps only when it last changed: a condition that is False ended then, and began
    when the condition before it ended.
    """
    began = parse_time(status.get("startTime")) or created
    ended = []
    for condition in status.get("conditions", ()):
        changed = parse_time(condition.get("lastTransitionTime"))
        state = _STATE_OF_CONDITION.get(condition["type"])
        if changed is None or state is None:
            continue
        if condition["status"] == "True":
            yield _transition(condition, changed, state)
        else:
            ended.append((changed, _ORDER[condition["type"]], condition, state))
    for changed, _, condition, state in sorted(ended, key=lambda end: end[:2]):
        yield _transition(condition, began, state, is_inferred=True)
        began = changed


def _transition(
    condition: Manifest, at: datetime, state: str, *, is_inferred: bool = False
) -> Transition:
    reason, message = condition.get("reason", ""), condition.get("message", "")
    return Transition(at, state, reason, message, is_inferred)


def _attempts(status: Manifest, created: datetime, current: Manifest) -> Iterator[Attempt]:
    first = parse_time(status.get("startTime")) or created
    later = parse_time(current.get("lastTransitionTime")) or first
    completed = parse_time(status.get("completionTime"))
    for entry in status.get("instances", ()):
        last = entry.get("lastExit", {})
        ended = parse_time(last.get("at"))
        if ended is not None:
            yield _last_attempt(entry["index"], last, first, ended)
        outcome = entry.get("state") or JobState.PENDING.value
        yield Attempt(
            instance=entry["index"],
            attempt=entry["attempt"],
            outcome=outcome,
            reason=entry.get("reason", ""),
            exit_code=entry.get("exitCode"),
            message=entry.get("message", ""),
            log=_log(entry),
            began_at=(ended or later) if entry["attempt"] else first,
            ended_at=completed or later if outcome in _ENDED else None,
        )


def _last_attempt(instance: int, last: Manifest, first: datetime, ended: datetime) -> Attempt:
    """Return how the previous attempt ended, at the start of the current attempt."""
    code, attempt = last.get("exitCode"), last.get("attempt", 0)
    outcome = JobState.COMPLETED if code == 0 else JobState.FAILED
    return Attempt(
        instance=instance,
        attempt=attempt,
        outcome=outcome.value,
        reason=last.get("reason", ""),
        exit_code=code,
        message=last.get("message", ""),
        log=_log(last),
        began_at=ended if attempt else first,
        ended_at=ended,
    )


def _current(status: Manifest) -> Manifest:
    """The condition that is True."""
    true = (each for each in status.get("conditions", ()) if each["status"] == "True")
    return next(true, {})


def _mapping(value: object) -> Manifest:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _log(ended: Manifest) -> str:
    """Limit the log: a user who can write a job's status must not fill the database."""
    return clean_tail(ended.get("log", ""))


def _count(value: object, default: int = 0) -> int:
    number = whole_number(value)
    return default if number is None else _bounded(number)


def _bounded(number: int) -> int:
    return max(0, min(number, LARGEST))
