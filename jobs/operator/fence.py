"""io: the V-IPU Proxy, of which only the operator that leads asks for changes.

The API server refuses who writes from an old copy; the proxy knows attempts, but no copies. An
operator that stood still before a release would take the partition from the pods for which its
successor has meanwhile got it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ipuhub.process.fence import LeaseOverdue, while_leading

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from jobs.ports import PartitionFact, Partitions

_Answer = TypeVar("_Answer")


class FencedPartitions:
    """`partitions` for an operator that leads for at least `left_seconds` more (0: not any more).

    Changes raise LeaseOverdue when it does not; they are given up, by LeaseOverdue too, before
    another one can lead. Questions pass.
    """

    def __init__(self, partitions: Partitions, left_seconds: Callable[[], float]) -> None:
        self._partitions = partitions
        self._left_seconds = left_seconds

    async def list(self) -> Sequence[PartitionFact]:
        """All partitions of all jobs, in one request."""
        return await self._partitions.list()

    async def ensure(
        self, *, uid: str, namespace: str, name: str, instance: int, size: int, attempt: int
    ) -> PartitionFact:
        """Reserve and create; waits about a second for ACTIVE. Idempotent for one attempt."""
        return await self._change(
            partial(
                self._partitions.ensure,
                uid=uid,
                namespace=namespace,
                name=name,
                instance=instance,
                size=size,
                attempt=attempt,
            )
        )

    async def reset(self, uid: str, instance: int, attempt: int) -> PartitionFact:
        """Reset the partition for a new attempt."""
        return await self._change(partial(self._partitions.reset, uid, instance, attempt))

    async def release(self, uid: str, instance: int) -> PartitionFact | None:
        """Remove the partition; None: the proxy knows of none, so it is released."""
        return await self._change(partial(self._partitions.release, uid, instance))

    async def _change(self, act: Callable[[], Awaitable[_Answer]]) -> _Answer:
        try:
            return await while_leading(self._left_seconds, act)
        except TimeoutError:
            raise LeaseOverdue("no answer for as long as this replica surely leads") from None
