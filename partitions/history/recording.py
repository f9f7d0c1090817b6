"""io: the recorder of partitions, their places and capacity for the prober, from plain values."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ipuhub.patientpostgres.connection import connect
from partitions.history.acknowledge import Acknowledger
from partitions.history.capacity import CapacityPoll
from partitions.history.places import PlaceRecorder, store_places, unplaced
from partitions.history.recorder import (
    Owner,
    PartitionRecorder,
    note_capacity_seen,
    recorded_of,
    store_capacity,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from datetime import datetime
    from typing import TypeVar

    import psycopg

    from ipuhub.kube.client import KubeClient
    from ipuhub.partition import TrackerPlace
    from partitions.client import ProxyClient
    from partitions.history.capacity import Changes
    from partitions.history.places import Places, Unplaced

    T = TypeVar("T")

_SILENCE_SECONDS = 60.0


class PartitionHistory:
    """The recorder of partitions and its background tasks: acknowledgements, places, capacity.

    `owners_of` returns the owners of jobs (group, user and whether the user is verified) by their
    UIDs and namespaces. `database` are psycopg's arguments, `clock` gives aware UTC times.
    """

    def __init__(
        self,
        client: KubeClient,
        proxy: ProxyClient,
        database: Mapping[str, Any],
        clock: Callable[[], datetime],
        place: TrackerPlace,
        owners_of: Callable[
            [psycopg.Cursor[Any], Sequence[tuple[str, str]]], Mapping[str, tuple[str, str, bool]]
        ],
    ) -> None:
        self._database = dict(database)
        # A poll or two that fail are no gap: nothing much happens in so short a time.
        self._silence_seconds = max(_SILENCE_SECONDS, 3 * place.capacity_seconds)

        def owners(
            cursor: psycopg.Cursor[Any], jobs: Sequence[tuple[str, str]]
        ) -> dict[str, Owner]:
            return {uid: Owner(*whose) for uid, whose in owners_of(cursor, jobs).items()}

        self.recorder = PartitionRecorder(place.namespace, place.name, owners)
        self.acknowledger = Acknowledger(client, self.recorder.scope, proxy, self._recorded_of)
        self.recorder.released = self.acknowledger.wake
        self.places = PlaceRecorder(proxy, self._unplaced, self._store_places)
        self.recorder.active = self.places.wake
        self.capacity = CapacityPoll(proxy, self._store_capacity, clock, place.capacity_seconds)

    def works(self) -> tuple[Coroutine[Any, Any, None], ...]:
        """Return the work that runs beside the recording, until cancelled."""
        return self.acknowledger.run(), self.places.run(), self.capacity.run()

    async def _recorded_of(self, keys: Sequence[str]) -> list[str]:
        return await self._in_transaction(lambda cursor: recorded_of(cursor, keys))

    async def _unplaced(self) -> list[Unplaced]:
        return await self._in_transaction(unplaced)

    async def _store_places(self, rows: Sequence[Unplaced], places: Places) -> int:
        return await self._in_transaction(lambda cursor: store_places(cursor, rows, places))

    async def _store_capacity(self, changes: Changes, at: datetime) -> int:
        def store(cursor: psycopg.Cursor[Any]) -> int:
            written = store_capacity(cursor, changes, at)
            note_capacity_seen(cursor, at, self._silence_seconds)
            return written

        return await self._in_transaction(store)

    async def _in_transaction(self, work: Callable[[psycopg.Cursor[Any]], T]) -> T:
        """Run one short transaction beside the recordings, on a connection of its own."""

        def transact() -> T:
            with connect(self._database) as connection, connection.cursor() as cursor:
                return work(cursor)

        return await asyncio.to_thread(transact)
