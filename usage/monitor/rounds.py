"""io: ends the lifetimes of pods that are gone and whose end the prober missed.

A round reads the running pods without a recent record, asks the API server about each by UID, and
ends those that are gone. The end is the last sighting, marked as estimated. Without a complete
answer the round ends nothing. The monitor never adds pods.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
import structlog

from ipuhub.backoff import exponential
from ipuhub.kube.errors import ApiError
from ipuhub.process.metrics import Meters
from usage.monitor.store import questions_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ipuhub.process.health import Health
    from usage.monitor.api import PodCensus
    from usage.monitor.store import Answer, MonitorStore, Question

MONITOR = Meters()
CHECKED = MONITOR.counter(
    "ipuhub_monitor_checked_total",
    "Running pods without recent changes that the monitor checked with the API server.",
    "Are there pods without recorded changes for a long time?",
)
CLOSED = MONITOR.counter(
    "ipuhub_monitor_closed_total",
    "Lifetimes that the monitor closed with an estimated end because their pods were gone.",
    "Does the prober miss the end of pods?",
)
LEFT = MONITOR.counter(
    "ipuhub_monitor_left_total",
    "Pods that were gone but not closed, because the prober is about to record their end or "
    "their row changed meanwhile.",
    "Does the monitor wait for the prober?",
)
FAILURES = MONITOR.counter(
    "ipuhub_monitor_failures_total",
    "Checks without a full response, and rounds that PostgreSQL aborted. Such rounds close no "
    "lifetimes.",
    "Can the monitor complete its rounds?",
    "of",
)
LAST_ROUND = MONITOR.gauge(
    "ipuhub_monitor_round_age_seconds",
    "Seconds since the last complete round, or since the start of the process.",
    "Does the monitor work?",
)
T = TypeVar("T")
log = structlog.get_logger(__name__)
BEAT = "monitor"
_SOONEST_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorOptions:
    """The longest silence, the interval of rounds, how many pods a round asks about,
    and how many namespaces at a time."""

    stale_seconds: float = 300.0
    round_seconds: float = 60.0
    most: int = 20_000
    at_once: int = 4


@dataclass(slots=True)
class Tally:
    """The numbers of a round. `problem`: why the round was incomplete."""

    checked: int = 0
    present: int = 0
    closed: int = 0
    left: int = 0
    problem: str = ""
    questions: list[Question] = field(default_factory=list)


def pause_seconds(failures: int, round_seconds: float) -> float:
    """Return the pause after a round; `failures`: how many rounds in a row were incomplete."""
    if not failures:
        return round_seconds
    return exponential(failures - 1, base=_SOONEST_SECONDS, maximum=round_seconds)


class Monitor:
    """The rounds of one cluster. `problem`: why the last round was incomplete."""

    def __init__(
        self,
        census: PodCensus,
        store: MonitorStore,
        clock: Callable[[], datetime],
        options: MonitorOptions | None = None,
    ) -> None:
        self._census, self._store, self._clock = census, store, clock
        self._options = options or MonitorOptions()
        self._last_good_at = clock()
        self.problem = "no round yet"

    async def run(self, health: Health) -> None:
        """Run rounds until cancelled; sooner after an outage."""
        longest, failures = self._options.round_seconds, 0
        health.ask(BEAT, lambda: self.problem)
        while True:
            health.beat(BEAT, max_age_seconds=600 + 2 * longest)
            tally = await self.round()
            failures = failures + 1 if tally.problem else 0
            await asyncio.sleep(pause_seconds(failures, longest))

    async def round(self) -> Tally:
        """Run one round. Failures are in the tally, in `problem` and in the metrics."""
        began, tally, cluster_uid = self._clock(), Tally(), ""
        try:
            cluster_uid = await self._census.cluster_uid()
            await self._look(cluster_uid, tally)
        except ApiError as error:
            self._fail(tally, "api", str(error))
        except psycopg.Error as error:
            self._fail(tally, "postgres", f"Postgres: {' '.join(str(error).split())}")
        await self._finish(began, cluster_uid, tally)
        return tally

    async def aclose(self) -> None:
        """Close the connection to Postgres."""
        await asyncio.to_thread(self._store.close)

    async def _look(self, cluster_uid: str, tally: Tally) -> None:
        options, store = self._options, self._store
        before = self._clock() - timedelta(seconds=options.stale_seconds)
        watch = await _in_thread(store.watch)
        suspects = await _in_thread(lambda: store.suspects(cluster_uid, before, options.most))
        tally.questions = questions_for(suspects)
        lock, slots = asyncio.Lock(), asyncio.Semaphore(options.at_once)

        async def settle(question: Question) -> None:
            async with slots:
                answer = await self._answer(question, cluster_uid, tally)
            if answer is None:
                return
            async with lock:  # one connection
                found = await _in_thread(lambda: store.settle(answer, cluster_uid, watch.epoch))
            self._count(answer, found, tally)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_caught(settle(question))) for question in tally.questions]
        for task in tasks:
            if error := task.result():
                raise error

    async def _answer(self, question: Question, cluster_uid: str, tally: Tally) -> Answer | None:
        try:
            answer = await self._census.ask(question)
            # Another cluster behind the same address knows none of these pods.
            if await self._census.cluster_uid() != cluster_uid:
                self._fail(tally, "api", "another cluster answered in the middle of a round")
                return None
        except ApiError as error:
            self._fail(tally, "api", f"namespace {question.namespace}: {error}")
            return None
        return answer

    def _count(self, answer: Answer, found: tuple[int, int, int], tally: Tally) -> None:
        present, closed, left = found
        tally.checked += len(answer.question.suspects)
        tally.present += present
        tally.closed += closed
        tally.left += left
        if closed:
            log.warning(
                "ended pods that are gone without a recorded end",
                namespace=answer.question.namespace,
                pods=closed,
            )

    def _fail(self, tally: Tally, of: str, problem: str) -> None:
        FAILURES.labels(of).inc()
        if not tally.problem and problem != self.problem:
            log.warning("the monitor cannot judge", problem=problem)
        tally.problem = tally.problem or problem

    async def _finish(self, began: datetime, cluster_uid: str, tally: Tally) -> None:
        ended = self._clock()
        values = (tally.checked, tally.present, tally.closed, tally.left, tally.problem)
        if cluster_uid:
            try:
                await _in_thread(lambda: self._store.keep_round(cluster_uid, began, ended, *values))
            except psycopg.Error as error:
                self._fail(tally, "postgres", f"Postgres: {' '.join(str(error).split())}")
        CHECKED.inc(tally.checked)
        CLOSED.inc(tally.closed)
        LEFT.inc(tally.left)
        self.problem = tally.problem
        if not tally.problem:
            self._last_good_at = ended

    def fill_metrics(self) -> None:
        """Set the metric of the time since the last good round."""
        age = self._clock() - self._last_good_at
        LAST_ROUND.set(max(age.total_seconds(), 0.0))


async def _caught(work: Any) -> psycopg.Error | None:
    """Run work concurrently; a PostgreSQL error of one part stops no other part."""
    try:
        await work
    except psycopg.Error as error:
        return error
    return None


async def _in_thread(work: Callable[[], T]) -> T:
    """Run a transaction in a thread; a cancelled caller still waits for its end."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
