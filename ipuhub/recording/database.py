"""io: the store of a recording for asyncio: in its own thread, with retries while PostgreSQL is
unavailable."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import psycopg
import structlog

from ipuhub.backoff import jitter
from ipuhub.recording import metrics
from ipuhub.recording.store import Store, explain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ipuhub.backoff import Backoff
    from ipuhub.recording.buffer import Batch
    from ipuhub.recording.recorder import Fault, Recorder
    from ipuhub.recording.shapes import Checkpoint

Row = TypeVar("Row")
T = TypeVar("T")
log = structlog.get_logger(__name__)


class Database(Generic[Row]):
    """Repeats each transaction until Postgres takes it; `problem` says why it does not.

    `beat` is called before each attempt: waiting for Postgres is no standstill.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        recorder: Recorder[Row],
        backoff: Backoff,
        beat: Callable[[], None],
        holder: str = "",
    ) -> None:
        self._store = Store(arguments, recorder, holder)
        self._name = recorder.name
        self._backoff, self._beat = backoff, beat
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"record-{recorder.name}")
        self.problem = ""

    @property
    def checkpoint(self) -> Checkpoint:
        """The last committed position."""
        return self._store.checkpoint

    async def take_over(self) -> None:
        """Become the only recorder of the watch."""
        checkpoint = await self._until_done(self._store.take_over)
        metrics.record_position(self._name, checkpoint.position_at)
        metrics.record_gaps(self._name, self._store.gaps)
        log.info(
            "took the watch over",
            watch=self._name,
            epoch=checkpoint.epoch,
            position=checkpoint.resource_version,
        )

    async def commit(self, batch: Batch[Row]) -> None:
        """Commit a batch. Raises Fenced, and PositionConflict if Postgres was set to another
        position."""
        version = batch.resource_version
        self._tell(await self._until_done(lambda: self._store.commit(batch), unsure=version))

    async def replace(
        self, batch: Batch[Row], present: Sequence[str], cluster_uid: str, cause: str
    ) -> int:
        """Commit a full list; return how many rows it ended. Raises Fenced and PositionConflict."""
        vanished, refused = await self._until_done(
            lambda: self._store.replace(batch, present, cluster_uid, cause)
        )
        metrics.record_gaps(self._name, self._store.gaps)
        self._tell(refused)
        return vanished

    async def close(self) -> None:
        """Close the connection and end the thread."""
        await self._in_thread(self._store.close)
        self._thread.shutdown(wait=False)

    def _tell(self, refused: Sequence[Fault]) -> None:
        metrics.count_faults(self._name, refused)
        for fault in refused:
            log.warning(
                "postgres refused an object",
                watch=self._name,
                namespace=fault.subject.namespace,
                name=fault.subject.name,
                problem=fault.message,
            )

    async def _until_done(self, work: Callable[[], T], unsure: str = "") -> T:
        failures = 0
        while True:
            self._beat()
            try:
                if failures:
                    await self._in_thread(lambda: self._store.reopen(unsure))
                done = await self._in_thread(work)
            except psycopg.Error as error:
                await self._pause(failures, error)
                failures += 1
                continue
            if self.problem:
                log.info("postgres is back", watch=self._name)
                self.problem = ""
            return done

    async def _pause(self, failures: int, error: psycopg.Error) -> None:
        sentence = explain(error)
        if not self.problem:
            event = "postgres refuses the work" if error.sqlstate else "postgres does not answer"
            log.warning(event, watch=self._name, problem=sentence)
        self.problem = f"Postgres: {sentence}"
        await asyncio.sleep(self._backoff.delay_seconds(failures, jitter()))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run blocking work; a cancelled caller still waits for it, so that it never runs on."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            with suppress(Exception):
                await future
            raise
