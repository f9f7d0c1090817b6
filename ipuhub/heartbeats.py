"""io: heartbeats in PostgreSQL, the signs of life of processes that pages cannot reach."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import structlog

from ipuhub import __version__
from ipuhub.concurrency import end_tasks
from ipuhub.patientpostgres.connection import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

HEARTBEAT_SECONDS: Final = 30.0
WEB: Final = "web"
PROBER: Final = "prober"
MONITOR: Final = "monitor"
BEAT: Final = "beat"
WORKER: Final = "worker"
TASKS: Final = "tasks"
"""The heartbeat that a worker records when it runs beat's task: tasks are being run."""
_NOTE: Final = """
INSERT INTO ipuhub_heartbeat (name, at, version) VALUES (%s, now(), %s)
ON CONFLICT (name) DO UPDATE SET at = now(), version = excluded.version
"""
_LOG = structlog.get_logger(__name__)


class HeartbeatWriter:
    """Notes the heartbeat of one process, which must not depend on it: failures are logged once."""

    def __init__(self, name: str, arguments: Callable[[], Mapping[str, Any]]) -> None:
        self._name, self._arguments = name, arguments
        self._problem = ""
        self._due_at = float("-inf")

    def beat(self) -> None:
        """Note the time, on a connection of its own: others wait for their work."""
        try:
            with connect(self._arguments(), autocommit=True) as connection:
                connection.execute(_NOTE, [self._name, __version__])
        except Exception as error:  # noqa: BLE001  # whatever it is, the next heartbeat may succeed
            self.note_failure(error)
        else:
            self._problem = ""

    def note_failure(self, error: Exception) -> None:
        """Log why there is no heartbeat, once until the next heartbeat."""
        problem = " ".join(str(error).split()) or type(error).__name__
        if not self._problem:
            _LOG.warning("no heartbeat", of=self._name, problem=problem)
        self._problem = problem

    def beat_if_due(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Note the time at most every 30 s, for a loop that turns more often."""
        if clock() >= self._due_at:
            self._due_at = clock() + HEARTBEAT_SECONDS
            self.beat()

    def keep_beating(self) -> None:
        """Record the time every 30 s, forever: the work of a daemon thread."""
        while True:
            self.beat()
            time.sleep(HEARTBEAT_SECONDS)


@asynccontextmanager
async def writing_heartbeats(name: str, arguments: Mapping[str, Any]) -> AsyncIterator[None]:
    """Note the time every 30 s while the event loop turns; the first time at once."""
    heart = HeartbeatWriter(name, lambda: arguments)

    async def keep() -> None:
        while True:
            try:
                await asyncio.to_thread(heart.beat)
            except RuntimeError as error:  # no thread can be started now
                heart.note_failure(error)
            await asyncio.sleep(HEARTBEAT_SECONDS)

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        await end_tasks(task)
