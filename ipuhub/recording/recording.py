"""io: runs one recorder: list, watch, commit; and continues after every outage."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import structlog

from ipuhub.backoff import Backoff, jitter
from ipuhub.kube.errors import ApiError, Gone
from ipuhub.kube.resources import NAMESPACES
from ipuhub.kube.watch import Pace, Watch
from ipuhub.recording import metrics
from ipuhub.recording.buffer import Batch, Buffer
from ipuhub.recording.database import Database
from ipuhub.recording.positions import PositionClock
from ipuhub.recording.reading import Decoder, Lister, Reader, revision_of
from ipuhub.recording.shapes import is_reached, reason_to_list
from ipuhub.recording.store import Fenced, PositionConflict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.namespaces import ChosenNamespaces
    from ipuhub.process.health import Health
    from ipuhub.recording.recorder import Recorder

Row = TypeVar("Row")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingOptions:
    """Sizes and ages of what is written at once, and the most that waits while Postgres is
    unavailable.

    `holder` names the process in the checkpoint; `chosen` are the namespaces of the recorder, where
    their labels say which.
    """

    batch_events: int = 1_000
    batch_seconds: float = 0.2
    buffer_events: int = 5_000
    list_limit: int = 500
    holder: str = ""
    chosen: ChosenNamespaces | None = None
    pace: Pace = field(default_factory=Pace)
    backoff: Backoff = field(default_factory=lambda: Backoff(0.2, 10.0))


class _ListNeeded(Exception):  # noqa: N818  # it is no error
    """A watch cannot go on from the checkpoint."""


class Recording(Generic[Row]):
    """Keeps what `recorder` watches in Postgres; `clock` gives aware UTC times.

    Of namespaces that come to be `options.chosen` (and at each start of all of them) what is there
    already is listed, between the changes of the watch.

    `problem` says what keeps it from its work now; it is the readiness check `record <name>`.
    `rival` names another prober that records, beside which this one may not; empty: none.
    """

    def __init__(
        self,
        client: KubeClient,
        recorder: Recorder[Row],
        database: Mapping[str, Any],
        health: Health,
        clock: Callable[[], datetime],
        options: RecordingOptions | None = None,
    ) -> None:
        self._client, self._recorder, self._clock = client, recorder, clock
        self._options = options or RecordingOptions()
        self._chosen = self._options.chosen
        self._health = health
        self._reader = Reader(recorder)
        self._decoder = Decoder(recorder.manifest)
        self._watch: Watch | None = None
        self._api_problem, self._api_failures = "not started", 0
        self._is_fenced = False
        self.rival = ""
        self._name = recorder.name
        self._beat = f"record {recorder.name}"
        self._database: Database[Row] = Database(
            database,
            recorder,
            self._options.backoff,
            lambda: health.beat(self._beat),
            self._options.holder,
        )
        health.ask(self._beat, lambda: self.problem)

    @property
    def problem(self) -> str:
        """Return the problem that prevents recording; empty: none."""
        if self._is_fenced:
            return (
                self.rival or "another prober took this watch over: this prober records it no more"
            )
        watch = self._watch.problem if self._watch else ""
        chosen = self._chosen.problem if self._chosen else ""
        return self._database.problem or chosen or self._api_problem or watch

    @property
    def committed_until(self) -> datetime | None:
        """The time of the last committed position."""
        return self._database.checkpoint.position_at

    @property
    def name(self) -> str:
        """The recorder's."""
        return self._name

    @property
    def position(self) -> str:
        """The last committed version."""
        return self._database.checkpoint.resource_version

    async def run(self) -> None:
        """Record until cancelled; return only when another recorder took the watch over."""
        try:
            if self._chosen is not None:  # before, it is not known what is recorded
                await self._chosen.wait_known()
            await self._database.take_over()
            while True:
                self._health.beat(self._beat)
                try:
                    await self._session()
                except PositionConflict:
                    log.info("postgres is at another position, going on there", watch=self._name)
                except ApiError as error:
                    await self._wait_for_api(error)
        except Fenced as error:
            self._is_fenced, self.rival = True, str(error)
            details = {"problem": self.rival} if self.rival else {}
            log.warning("another prober took this watch over", watch=self._name, **details)
        finally:
            await self._database.close()

    async def list_once(self, cause: str) -> None:
        """Take the watch over, commit one full list and end. Raises ApiError and Fenced."""
        try:
            await self._database.take_over()
            await self._list(await self._cluster_uid(), cause)
        finally:
            await self._database.close()

    async def _session(self) -> None:
        """Go on from the checkpoint; return when a list was needed and is committed."""
        cluster_uid = await self._cluster_uid()
        cause = await self._reason_to_list(cluster_uid)
        if cause:
            await self._list(cluster_uid, cause)
            return
        self._note_api_back()
        try:
            await self._record_watch(cluster_uid)
        except Gone as error:
            await self._list(cluster_uid, f"the server's history did not reach back: {error}")
        except _ListNeeded:
            log.info("the watch cannot go on", watch=self._name)

    def _note_api_back(self) -> None:
        if self._api_failures:
            log.info("the api server is back", watch=self._name)
        self._api_problem, self._api_failures = "", 0

    async def _wait_for_api(self, error: ApiError) -> None:
        if not self._api_failures:
            log.warning("the api server does not answer", watch=self._name, problem=str(error))
        self._api_problem = str(error)
        pause = self._options.backoff.delay_seconds(self._api_failures, jitter())
        self._api_failures += 1
        await asyncio.sleep(max(pause, error.retry_after or 0.0))

    async def _cluster_uid(self) -> str:
        """The identity of a cluster: the UID of the namespace that every cluster has."""
        found = await self._client.get(NAMESPACES, "kube-system")
        return str(found["metadata"]["uid"])

    async def _reason_to_list(self, cluster_uid: str) -> str:
        revision = await self._revision()
        checkpoint = self._database.checkpoint
        return reason_to_list(checkpoint, cluster_uid, revision, self._recorder.selection)

    async def _list(self, cluster_uid: str, cause: str) -> None:
        log.info("listing all", watch=self._name, cause=cause)
        scope, limit = self._recorder.scope, self._options.list_limit
        at = self._clock()  # what the list shows is at least as new, and at most as `answered_at`
        read = self._reader.read_page
        lister = Lister(self._client, scope, self._decoder, lambda page: read(page, at))
        pages, version = await lister.all(limit)
        batch: Batch[Row] = Batch("", at)
        for part, _ in pages:
            batch.append(part)
        batch.resource_version, batch.answered_at = version, self._clock()
        present = [uid for _, uids in pages for uid in uids]
        vanished = await self._database.replace(batch, present, cluster_uid, cause)
        self._note_api_back()
        metrics.LISTS.labels(self._name).inc()
        metrics.VANISHED.labels(self._name).inc(vanished)
        self._count(batch)
        log.info("listed", watch=self._name, rows=len(batch.rows), vanished=vanished)
        await self._recorder.committed(batch.rows)

    async def _record_watch(self, cluster_uid: str) -> None:
        """Watch and commit until something ends it; what came before that is committed."""
        options = self._options
        buffer: Buffer[Row] = Buffer(
            options.buffer_events, options.batch_events, options.batch_seconds
        )
        reading = asyncio.create_task(self._read(cluster_uid, buffer))
        try:
            while (batch := await self._next(buffer)) is not None:
                await self._commit(batch)
            await reading
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, ApiError, _ListNeeded):
                await reading
            self._watch = None

    async def _next(self, buffer: Buffer[Row]) -> Batch[Row] | None:
        while True:
            self._health.beat(self._beat)
            with suppress(TimeoutError):
                async with asyncio.timeout(30):
                    return await buffer.take()

    async def _commit(self, batch: Batch[Row]) -> None:
        now = asyncio.get_running_loop().time
        batch.lag_seconds = now() - batch.began_at
        await self._database.commit(batch)
        self._count(batch)
        metrics.LAG.labels(self._name).set(now() - batch.began_at)
        await self._recorder.committed(batch.rows)

    def _count(self, batch: Batch[Row]) -> None:
        metrics.EVENTS.labels(self._name).inc(batch.events)
        metrics.ROWS.labels(self._name).inc(len(batch.rows))
        metrics.count_faults(self._name, batch.faults)
        metrics.COMMITS.labels(self._name).inc()
        metrics.record_position(self._name, batch.position_at)

    async def _read(self, cluster_uid: str, buffer: Buffer[Row]) -> None:
        checkpoint = self._database.checkpoint
        version, known_at = checkpoint.resource_version, checkpoint.position_at or self._clock()
        times = PositionClock(self._clock, self._revision, version, known_at)

        async def check() -> None:
            if await self._cluster_uid() != cluster_uid:
                raise _ListNeeded
            if not is_reached(watch.resource_version, await times.opening()):
                raise _ListNeeded

        scope, pace = self._recorder.scope, self._options.pace
        self._watch = watch = Watch(self._client, scope, version, pace=pace, before_open=check)
        turn = asyncio.Lock()
        arriving = asyncio.create_task(self._read_arrivals(times, buffer, turn))
        try:
            async with aclosing(watch.batches(self._decoder.line)) as batches:
                async for changes in batches:
                    async with turn:
                        heard_at, known_at = times.heard(changes[-1].resource_version)
                        batch = self._reader.read(changes, heard_at, known_at, times.happened_after)
                        await buffer.add(batch)
                    times.asking()
                    if self._chosen is not None and arriving.done():
                        arriving.result()
        finally:
            arriving.cancel()
            times.close()
            buffer.close()

    async def _read_arrivals(
        self, times: PositionClock, buffer: Buffer[Row], turn: asyncio.Lock
    ) -> None:
        """Add what is already there in newly chosen namespaces, as if it had changed now.

        The watch then shows again what came before the list, and so ends where the list was.
        """
        if self._chosen is None:
            return
        self._chosen.restart_arrivals()
        while True:
            names = await self._chosen.arrivals()
            async with turn:
                for done, name in enumerate(names):
                    try:
                        await self._add_listed(name, times, buffer)
                    except ApiError as error:
                        log.info("a namespace is not listed yet", namespace=name, why=str(error))
                        self._chosen.report_failed(names[done:])
                        break
            await asyncio.sleep(self._options.backoff.delay_seconds(0, jitter()))

    async def _add_listed(self, name: str, times: PositionClock, buffer: Buffer[Row]) -> None:
        scope = replace(self._recorder.scope, namespace=name)
        lister = Lister(self._client, scope, self._decoder, list)
        pages, _ = await lister.all(self._options.list_limit)
        version, known_at = times.position
        for changes in pages:
            if changes:
                batch = self._reader.read(changes, self._clock(), known_at)
                batch.resource_version = version
                await buffer.add(batch)

    async def _revision(self) -> str:
        return await revision_of(self._client, self._recorder.scope)
