"""io: the reconcile loop: take a key, observe, plan, execute, forget or retry.

Also steps that run in the background without delaying a pass.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from ipuhub.kube.errors import ApiError, NotFound
from ipuhub.kube.prioritygate import LowPriorityGate
from jobs.ipujob.conditions import Reason
from jobs.ipujob.names import IPUJOBS, is_being_deleted, labels_of, name_of, namespace_of, uid_of
from jobs.ipujob.privileges import LABEL_POD_PROFILE
from jobs.operator import metrics
from jobs.operator.actions import Plan
from jobs.operator.failures import FaultLog, RefusalLog
from jobs.operator.observer import BY_NODE, by_job, waiting_order
from jobs.operator.plan import plan
from jobs.operator.pods import trouble_of_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipuhub.kube.workqueue import WorkQueue
    from jobs.ipujob.names import Manifest
    from jobs.operator.actions import Step
    from jobs.operator.effects import Effects
    from jobs.operator.execute import Executor, Outcome
    from jobs.operator.observed import Fault, Observed
    from jobs.operator.observer import Observer

log = structlog.get_logger(__name__)


# No launcher continues without its access. The containers of pods take about as long to start.
PATIENCE_SECONDS = 2.0


def low_priority_writes() -> LowPriorityGate:
    """Return the gate after which Events and the launchers' access are written. No pod's creation
    needs them, and in a burst all passes wait for the API server."""
    return LowPriorityGate(PATIENCE_SECONDS)


@dataclass(slots=True)
class BackgroundSteps:
    """Carries out the `beside` steps of plans, job by job, after the passes that are under way.

    It retries until the step is done or no plan has it any more. `faults` says what blocks it, and
    `enqueue` is called with the job whenever that changes.
    """

    queue: WorkQueue[str]
    executor: Executor
    enqueue: Callable[[str], None]
    gate: LowPriorityGate
    faults: FaultLog = field(default_factory=FaultLog)
    _refusals: RefusalLog = field(default_factory=RefusalLog)
    _wanted: dict[str, tuple[Observed, tuple[Step, ...]]] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)
    _under_way: set[str] = field(default_factory=set)

    def want(self, observed: Observed, steps: tuple[Step, ...]) -> None:
        """Take over the `beside` steps of the job's newest plan."""
        uid = observed.key.uid
        if not steps:
            self.drop(uid)
        elif uid not in self._under_way:  # work in progress ends with a change, and a new plan
            is_new = uid not in self._wanted
            self._wanted[uid] = (observed, steps)
            if is_new:  # else it waits for its turn, or for its next try
                self._due[uid] = self.gate.due()
                self.queue.add(uid)

    def drop(self, uid: str) -> None:
        """Nothing of a job is wanted any more."""
        self._wanted.pop(uid, None)
        self._due.pop(uid, None)
        self.faults.remember(uid, None)
        self._refusals.forget(uid)
        self.queue.forget(uid)

    async def work(self) -> None:
        """Carry out steps until cancelled. Several of these run concurrently."""
        while True:
            uid = await self.queue.get()
            try:
                await self.gate.wait(self._due.get(uid, 0.0))
                await self.carry_out(uid)
            except Exception:  # one poisoned key must not stop the others
                log.exception("steps beside a pass failed", job_uid=uid)
                self.queue.add_rate_limited(uid)
            finally:
                self.queue.done(uid)

    async def carry_out(self, uid: str) -> None:
        """Try the steps of one job once."""
        if uid not in self._wanted:
            return
        observed, steps = self._wanted[uid]
        self._under_way.add(uid)
        try:
            outcome = await self.executor.execute(observed, Plan(steps))
        finally:
            self._under_way.discard(uid)
        if uid not in self._wanted:
            return
        self._refusals.say(observed.key, outcome.refusal)
        if self.faults.remember(uid, outcome.fault):
            self.enqueue(uid)
        if not outcome.failed:
            del self._wanted[uid]
            self._due.pop(uid, None)
            self.queue.forget(uid)
        elif outcome.retry_after is not None:
            self.queue.add_after(uid, outcome.retry_after)
        else:
            self.queue.add_rate_limited(uid)


