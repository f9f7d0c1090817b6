"""domain: the attributes of a job, its attempts, pods and partitions that the job's page uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from jobs.ipujob.conditions import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime


class Attempt(Protocol):
    """One attempt of an instance."""

    instance: int
    attempt: int
    outcome: str
    reason: str
    exit_code: int | None
    message: str
    log: str
    began_at: datetime
    ended_at: datetime | None


class Request(Protocol):
    """A change of the job that a user requested through IPUHub."""

    at: datetime
    user_name: str
    action: str
    outcome: str
    message: str


class Transition(Protocol):
    """A change of state."""

    at: datetime
    state: str
    reason: str
    message: str


class ClusterEvent(Protocol):
    """A Kubernetes Event of the job, or of its pod `pod`."""

    pod: str
    type: str
    reason: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime


class Earlier(Protocol):
    """Another job, by name."""

    @property
    def uid(self) -> str: ...

    @property
    def name(self) -> str: ...


class Past(Protocol):
    """The recorded past of a job."""

    @property
    def attempts(self) -> Sequence[Attempt]: ...

    @property
    def transitions(self) -> Sequence[Transition]: ...

    @property
    def events(self) -> Sequence[ClusterEvent]: ...

    @property
    def earlier(self) -> Sequence[Earlier]: ...


class Job(Protocol):
    """A job, as last seen."""

    namespace: str
    name: str
    user: str
    ipus: int
    instances: int
    reason: str
    message: str
    restart_count: int
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    deleted_at: datetime | None
    estimated: bool

    @property
    def past(self) -> Past: ...


class Pod(Protocol):
    """The part of a pod's lifetime that is drawn."""

    pod_name: str
    role: str
    instance: int | None
    attempt: int | None
    node: str
    phase: str
    reason: str
    exit_code: int | None
    created_at: datetime
    scheduled_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    estimated: bool


class Partition(Protocol):
    """The part of a partition's lifetime that is drawn."""

    partition: str
    size: int
    reserved_at: datetime
    active_at: datetime | None
    released_at: datetime | None


class Lives(Protocol):
    """The partitions and pods of a job."""

    @property
    def pods(self) -> Sequence[Pod]: ...

    @property
    def partitions(self) -> Sequence[Partition]: ...


STOPPED: Final = "Stopped"
_ENDED_BY_A_DEADLINE: Final = "DeadlineExceeded"


def is_stopped(pod: Pod, attempts: Iterable[Attempt]) -> bool:
    """Return whether a pod ran until the operator ended it, as a worker whose launcher is done.

    Kubernetes calls it Failed, and nothing is wrong. A pod that ran into the deadline of its own
    template ends in the same way and has failed: only its attempt tells the two apart.
    """
    if pod.phase != "Failed" or pod.reason != _ENDED_BY_A_DEADLINE:
        return False
    place = pod.instance or 0, pod.attempt or 0
    own = (each.reason for each in attempts if (each.instance, each.attempt) == place)
    return Reason.POD_DEADLINE not in own


def outcome_of(pod: Pod, attempts: Iterable[Attempt]) -> str:
    """Return the phase of a pod as pages show it."""
    return STOPPED if is_stopped(pod, attempts) else pod.phase
