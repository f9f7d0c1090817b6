"""domain: the phases of a partition and the allowed transitions.

reserving -> creating -> active -> releasing -> released. A new attempt returns to reserving, where
an existing partition is reset. A partition leaves the phase error by a new attempt, by a release,
when it recovers, or after a person has reset it. Also the id of a new partition, chosen once when
it is reserved.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Final

from ipuhub.partition import KEY_WANTED, Partition, Phase, Reason
from partitions.errors import Contradiction, IllegalTransition, StaleAttempt

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from partitions.vipu.types import VipuStatus


class Verdict(StrEnum):
    """The decision about a request for a partition."""

    RESERVE = "reserve"
    KEEP = "keep"
    RESET = "reset"
    RELEASE_FIRST = "release first"


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a job's instance for `size` IPUs; zero GCDs or replicas: the controller's
    default."""

    uid: str
    namespace: str
    name: str
    instance: int
    size: int
    attempt: int
    num_gcds: int = 0
    num_replicas: int = 0

    @property
    def holder(self) -> tuple[str, int]:
        """Return the holder of the request: operations of the same holder follow each other."""
        return self.uid, self.instance


_NEXT: Mapping[Phase, frozenset[Phase]] = {
    Phase.WAITING: frozenset(),
    Phase.RESERVING: frozenset(
        {Phase.RESERVING, Phase.CREATING, Phase.ERROR, Phase.RELEASING, Phase.RELEASED}
    ),
    Phase.CREATING: frozenset({Phase.RESERVING, Phase.ACTIVE, Phase.ERROR, Phase.RELEASING}),
    Phase.ACTIVE: frozenset({Phase.RESERVING, Phase.ERROR, Phase.RELEASING}),
    Phase.ERROR: frozenset({Phase.RESERVING, Phase.ACTIVE, Phase.RELEASING}),
    Phase.RELEASING: frozenset({Phase.RELEASED}),
    Phase.RELEASED: frozenset(),
}


def decide(entry: TrackerEntry | None, request: Request) -> Verdict:
    """Return what to do about a request, given the newest entry of its holder.

    Raises StaleAttempt for an attempt below the known attempt, Contradiction for another job's
    name or, within one attempt, another size.
    """
    if entry is None:
        return Verdict.RESERVE
    if (entry.namespace, entry.name) != (request.namespace, request.name):
        raise Contradiction(
            f"UID {request.uid} is the job {entry.namespace}/{entry.name}, "
            f"not {request.namespace}/{request.name}"
        )
    refuse_stale(entry, request.attempt)
    if entry.phase is Phase.RELEASED:
        return Verdict.RESERVE
    if entry.phase is Phase.RELEASING:
        return Verdict.KEEP
    if request.attempt == entry.attempt:
        _refuse_other_size(entry, request.size)
        return Verdict.KEEP
    if entry.lost_at is not None:
        return Verdict.RELEASE_FIRST  # this holding has ended; another begins
    return Verdict.RESET if request.size == entry.size else Verdict.RELEASE_FIRST


def refuse_stale(entry: TrackerEntry, attempt: int) -> None:
    """Raise StaleAttempt when a later attempt than `attempt` is known."""
    if attempt < entry.attempt:
        raise StaleAttempt(
            f"instance {entry.instance} of {entry.namespace}/{entry.name} is at attempt "
            f"{entry.attempt}; a call for attempt {attempt} comes too late"
        )


def begin_attempt(entry: TrackerEntry, attempt: int) -> TrackerEntry:
    """The partition has to be made clean for a new attempt, or made again if it is gone."""
    return replace(enter(entry, Phase.RESERVING), attempt=attempt)


def make_again(entry: TrackerEntry) -> TrackerEntry:
    """The controller took the request and does not know the partition: it forgot it, or it lists
    it later."""
    return replace(enter(entry, Phase.RESERVING), may_come=True)


def move(entry: TrackerEntry, *, controller: str, label: str, partition_id: str) -> TrackerEntry:
    """The reservation goes to another controller."""
    return replace(rename(entry, partition_id), controller=controller, label=label)


def rename(entry: TrackerEntry, partition_id: str) -> TrackerEntry:
    """The reservation takes another id."""
    return replace(enter(entry, Phase.RESERVING), id=partition_id, terms="", may_come=False)


def note_request(entry: TrackerEntry, scope: str, terms: str) -> TrackerEntry:
    """Record that a request for the partition is about to be sent to V-IPU, in this cluster and
    allocation and on these terms. A partition of an earlier request may still appear, with other
    terms."""
    if entry.may_come and entry.terms != terms:
        terms = ANY_TERMS
    return replace(enter(entry, Phase.RESERVING), scope=scope, terms=terms)