MOST_AWAY = 256  # passes that wait for the proxy at the same time
HELD_SECONDS = 30.0


@dataclass(slots=True)
class Controller:
    """Reconciles jobs, one pass per key (a job's UID) at a time.

    `later` holds the keys of steps carried out beside the passes.
    """

    queue: WorkQueue[str]
    later: WorkQueue[str]
    observer: Observer
    executor: Executor
    effects: Effects
    gate: LowPriorityGate = field(default_factory=low_priority_writes)
    beside: BackgroundSteps = field(init=False)
    _faults: FaultLog = field(default_factory=FaultLog)
    _refusals: RefusalLog = field(default_factory=RefusalLog)
    _held: set[str] = field(default_factory=set)
    _away: int = 0

    def __post_init__(self) -> None:
        self.beside = BackgroundSteps(self.later, self.executor, self.enqueue, self.gate)

    def enqueue(self, uid: str) -> None:
        """Have a look at a job. Jobs that wait for IPUs come after the others, oldest first."""
        self.queue.add(uid, priority=waiting_order(self.effects.caches.job(uid)))

    def faults(self) -> Iterable[Fault]:
        """Return the faults that currently block jobs, as in their conditions."""
        return (*self._faults.all(), *self.beside.faults.all())

    def on_job(self, old: Manifest | None, new: Manifest | None) -> None:
        """A job has changed, or another of its name has taken its place."""
        for uid in {uid_of(manifest) for manifest in (old, new) if manifest is not None}:
            self.enqueue(uid)

    def on_child(self, old: Manifest | None, new: Manifest | None) -> None:
        """Something that belongs to a job has changed."""
        for manifest in (old, new):
            if manifest is None:
                continue
            for uid in by_job(manifest):
                if new is None:
                    self.effects.expectations.gone(uid, uid_of(manifest))
                self.enqueue(uid)

    def on_namespace(self, old: Manifest | None, new: Manifest | None) -> None:
        """Enqueue the jobs of a namespace whose pod profile changed: they may now begin."""
        profiles = {
            labels_of(seen).get(LABEL_POD_PROFILE) for seen in (old, new) if seen is not None
        }
        if new is None or len(profiles) < 2:
            return
        for job in self.effects.caches.jobs.all():
            if namespace_of(job) == name_of(new):
                self.enqueue(uid_of(job))

    def on_node(self, old: Manifest | None, new: Manifest | None) -> None:
        """Enqueue the jobs with pods on a node that went NotReady, or came back."""
        known, now = (trouble_of_node(node) if node else "" for node in (old, new))
        if known == now:
            return
        name = name_of(new or old or {})
        for pod in self.effects.caches.pods.by_index(BY_NODE, name):
            for uid in by_job(pod):
                self.enqueue(uid)

    def enqueue_all(self) -> None:
        """Enqueue every job; cheap, because a pass without changes sends no request."""
        for job in self.effects.caches.jobs.all():
            self.enqueue(uid_of(job))

    async def run(self, concurrency: int) -> None:
        """Reconcile keys until cancelled, so many at the same time.

        A pass that waits for the proxy, which waits for V-IPU, does nothing meanwhile: another
        worker takes its place, up to MOST_AWAY of them.
        """
        async with asyncio.TaskGroup() as group:

            def begin() -> None:
                group.create_task(self._work(begin))

            for _ in range(concurrency):
                begin()
            for _ in range(concurrency):
                group.create_task(self.beside.work())

    async def _work(self, begin: Callable[[], None]) -> None:
        """Take key after key, until another worker has taken this worker's place."""
        is_away = False

        def leave() -> None:
            nonlocal is_away
            if not is_away and self._away < MOST_AWAY:
                is_away = True
                self._away += 1
                begin()

        try:
            while not is_away:
                await self._take(leave)
        finally:
            self._away -= is_away

    async def _take(self, leave: Callable[[], None]) -> None:
        uid = await self.queue.get()
        began, outcome = time.perf_counter(), "crashed"
        end = self.gate.begin()

        def away() -> None:
            end()
            leave()

        try:
            outcome = await self.reconcile(uid, away)
        except Exception:  # one poisoned key must not stop the others
            log.exception("pass failed", job_uid=uid)
            self.queue.add_rate_limited(uid)
        finally:
            self.queue.done(uid)
            end()
        metrics.PASS_SECONDS.labels(outcome).observe(time.perf_counter() - began)

    async def reconcile(self, uid: str, leave: Callable[[], None] = lambda: None) -> str:
        """One pass; returns its outcome, as `metrics.PASS_SECONDS` names it. `leave` is called
        when it begins to wait for something other than the API server."""
        unseen_seconds = self.effects.expectations.seconds_left(uid)
        if unseen_seconds:
            self.queue.add_after(uid, unseen_seconds)
            return "deferred"
        fault = self._faults.get(uid) or self.beside.faults.get(uid)
        observed = self.observer.observe(uid, fault)
        if observed is None:
            self._faults.remember(uid, None)
            self.beside.drop(uid)
            self._refusals.forget(uid)
            self._held.discard(uid)
            self.queue.forget(uid)
            return "gone"
        if observed.job is None and await self._still_exists(observed):
            self.queue.add_rate_limited(uid)
            return "deferred"
        if await self._is_held(observed):
            self.queue.add_after(uid, HELD_SECONDS)
            return "deferred"
        planned = plan(observed, self.effects.now())
        if not observed.proxy_problem:  # while the proxy is unavailable, no job requests
            self.effects.facts.leave_line(uid, planned.asking)
        if not planned.beside:
            self.beside.drop(uid)
        outcome = await self.executor.execute(observed, planned, leave)
        if planned.beside:  # after the pods: the API server would make both at the same time slower
            self.beside.want(observed, planned.beside)
        self._refusals.say(observed.key, outcome.refusal)
        self._schedule(uid, planned, outcome)
        return "failed" if outcome.failed else "done"

    async def _is_held(self, observed: Observed) -> bool:
        """Return whether to leave the job unchanged because its decisions could not be stored.

        Its deletion needs no status. The reason is reported once in an Event.
        """
        problem, uid = self.effects.keeper.problem, observed.key.uid
        if not problem or observed.job is None or is_being_deleted(observed.job):
            self._held.discard(uid)
            return False
        if uid not in self._held:
            self._held.add(uid)
            await self.effects.recorder.record(
                observed.job, type="Warning", reason=Reason.STATUS_NOT_KEPT.value, message=problem
            )
        return True

    async def _still_exists(self, observed: Observed) -> bool:
        """Return whether a job that is missing in the cache exists after all. Checks the API server
        itself before the job's pods and partitions are removed."""
        key = observed.key
        try:
            job = await self.effects.client.get(IPUJOBS, key.name, key.namespace)
        except NotFound:
            return False
        except ApiError:
            return True  # unless the API server says that it is gone
        return uid_of(job) == key.uid

    def _schedule(self, uid: str, planned: Plan, outcome: Outcome) -> None:
        self._faults.remember(uid, outcome.fault)
        if outcome.has_freed:
            for waiting in self.effects.facts.wake_waiting(self.effects.now()):
                self.enqueue(waiting)
        if outcome.failed:
            if outcome.retry_after is not None:
                self.queue.add_after(uid, outcome.retry_after)
            else:
                self.queue.add_rate_limited(uid)
            return
        self.queue.forget(uid)
        if outcome.replan:
            self.enqueue(uid)
        elif planned.requeue_after is not None:
            self.queue.add_after(uid, planned.requeue_after)
