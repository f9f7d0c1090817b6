"""io: records the Kubernetes Events of jobs and their pods, which the cluster deletes after an
hour.

No checkpoint is needed: after a start it lists the Events that the cluster still has, and a
repeated Event changes nothing. Without the right to read Events, only jobs are recorded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psycopg
import structlog

from ipuhub.backoff import Backoff, jitter
from ipuhub.kube.client import selector_params
from ipuhub.kube.errors import ApiError, Gone
from ipuhub.kube.resources import EVENTS
from ipuhub.kube.watch import Scope, Watch
from ipuhub.patientpostgres.connection import connect
from ipuhub.recording.metrics import JOB_EVENTS_DROPPED
from ipuhub.recording.reading import Decoder
from ipuhub.recording.store import explain, is_refusal
from jobs.history.eventbacklog import Backlog
from jobs.history.eventrows import KINDS, event_row_of
from jobs.history.eventstore import store_events

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from ipuhub.kube.client import KubeClient
    from jobs.history.eventrows import EventRow
    from jobs.ipujob.names import Manifest

log = structlog.get_logger(__name__)
_POSTGRES: Final = "Postgres"
_DROPPED: Final = "dropped"
_ROWS_AT_ONCE: Final = 1_000
_LIST_LIMIT: Final = 500
_PAUSE_SECONDS: Final = 1.0
_BACKOFF: Final = Backoff(1.0, 60.0)


class EventFollower:
    """Follows the Events of all jobs and their pods and keeps them, until cancelled.

    `database` are psycopg's arguments, `clock` gives aware UTC times.
    """

    def __init__(
        self, client: KubeClient, database: Mapping[str, Any], clock: Callable[[], datetime]
    ) -> None:
        self._client, self._database, self._clock = client, dict(database), clock
        self._decoder = Decoder(dict)
        self._backlog = Backlog()
        self._problems: dict[str, str] = {}
        self._watches: dict[str, Watch] = {}
        self._failures: Counter[str] = Counter()
        self._news, self._settled, self._missed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @property
    def problem(self) -> str:
        """Return why Events are not kept now; empty: they are."""
        watches = (watch.problem for watch in self._watches.values())
        return "; ".join(dict.fromkeys(filter(None, [*self._problems.values(), *watches])))

    async def run(self) -> None:
        """Follow both kinds of Events, and write what comes."""
        async with asyncio.TaskGroup() as group:
            for kind in KINDS:
                group.create_task(self._follow(kind))
            group.create_task(self._list_dropped())
            group.create_task(self._write())

    async def _follow(self, kind: str) -> None:
        while True:
            try:
                version = await self._list(kind)
                scope = Scope(EVENTS, field_selector=_selector(kind))
                heard = partial(self._is_well, kind)
                watch = Watch(self._client, scope, version, on_heard=heard)
                self._watches[kind] = watch
                async with aclosing(watch.events()) as events:
                    async for event in events:
                        if event.type in {"ADDED", "MODIFIED"}:  # DELETED: by age
                            await self._take(event.object)
            except Gone as error:
                log.info("listing events again", about=kind, why=str(error))
            except ApiError as error:
                self._say(kind, str(error))
            finally:
                self._watches.pop(kind, None)
            await self._pause(kind)

    async def _list(self, kind: str) -> str:
        """Take all Events about `kind`, and return the version to watch from.

        Reads the list without pages if the first page expires from the server's history before the
        last is read.
        """
        params = selector_params("", _selector(kind)) | {"limit": str(_LIST_LIMIT)}
        while True:
            try:
                content = await self._client.list_page(EVENTS, None, params)
            except Gone:
                if "continue" not in params:
                    raise
                params = selector_params("", _selector(kind))
                continue
            page = self._decoder.page(content)
            for change in page.changes:
                if change.manifest is not None:
                    await self._take(change.manifest)
            if not page.token:
                return page.resource_version
            params["continue"] = page.token

    async def _list_dropped(self) -> None:
        """List again after Events were dropped: by then their jobs may be recorded."""
        while True:
            await self._missed.wait()
            await self._pause(_DROPPED)
            self._missed.clear()
            try:
                for kind in KINDS:
                    await self._list(kind)
            except ApiError:  # the watch meets it as well, and says so
                self._missed.set()
            if not self._missed.is_set():
                self._is_well(_DROPPED)

    async def _take(self, manifest: Manifest) -> None:
        """Add an Event to the backlog; while that is full, neither list nor watch is read on."""
        row = event_row_of(manifest, self._clock())
        if row is None or not row.uid:
            return
        while not self._backlog.has_room(row.uid):
            self._settled.clear()
            await self._settled.wait()
        self._backlog.put(row)
        self._news.set()

    async def _write(self) -> None:
        """Store due Events, about once a second; while PostgreSQL is unavailable, all wait."""
        while True:
            await self._news.wait()
            due = self._backlog.due(self._clock(), _ROWS_AT_ONCE)
            try:
                unknown = await asyncio.to_thread(self._store, due) if due else set()
            except psycopg.Error as error:
                self._say(_POSTGRES, f"{_POSTGRES}: {explain(error)}")
                await self._pause(_POSTGRES)
                continue
            if due:
                self._is_well(_POSTGRES)
            dropped = self._backlog.settle(due, unknown, self._clock())
            self._settled.set()
            self._note_dropped(dropped)
            if not self._backlog:
                self._news.clear()
            if len(due) < _ROWS_AT_ONCE:
                await asyncio.sleep(_PAUSE_SECONDS)

    def _note_dropped(self, count: int) -> None:
        if count:
            JOB_EVENTS_DROPPED.labels("backlog").inc(count)
            if not self._missed.is_set():
                log.warning("too many events wait for jobs' records: listing again", dropped=count)
            self._missed.set()

    def _store(self, rows: Sequence[EventRow]) -> set[str]:
        with connect(self._database, autocommit=True) as connection:
            return store_all(connection, rows)

    async def _pause(self, part: str) -> None:
        pause = _BACKOFF.delay_seconds(self._failures[part], jitter())
        self._failures[part] += 1
        await asyncio.sleep(pause)

    def _is_well(self, part: str) -> None:
        self._failures[part] = 0
        self._say(part, "")

    def _say(self, part: str, problem: str) -> None:
        """Log when a problem begins and ends, however often it shows meanwhile."""
        before = self._problems.get(part, "")
        self._problems[part] = problem
        if problem and not before:
            log.warning("events of jobs are not kept", problem=problem)
        elif before and not problem:
            log.info("events of jobs are kept again", after=before)


def _selector(kind: str) -> str:
    return f"involvedObject.kind={kind}"


def store_all(connection: psycopg.Connection[Any], rows: Sequence[EventRow]) -> set[str]:
    """Store rows; where PostgreSQL refuses them, halves of them, down to the row at fault."""
    try:
        with connection.transaction(), connection.cursor() as cursor:
            return store_events(cursor, rows)
    except (psycopg.Error, UnicodeError, OverflowError) as error:
        if not is_refusal(error):
            raise
        if len(rows) == 1:
            JOB_EVENTS_DROPPED.labels("refused").inc()
            log.warning("postgres refused an event", uid=rows[0].uid, problem=str(error))
            return set()
        half = len(rows) // 2
        return store_all(connection, rows[:half]) | store_all(connection, rows[half:])
