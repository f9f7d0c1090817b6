"""domain: the actions that a plan consists of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jobs.ipujob.names import Kind

if TYPE_CHECKING:
    from jobs.ipujob.manifests import Manifest


@dataclass(frozen=True, slots=True)
class Event:
    """Something to tell about the job. `is_warning`: somebody may have to act."""

    reason: str
    message: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class CreateChild:
    """Create an object; one of ours that exists already is success."""

    kind: Kind
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class TryPod:
    """Ask the API server whether it would take this pod, without creating it. Pods of one `key`
    get the same answer, whatever job they are of."""

    key: str
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class DeleteChild:
    """Delete exactly this object (by UID); one that is gone is success. `event` is told then."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    event: Event | None = None


@dataclass(frozen=True, slots=True)
class EndPod:
    """End a pod's containers and keep the object and its log. `deadline_seconds`: its
    activeDeadlineSeconds, None to leave it. `told_at`: tells a sleeping pod to end by itself, which
    the deadline only makes sure of; empty: there is nobody to tell."""

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
    """Merge `status` (changed fields only; None removes) into the job's status, if the job is
    still the one observed; then tell `events`. `absent`: names and attempts of pods that must
    not be there, by the API server's own word."""

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
    """Free one instance's partition. Only planned when no pod of it can use it any more."""

    instance: int


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
)


@dataclass(frozen=True, slots=True)
class Step:
    """Actions that may be carried out at the same time.

    With `needs_previous` the step is skipped when an earlier one failed, as in the way up; the
    steps of the way down are independent of each other.
    """

    name: str
    actions: tuple[Action, ...]
    needs_previous: bool = False

    @property
    def makes_pods(self) -> bool:
        """Whether it brings anything to run."""
        return any(isinstance(a, CreateChild) and a.kind is Kind.POD for a in self.actions)


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order, and when to look again if nothing changes before (seconds).

    `beside` are steps, in an order of their own, that nothing else waits for.
    """

    steps: tuple[Step, ...] = ()
    requeue_after: float | None = None
    beside: tuple[Step, ...] = ()

    def requeued(self, seconds: float | None) -> Plan:
        """The same plan, looked at again after `seconds` at the latest; None: no sooner."""
        waits = [wait for wait in (self.requeue_after, seconds) if wait is not None]
        return replace(self, requeue_after=min(waits) if waits else None)

    @property
    def actions(self) -> tuple[Action, ...]:
        """All actions in order, those beside the others last."""
        return tuple(action for step in (*self.steps, *self.beside) for action in step.actions)

    @property
    def asking(self) -> frozenset[int]:
        """The instances that a partition is asked for."""
        return frozenset(a.instance for a in self.actions if isinstance(a, EnsurePartition))
