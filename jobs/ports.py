"""domain: what the operator needs of partitions, declared where it is consumed.

A partition of a job, as far as the operator knows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from jobs.ipujob.conditions import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


class PartitionFact(Protocol):
    """One partition of a job, as the V-IPU Proxy knows it.

    `phase` is waiting, reserving, creating, active, error, releasing or released; `controller`
    is "host:port"; `node_selector` is what pods of the partition must carry; `needed` and `free`
    are IPUs, of use while waiting.
    """

    @property
    def uid(self) -> str:
        """UID of the job that holds the partition."""
        ...

    @property
    def namespace(self) -> str:
        """The job's namespace."""
        ...

    @property
    def name(self) -> str:
        """The job's name."""
        ...

    @property
    def instance(self) -> int:
        """Which instance of the job, from 0."""
        ...

    @property
    def attempt(self) -> int:
        """Which attempt of the instance, from 0."""
        ...

    @property
    def id(self) -> str:
        """Partition id, as V-IPU knows it."""
        ...

    @property
    def size(self) -> int:
        """IPUs."""
        ...

    @property
    def phase(self) -> str:
        """waiting, reserving, creating, active, error, releasing or released."""
        ...

    @property
    def controller(self) -> str:
        """V-IPU controller, "host:port"."""
        ...

    @property
    def node_selector(self) -> Mapping[str, str]:
        """Labels of the nodes that reach the partition."""
        ...

    @property
    def reason(self) -> str:
        """Why it waits or is in error, in one word."""
        ...

    @property
    def message(self) -> str:
        """The same as a sentence."""
        ...

    @property
    def needed(self) -> int | None:
        """IPUs needed, while waiting."""
        ...

    @property
    def free(self) -> int | None:
        """IPUs free, while waiting."""
        ...

    @property
    def reserved_at(self) -> datetime | None:
        """When it was reserved."""
        ...

    @property
    def active_at(self) -> datetime | None:
        """When it became ACTIVE."""
        ...

    @property
    def released_at(self) -> datetime | None:
        """When it was removed."""
        ...


class Partitions(Protocol):
    """The V-IPU Proxy. Every call may raise an error with a `retryable` attribute."""

    async def list(self) -> Sequence[PartitionFact]:
        """All partitions of all jobs, in one request."""
        ...

    async def ensure(
        self, *, uid: str, namespace: str, name: str, instance: int, size: int, attempt: int
    ) -> PartitionFact:
        """Reserve and create; waits about a second for ACTIVE. Idempotent for one attempt."""
        ...

    async def reset(self, uid: str, instance: int, attempt: int) -> PartitionFact:
        """Reset the partition for a new attempt."""
        ...

    async def release(self, uid: str, instance: int) -> PartitionFact | None:
        """Remove the partition; None: the proxy knows of none, so it is released."""
        ...


REMOVAL_REFUSED = Reason.REMOVAL_REFUSED.value
LOST = Reason.PARTITION_LOST.value
ASK_AGAIN = timedelta(seconds=5)  # between two calls for one partition that is not there yet


class Phase(StrEnum):
    """Where a partition stands; `waiting` is only ever an answer."""

    WAITING = "waiting"
    RESERVING = "reserving"
    CREATING = "creating"
    ACTIVE = "active"
    ERROR = "error"
    RELEASING = "releasing"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Partition:
    """One instance's partition. `asked_at`: when the operator last asked for it (None: not since
    it started, or not since something changed that makes asking again worth while)."""

    instance: int
    phase: str
    attempt: int = 0
    id: str = ""
    size: int = 0
    controller: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    message: str = ""
    asked_at: datetime | None = None

    @property
    def is_removal_refused(self) -> bool:
        """The V-IPU controller does not remove it, by `message`."""
        return self.phase == Phase.RELEASING and self.reason == REMOVAL_REFUSED

    @property
    def is_lost(self) -> bool:
        """It is gone, or a stranger's has its id: nothing of it is left to keep."""
        return self.phase == Phase.ERROR and self.reason == LOST

    def was_asked(self, now: datetime) -> bool:
        """Whether the operator has asked for it a moment ago."""
        return self.asked_at is not None and now - self.asked_at < ASK_AGAIN


def from_fact(fact: PartitionFact, asked_at: datetime | None = None) -> Partition:
    """The operator's view of what the proxy said."""
    return Partition(
        instance=fact.instance,
        phase=fact.phase,
        attempt=fact.attempt,
        id=fact.id,
        size=fact.size,
        controller=fact.controller,
        node_selector=fact.node_selector,
        reason=fact.reason,
        message=fact.message or _shortage(fact),
        asked_at=asked_at,
    )


def _shortage(fact: PartitionFact) -> str:
    if fact.phase != Phase.WAITING or fact.needed is None:
        return ""
    return f"{fact.needed} IPUs in one block are needed and not free now"