def has_request(entry: TrackerEntry, scope: str, terms: str) -> bool:
    """Return whether the entry has a request with these terms."""
    return entry.scope == scope and entry.terms in {terms, ANY_TERMS}


def accept(entry: TrackerEntry) -> TrackerEntry:
    """The controller took the request to create or reset."""
    return enter(entry, Phase.CREATING)


def activate(entry: TrackerEntry, now: datetime, *, wants_key: bool = False) -> TrackerEntry:
    """The partition is ACTIVE; the time of its first activation stays. `wants_key`: its pods need a
    key, new for each attempt, since this may be another partition of the same id."""
    active = replace(enter(entry, Phase.ACTIVE), active_at=entry.active_at or now, may_come=False)
    return replace(active, pod_key=KEY_WANTED) if wants_key else active


def require_key_wanted(entry: TrackerEntry, attempt: int) -> None:
    """Raise StaleAttempt or Contradiction unless this attempt's pods need a key and have none."""
    refuse_stale(entry, attempt)
    if attempt != entry.attempt or entry.phase is not Phase.ACTIVE:
        raise Contradiction(
            f"partition {entry.id} is {entry.phase} for attempt {entry.attempt}; a key for attempt "
            f"{attempt} is made once it is active for that attempt"
        )
    if entry.pod_key != KEY_WANTED:
        state = "have a key already" if entry.pod_key else "need none"
        raise Contradiction(f"no key for the pods of partition {entry.id}: they {state}")


def with_key(entry: TrackerEntry, key_id: str) -> TrackerEntry:
    """The pods can use this key from now on; empty: their controller has no keys for pods."""
    return replace(entry, pod_key=key_id)


def fail(entry: TrackerEntry, reason: Reason, message: str) -> TrackerEntry:
    """The partition cannot be used, and why."""
    return replace(enter(entry, Phase.ERROR), reason=reason, message=message)


def fault(entry: TrackerEntry, status: VipuStatus) -> TrackerEntry:
    """The partition is in ERROR, with what its controller says about it."""
    message = "; ".join(status.errors) or f"partition {entry.id} is in ERROR"
    return replace(fail(entry, Reason.PARTITION_ERROR, message), may_come=False)


def may_heal(entry: TrackerEntry) -> bool:
    """Return whether a partition that works is all the entry lacks: a partition that its controller
    refused to reset works as well, and is not clean."""
    return entry.phase is Phase.ERROR and entry.reason == Reason.PARTITION_ERROR


def lose(entry: TrackerEntry, now: datetime, message: str) -> TrackerEntry:
    """The partition is gone, and why we think so: the job holds nothing any more."""
    return replace(fail(entry, Reason.PARTITION_LOST, message), lost_at=entry.lost_at or now)


def begin_release(entry: TrackerEntry) -> TrackerEntry:
    """Begin the release of a partition; a release in progress stays unchanged.

    Until V-IPU has listed the partition, it may appear after its release (tombstones.py).
    """
    if entry.phase is Phase.RELEASING:
        return entry
    may_come = entry.may_come or entry.phase in {Phase.RESERVING, Phase.CREATING}
    return replace(enter(entry, Phase.RELEASING), may_come=may_come)


def again(entry: TrackerEntry, serial: int, now: datetime) -> TrackerEntry:
    """A new holding for the same attempt."""
    fresh = enter(entry, Phase.RESERVING)
    return replace(fresh, serial=serial, reserved_at=now, active_at=None, may_come=False)


def hang(entry: TrackerEntry, reason: Reason, message: str) -> TrackerEntry:
    """Same phase, with the reason why it does not go on."""
    return entry if entry.reason == reason else replace(entry, reason=reason, message=message)


def hang_unanswered(entry: TrackerEntry, message: str) -> TrackerEntry:
    """Record that V-IPU did not answer a request for the partition."""
    return replace(hang(entry, Reason.CONTROLLER_UNAVAILABLE, message), may_come=True)


def enter(entry: TrackerEntry, phase: Phase) -> TrackerEntry:
    """The entry in its next phase, whose reason is not known yet; raises IllegalTransition."""
    if phase not in _NEXT[entry.phase]:
        raise IllegalTransition(f"partition {entry.id} is {entry.phase} and cannot become {phase}")
    return replace(entry, phase=phase, reason="", message="", pod_key="")


def _refuse_other_size(entry: TrackerEntry, size: int) -> None:
    if size != entry.size:
        raise Contradiction(
            f"attempt {entry.attempt} of {entry.namespace}/{entry.name} holds {entry.size} IPUs; "
            f"for {size} release them first or begin a new attempt"
        )


