"""domain: the actions that a plan consists of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.ipujob.names import Kind

if TYPE_CHECKING:
    from jobs.ipujob.names import Manifest


@dataclass(frozen=True, slots=True)
class Event:
    """An Event about the job. `is_warning`: a person may have to act."""

    reason: str
    message: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class CreateChild:
    """Create an object; if it already exists and is ours, that is success."""

    kind: Kind
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class TryPod:
    """Ask the API server by a dry run whether it would accept this pod.

    Pods of the same `key` get the same answer, whatever their job.
    """

    key: str
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DeleteChild:
    """Delete exactly this object (by UID); if it is gone, that is success. `event` is recorded
    then."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    event: Event | None = None


@dataclass(frozen=True, slots=True)
class EndPod:
    """End a pod's containers, but keep the object and its log.

    `deadline_seconds`: its activeDeadlineSeconds; None: unchanged. `told_at`: signals a sleeping
    pod to end by itself, with the deadline as a fallback; empty: the pod does not sleep.
    """

    namespace: str
    name: str
    uid: str
    deadline_seconds: int | None
    told_at: str = ""


@dataclass(frozen=True, slots=True)
class SetFinalizers:
    """Write the job's finalizers."""

    finalizers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Merge `status` (changed fields only; None removes) into the job's status, if the job is still
    the observed job; then write `events`. `absent`: names and attempts of pods that must not be
    there, as the API server itself confirms."""

    status: Manifest
    events: tuple[Event, ...] = ()
    absent: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class EnsurePartition:
    """Have an ACTIVE partition of `size` IPUs for one attempt of one instance."""

    instance: int
    attempt: int
    size: int


@dataclass(frozen=True, slots=True)
class ReleasePartition:
    """Release one instance's partition; only planned if no pod can use it any more."""

    instance: int


@dataclass(frozen=True, slots=True)
class StoreKey:
    """Have a key made for the pods of one attempt, and keep it in a Secret of the job."""

    instance: int
    attempt: int


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself (by UID): its time to live is over."""


Action = (
    CreateChild
    | DeleteJob
    | DeleteChild
    | EndPod
    | SetFinalizers
    | TryPod
    | PatchStatus
    | EnsurePartition
    | ReleasePartition
    | StoreKey
)


@dataclass(frozen=True, slots=True)
class Step:
    """Actions that can be carried out at the same time.

    With `needs_previous` the step is skipped if an earlier step failed, as when a job is brought
    up; the steps of a teardown are independent of each other.
    """

    name: str
    actions: tuple[Action, ...]
    needs_previous: bool = False

    @property
    def makes_pods(self) -> bool:
        """Return whether it brings anything to run."""
        return any(isinstance(a, CreateChild) and a.kind is Kind.POD for a in self.actions)


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order, and when to plan again if nothing changes before (seconds).

    Nothing waits for the steps in `beside`, which have an order of their own.
    """

    steps: tuple[Step, ...] = ()
    requeue_after: float | None = None
    beside: tuple[Step, ...] = ()

    def requeued(self, *seconds: float | None) -> Plan:
        """Return the plan with a next pass after at most these `seconds`; None: no change."""
        waits = [wait for wait in (self.requeue_after, *seconds) if wait is not None]
        return replace(self, requeue_after=min(waits)) if waits else self

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return all actions in order; the actions of `beside` are last."""
        return tuple(action for step in (*self.steps, *self.beside) for action in step.actions)

    @property
    def asking(self) -> frozenset[int]:
        """Return the instances that a partition is requested for."""
        return frozenset(a.instance for a in self.actions if isinstance(a, EnsurePartition))
