"""io: a V-IPU controller whose partitions only the replica that leads can change.

The tracker refuses who writes from an old copy; V-IPU takes orders from anybody. A process that
stood still between a decision and its order would carry it out under its successor, on a partition
of the same id that is another job's or a later attempt's by then.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ipuhub.process.leadership import LeaseOverdue, while_leading
from partitions.errors import NotLeading
from partitions.vipu.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from partitions.proxy.fleet import VipuApi
    from partitions.vipu.topology import Topology
    from partitions.vipu.types import CreateRequest, VipuPartition, VipuStatus

_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


class FencedVipu:
    """`api` for a replica that leads for at least `left_seconds` more (0: not any more).

    Changes raise NotLeading, and nothing is sent, when it does not lead at that moment; they are
    given up, as Unavailable, before another replica can lead. Questions pass.
    """

    def __init__(self, api: VipuApi, left_seconds: Callable[[], float]) -> None:
        self._api = api
        self._left_seconds = left_seconds

    async def list_partitions(self) -> list[VipuPartition]:
        """All partitions, whoever made them."""
        return await self._api.list_partitions()

    async def list_ipu_attributes(self) -> Topology:
        """The fleet."""
        return await self._api.list_ipu_attributes()

    async def partition_status(self, partition_id: str) -> VipuStatus:
        """The state of a partition."""
        return await self._api.partition_status(partition_id)

    async def create_partition(self, request: CreateRequest) -> str:
        """Ask for a partition; after Unavailable it may exist."""
        return await self._change(self._api.create_partition, request)

    async def reset_partition(self, partition_id: str) -> None:
        """Bring a partition back to its first state."""
        await self._change(self._api.reset_partition, partition_id)

    async def remove_partition(self, partition_id: str, *, force: bool = False) -> None:
        """Free a partition's IPUs, with `force` whatever fails on the way."""
        await self._change(partial(self._api.remove_partition, force=force), partition_id)

    async def close(self) -> None:
        """End the connection."""
        await self._api.close()

    async def _change(self, call: Callable[[_Asked], Awaitable[_Answer]], asked: _Asked) -> _Answer:
        try:
            return await while_leading(self._left_seconds, partial(call, asked))
        except LeaseOverdue as overdue:
            raise NotLeading(str(overdue)) from None
        except TimeoutError:
            raise Unavailable("no answer for as long as this replica surely leads") from None