Holder = tuple[str, int]
ANY_TERMS: Final = "?"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerEntry:
    """The record of a partition: the job (by UID), instance and attempt that holds it, and where.

    `controller` is "host:port", `label` the "key=value" that its nodes carry; times are aware UTC.
    `asked` is the requested place of the partition, `terms` its requested properties (drift.py; "":
    an earlier version did not store them, ANY_TERMS: requests differed). `may_come`: V-IPU has a
    request for it and has not listed it, so it may appear later; `missed_at`, `has_come`: whether
    it did since its release (tombstones.py). `lost_at`: when its loss was noticed. `pod_key`: the
    id of the key that its pods use, never the key.
    """

    uid: str
    instance: int
    serial: int = 0
    namespace: str
    name: str
    attempt: int
    id: str
    size: int
    phase: Phase
    controller: str
    label: str = ""
    reserved_at: datetime
    active_at: datetime | None = None
    released_at: datetime | None = None
    reason: str = ""
    message: str = ""
    recorded: bool = False
    num_gcds: int = 0
    num_replicas: int = 0
    scope: str = ""
    terms: str = ""
    may_come: bool = False
    missed_at: datetime | None = None
    has_come: bool = False
    lost_at: datetime | None = None
    pod_key: str = ""

    @property
    def key(self) -> str:
        """The entry's key in the ConfigMap's data."""
        return f"{self.uid}.{self.instance}.{self.serial}"

    @property
    def holder(self) -> Holder:
        """Job UID and instance."""
        return self.uid, self.instance

    @property
    def is_coming(self) -> bool:
        """Return whether a request to create or reset the partition is pending."""
        return self.phase in {Phase.RESERVING, Phase.CREATING}

    @property
    def log_fields(self) -> dict[str, str]:
        """Fields of every log line about this partition; `job_uid` is the operator's as well."""
        job = f"{self.namespace}/{self.name}"
        return {"id": self.id, "job": job, "job_uid": self.uid}


# Longer ids made jobs of the first IPU Operator fail with "Failed to acquire IPU(s)".
MAX_ID_LENGTH = 42
_HASH_LENGTH = 8


def choose_partition_id(
    *, name: str, namespace: str, instance: int, uid: str, taken: Collection[str]
) -> str:
    """Return `p-<job>-<namespace>-<instance>` if it fits and is free, else a form with a hash.

    Jobs `a-b` in `c` and `a` in `b-c` have the same readable form; `taken` holds the ids in use.
    """
    readable = f"p-{name}-{namespace}-{instance}"
    if len(readable) <= MAX_ID_LENGTH and readable not in taken:
        return readable
    hashed = (_hashed_id(name, instance, uid, salt) for salt in count())
    return next(candidate for candidate in hashed if candidate not in taken)


def _hashed_id(name: str, instance: int, uid: str, salt: int) -> str:
    identity = f"{uid}/{instance}" + (f"/{salt}" if salt else "")
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_HASH_LENGTH]
    tail = f"-{digest}-{instance}"
    head = f"p-{name}"[: MAX_ID_LENGTH - len(tail)].rstrip("-._")
    return head + tail


@dataclass(frozen=True, slots=True)
class Shortage:
    """The reason that no controller takes a partition; `free` counts the free IPUs of the fleet."""

    reason: Reason
    message: str
    free: int


def partition_of(entry: TrackerEntry) -> Partition:
    """Return a tracked partition in the form for clients."""
    label, _, value = entry.label.partition("=")
    return Partition(
        uid=entry.uid,
        namespace=entry.namespace,
        name=entry.name,
        instance=entry.instance,
        attempt=entry.attempt,
        id=entry.id,
        size=entry.size,
        phase=entry.phase,
        controller=entry.controller,
        node_selector={label: value} if label else {},
        reason=entry.reason,
        message=entry.message,
        reserved_at=entry.reserved_at,
        active_at=entry.active_at,
        released_at=entry.released_at,
        key=entry.key,
        lost_at=entry.lost_at,
        release_error=release_error(entry),
        pod_key=entry.pod_key,
    )


def release_error(entry: TrackerEntry) -> str:
    """Return why the controller does not remove the partition, in its words; "" where it does."""
    is_refused = entry.phase is Phase.RELEASING and entry.reason == Reason.RELEASE_REFUSED
    return entry.message if is_refused else ""


def waiting_partition(wanted: Request | TrackerEntry, shortage: Shortage) -> Partition:
    """The answer to a request that finds no room now; nothing of it is stored."""
    return Partition(
        uid=wanted.uid,
        namespace=wanted.namespace,
        name=wanted.name,
        instance=wanted.instance,
        attempt=wanted.attempt,
        id="",
        size=wanted.size,
        phase=Phase.WAITING,
        reason=shortage.reason,
        message=shortage.message,
        needed=wanted.size,
        free=shortage.free,
    )
