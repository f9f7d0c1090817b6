"""domain: what the operator needs of the V-IPU Proxy, declared where it is consumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipuhub.partition import Partition


class Partitions(Protocol):
    """The V-IPU Proxy. Every call may raise an error with a `retryable` attribute."""

    async def list(self) -> Sequence[Partition]:
        """All partitions of all jobs, in one request."""
        ...

    async def ensure(
        self, *, uid: str, namespace: str, name: str, instance: int, size: int, attempt: int
    ) -> Partition:
        """Reserve and create; waits about a second for ACTIVE. Idempotent for one attempt."""
        ...

    async def reset(self, uid: str, instance: int, attempt: int) -> Partition:
        """Reset the partition for a new attempt."""
        ...

    async def release(self, uid: str, instance: int) -> Partition | None:
        """Remove the partition; None: the proxy knows of none, so it is released."""
        ...
