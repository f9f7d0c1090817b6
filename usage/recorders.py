"""glue: what the prober records of jobs, partitions and capacity, built from plain values."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import structlog

from ipuhub.kube.namespacegroups import NamespaceGroups
from jobs.history.recorder import JobRecorder
from partitions.history.acknowledge import Acknowledger
from partitions.history.capacity import CapacityPoll
from partitions.history.recorder import (
    Owner,
    PartitionRecorder,
    note_capacity_seen,
    recorded_of,
    store_capacity,
)
from usage.pods.rows import JobOwner
from usage.pods.stamps import prove

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from typing import TypeVar

    from ipuhub.authors import AuthorTrust
    from ipuhub.kube.client import KubeClient
    from partitions.client import ProxyClient
    from partitions.history.capacity import Changes

    T = TypeVar("T")

log = structlog.get_logger(__name__)
_SILENCE_SECONDS = 60.0
_JOBS = """
SELECT uid, namespace, "group", "user", user_verified FROM jobs_jobrecord WHERE uid = ANY(%s)
"""


@dataclass(frozen=True, slots=True)
class TrackerPlace:
    """Where the tracker is, and how often the proxy is asked for capacity."""

    namespace: str
    name: str
    capacity_seconds: float = 10.0


def recorded_jobs(cursor: psycopg.Cursor[Any], jobs: Iterable[str]) -> dict[str, JobOwner]:
    """The recorded ones among these jobs, by UID."""
    cursor.execute(_JOBS, [list(jobs)])
    return {uid: JobOwner(*whose) for uid, *whose in cursor.fetchall()}


def owners_of(cursor: psycopg.Cursor[Any], jobs: Iterable[str]) -> dict[str, Owner]:
    """Whose the recorded ones among these jobs are, by UID."""
    found = recorded_jobs(cursor, jobs).items()
    return {uid: Owner(job.group, job.user, job.user_verified) for uid, job in found}


def prove_stamps(cursor: psycopg.Cursor[Any], jobs: Collection[str]) -> int:
    """Believe the stamps of pods that waited for the records of these jobs; how many."""
    return prove(cursor, recorded_jobs, jobs)


class JobsAndPartitions:
    """The recorders of jobs and of partitions, and what runs beside them.

    `database` are psycopg's arguments, `clock` gives aware UTC times.
    """

    def __init__(
        self,
        client: KubeClient,
        proxy: ProxyClient,
        database: Mapping[str, Any],
        clock: Callable[[], datetime],
        place: TrackerPlace,
        authors: AuthorTrust | None = None,
    ) -> None:
        self._database = dict(database)
        # A poll or two that fail are no gap: nothing much happens in so short a time.
        self._silence_seconds = max(_SILENCE_SECONDS, 3 * place.capacity_seconds)
        self.groups = NamespaceGroups(client)
        self.jobs = JobRecorder(self.groups.group_of, authors, prove_stamps)
        self.partitions = PartitionRecorder(place.namespace, place.name, self._owners_of)
        self.acknowledger = Acknowledger(client, self.partitions.scope, proxy, self._recorded_of)
        self.partitions.released = self.acknowledger.wake
        self.capacity = CapacityPoll(proxy, self._store_capacity, clock, place.capacity_seconds)

    @asynccontextmanager
    async def running(self, patience_seconds: float = 10.0) -> AsyncIterator[None]:
        """Follow the namespaces, acknowledge tombstones and poll capacity meanwhile.

        Begins when the namespaces are known, or after `patience_seconds` without them.
        """
        async with asyncio.TaskGroup() as group:
            works = (self.groups.run(), self.acknowledger.run(), self.capacity.run())
            tasks = [group.create_task(work) for work in works]
            if not await self.groups.wait_known(patience_seconds):
                log.warning("namespaces are not known: each counts as its own group for now")
            yield
            for task in tasks:
                task.cancel()

    def _owners_of(
        self, cursor: psycopg.Cursor[Any], jobs: Sequence[tuple[str, str]]
    ) -> dict[str, Owner]:
        """Whose the partitions of jobs are; a job without a record counts for its namespace."""
        owners = {uid: Owner(self.groups.group_of(namespace), "") for uid, namespace in jobs}
        return owners | owners_of(cursor, owners)

    async def _recorded_of(self, keys: Sequence[str]) -> list[str]:
        return await self._in_transaction(lambda cursor: recorded_of(cursor, keys))

    async def _store_capacity(self, changes: Changes, at: datetime) -> int:
        def store(cursor: psycopg.Cursor[Any]) -> int:
            written = store_capacity(cursor, changes, at)
            note_capacity_seen(cursor, at, self._silence_seconds)
            return written

        return await self._in_transaction(store)

    async def _in_transaction(self, work: Callable[[psycopg.Cursor[Any]], T]) -> T:
        """Run one short transaction beside the recordings, on a connection of its own."""

        def transact() -> T:
            with psycopg.connect(**self._database) as connection, connection.cursor() as cursor:
                return work(cursor)

        return await asyncio.to_thread(transact)
