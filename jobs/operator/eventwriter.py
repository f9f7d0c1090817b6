"""io: writes Events in the background, with lower priority than the passes in progress."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import structlog

from ipuhub.concurrency import end_tasks
from jobs.ipujob.names import name_of, namespace_of, uid_of
from jobs.operator.metrics import EVENTS_DROPPED

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ipuhub.kube.events import EventRecorder
    from ipuhub.kube.prioritygate import LowPriorityGate
    from jobs.ipujob.names import Manifest

log = structlog.get_logger(__name__)
WRITERS = 4
MOST_WAITING = (
    5000  # per writer: an API server that accepts none must not cost memory without limit
)
LAST_SECONDS = 2.0


class _Event(NamedTuple):
    due: float
    at: datetime
    regarding: Manifest
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class EventWriter:
    """Writes Events through `recorder` with a few writers, each job's Events in order, when `gate`
    lets them.

    An Event has the time at which it was recorded, by `now`. `dropped` counts Events for which
    there was no room or time.
    """

    def __init__(
        self, recorder: EventRecorder, gate: LowPriorityGate, now: Callable[[], datetime]
    ) -> None:
        self.dropped = 0
        self._gate = gate
        self._now = now
        self._unwritten = 0
        self._recorder = recorder
        self._queues: list[asyncio.Queue[_Event]] = [
            asyncio.Queue(MOST_WAITING) for _ in range(WRITERS)
        ]

    async def record(
        self,
        regarding: Manifest,
        *,
        type: Literal["Normal", "Warning"],  # noqa: A002  # the API's word
        reason: str,
        message: str,
    ) -> None:
        """Queue an Event, which is written soon, and log it: Events are kept for an hour only."""
        job = f"{namespace_of(regarding)}/{name_of(regarding)}"
        log.info("event", reason=reason, message=message, job=job, job_uid=uid_of(regarding))
        queue = self._queues[hash(uid_of(regarding)) % WRITERS]
        try:
            queue.put_nowait(
                _Event(self._gate.due(), self._now(), regarding, type, reason, message)
            )
            self._unwritten += 1
        except asyncio.QueueFull:
            self._drop(1)
            log.warning("event not written: too many wait", reason=reason, dropped=self.dropped)

    async def run(self) -> None:
        """Write queued Events until cancelled; then the rest, for at most a moment."""
        writers = [asyncio.create_task(self._write(queue)) for queue in self._queues]
        try:
            ended, _ = await asyncio.wait(writers, return_when=asyncio.FIRST_COMPLETED)
            for writer in ended:
                writer.result()  # a bug: for the outermost loop to report
        finally:
            await self._finish(writers)
            # Ended before this is: its caller may close the connections that they use.
            await end_tasks(*writers)

    async def _write(self, queue: asyncio.Queue[_Event]) -> None:
        while True:
            event = await queue.get()
            await self._gate.wait(event.due)
            await self._recorder.record(
                event.regarding,
                type=event.type,
                reason=event.reason,
                message=event.message,
                at=event.at,
            )
            self._unwritten -= 1
            queue.task_done()

    async def _finish(self, writers: list[asyncio.Task[None]]) -> None:
        """Wait until all queues are empty, a writer ends or LAST_SECONDS pass; drop the rest."""
        rest = asyncio.gather(*(queue.join() for queue in self._queues))
        ends: list[asyncio.Future[Any]] = [rest, *writers]
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait(ends, timeout=LAST_SECONDS, return_when=first)
        if not rest.done():
            rest.cancel()
            self._drop(self._unwritten)
            log.warning("events not written: the operator ends", count=self._unwritten)

    def _drop(self, count: int) -> None:
        self.dropped += count
        EVENTS_DROPPED.labels("backlog").inc(count)
