"""io: the proxy's calls to a V-IPU controller: only while it leads, with its changes counted."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from ipuhub.partition import Phase, PodKey
from ipuhub.process.leadership import fenced
from partitions.errors import ControllerUnavailable, NotLeading
from partitions.vipu.errors import NotFound, Unavailable, VipuError
from partitions.vipu.types import ReadyState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.vipu.client import Credentials, TlsFiles
    from partitions.vipu.telemetry import Heartbeat
    from partitions.vipu.topology import Topology
    from partitions.vipu.types import CreateRequest, VipuPartition, VipuStatus


class VipuApi(Protocol):
    """The part of a V-IPU controller's API that the proxy uses; every method raises VipuError."""

    async def list_partitions(self) -> list[VipuPartition]:
        """Return all partitions, also of other clients."""
        ...

    async def list_ipu_attributes(self) -> Topology:
        """The fleet."""
        ...

    async def version(self) -> str:
        """The release of the controller."""
        ...

    async def heartbeat(self, agent: str) -> Heartbeat:
        """The last heartbeat of an agent, as far as the controller reports it."""
        ...

    async def create_partition(self, request: CreateRequest) -> str:
        """Ask for a partition; after Unavailable it may exist."""
        ...

    async def partition_status(self, partition_id: str) -> VipuStatus:
        """The state of a partition."""
        ...

    async def reset_partition(self, partition_id: str) -> None:
        """Bring a partition back to its first state."""
        ...

    async def remove_partition(self, partition_id: str, *, force: bool = False) -> None:
        """Begin to remove a partition; `force` waits for no machine."""
        ...

    def pod_tls(self) -> TlsFiles | None:
        """Return what pods with a key present and trust; None: pods get no key."""
        ...

    async def create_partition_key(self, partition_id: str) -> Credentials | None:
        """A user and key that read and reset this partition alone; an earlier key ends. None: the
        controller has no such keys."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


_NO_QUESTION = {Phase.RESERVING, Phase.CREATING, Phase.RELEASING}
_MOST_QUESTIONS = 64  # for one answer
_QUESTIONS = (
    "list_partitions",
    "list_ipu_attributes",
    "version",
    "heartbeat",
    "partition_status",
    "pod_tls",
    "close",
)


def only_while_leading(api: VipuApi, left_seconds: Callable[[], float]) -> VipuApi:
    """Return a V-IPU controller for a replica whose leadership is certain for another
    `left_seconds`.

    The tracker refuses writes from an old copy; V-IPU accepts writes from any client. A replica
    that was paused would change a partition of the same id that belongs to another job or attempt
    by now.
    """
    return fenced(api, _QUESTIONS, left_seconds, NotLeading, Unavailable)


async def make_key(api: VipuApi, partition_id: str) -> PodKey | None:
    """Make a key for the pods of a partition; an earlier key ends. None: its controller makes none.

    Raises ControllerUnavailable.
    """
    try:
        files = api.pod_tls()
        made = await api.create_partition_key(partition_id) if files else None
    except VipuError as error:
        raise ControllerUnavailable(f"no key for partition {partition_id}: {error}") from error
    if files is None or made is None:
        return None
    return PodKey(
        id=secrets.token_hex(4),
        user_id=made.user_id,
        access_key=made.access_key,
        ca=files.ca.decode(),
        certificate=(files.certificate or b"").decode(),
        private_key=(files.key or b"").decode(),
    )


async def is_under_removal(api: VipuApi, partition_id: str) -> bool:
    """Return whether a controller is removing a partition that it lists; raises VipuError.

    A list does not contain operations, only the status of a partition does.
    """
    try:
        return (await api.partition_status(partition_id)).is_removing
    except NotFound:
        return False


async def find_removals(
    views: Iterable[ControllerView],
    tracked: Iterable[TrackerEntry],
    api_of: Callable[[str], VipuApi],
) -> frozenset[tuple[str, str]]:
    """Return which of the listed partitions are being removed, by controller and id.

    Asks about those that are PENDING without a job that waits for them, which are few. A partition
    whose controller does not answer counts as not being removed.
    """
    phases = {(entry.controller, entry.id): entry.phase for entry in tracked}
    pending = [
        (view.spec.address, partition.id)
        for view in views
        if not view.age_seconds
        for partition in view.partitions
        if partition.ready_state is ReadyState.PENDING
    ]
    known = {key for key in pending if phases.get(key) is Phase.RELEASING}
    keys = [key for key in pending if phases.get(key) not in _NO_QUESTION][:_MOST_QUESTIONS]
    answers = await asyncio.gather(
        *(is_under_removal(api_of(address), name) for address, name in keys),
        return_exceptions=True,
    )
    found = {key for key, answer in zip(keys, answers, strict=True) if answer is True}
    return frozenset(known | found)


class ChangeCounter:
    """Counts what is changed on a controller: before each order, since a list may be under way, and
    after it."""

    def __init__(self, api: VipuApi) -> None:
        self._api = api
        self.changes = 0

    async def list_partitions(self) -> list[VipuPartition]:
        return await self._api.list_partitions()

    async def list_ipu_attributes(self) -> Topology:
        return await self._api.list_ipu_attributes()

    async def version(self) -> str:
        return await self._api.version()

    async def heartbeat(self, agent: str) -> Heartbeat:
        return await self._api.heartbeat(agent)

    async def create_partition(self, request: CreateRequest) -> str:
        with self._noted():
            return await self._api.create_partition(request)

    async def partition_status(self, partition_id: str) -> VipuStatus:
        return await self._api.partition_status(partition_id)

    async def reset_partition(self, partition_id: str) -> None:
        with self._noted():
            await self._api.reset_partition(partition_id)

    async def remove_partition(self, partition_id: str, *, force: bool = False) -> None:
        with self._noted():
            await self._api.remove_partition(partition_id, force=force)

    def pod_tls(self) -> TlsFiles | None:
        return self._api.pod_tls()

    async def create_partition_key(self, partition_id: str) -> Credentials | None:
        return await self._api.create_partition_key(partition_id)

    async def close(self) -> None:
        await self._api.close()

    @contextmanager
    def _noted(self) -> Iterator[None]:
        self.changes += 1
        try:
            yield
        finally:
            self.changes += 1
