"""domain: what the operator needs of partitions, declared where it is consumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

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
