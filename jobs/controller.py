"""io: the loop: take a key, observe, plan, execute, forget or try again."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from ipuhub.kube.errors import ApiError, NotFound
from jobs.caches import by_job
from jobs.manifests import uid_of
from jobs.plan import plan
from jobs.resources import IPUJOBS
from jobs.waitingline import turn_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipuhub.kube.workqueue import WorkQueue
    from jobs.actions import Plan
    from jobs.effects import Effects
    from jobs.execute import Executor, Outcome
    from jobs.manifests import Manifest
    from jobs.observe import Observer
    from jobs.observed import Fault, Observed

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Controller:
    """Brings jobs to their wanted state, one pass per key (a job's UID) at a time."""

    queue: WorkQueue[str]
    observer: Observer
    executor: Executor
    effects: Effects
    _faults: dict[str, Fault] = field(default_factory=dict)
    _stumbled: set[str] = field(default_factory=set)
    _refusals: dict[str, str] = field(default_factory=dict)

    def enqueue(self, uid: str) -> None:
        """Have a look at a job. Jobs that wait for IPUs come after the others, oldest first."""
        self.queue.add(uid, priority=turn_of(self.effects.caches.job(uid)))

    def faults(self) -> Iterable[Fault]:
        """What holds up jobs now, as their conditions tell it."""
        return self._faults.values()

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

    def enqueue_all(self) -> None:
        """Look at every job once: cheap, since a pass on an unchanged world calls nobody."""
        for job in self.effects.caches.jobs.all():
            self.enqueue(uid_of(job))

    async def work(self) -> None:
        """Reconcile keys until cancelled. Several of these run side by side."""
        while True:
            uid = await self.queue.get()
            began, outcome = time.perf_counter(), "crashed"
            try:
                outcome = await self.reconcile(uid)
            except Exception:  # one poisoned key must not stop the others
                log.exception("pass failed", uid=uid)
                self.queue.add_rate_limited(uid)
            finally:
                self.queue.done(uid)
            self.effects.measures.passed(outcome, time.perf_counter() - began)

    async def reconcile(self, uid: str) -> str:
        """One pass; returns its outcome, as `jobs.measures` names it."""
        unseen_seconds = self.effects.expectations.seconds_left(uid)
        if unseen_seconds:
            self.queue.add_after(uid, unseen_seconds)
            return "deferred"
        observed = self.observer.observe(uid, self._faults.get(uid))
        if observed is None:
            self._remember(uid, None)
            self._refusals.pop(uid, None)
            self.queue.forget(uid)
            return "gone"
        if observed.job is None and await self._still_exists(observed):
            self.queue.add_rate_limited(uid)
            return "deferred"
        planned = plan(observed, self.effects.now())
        if not observed.proxy_problem:  # while the proxy is away nobody asks
            self.effects.facts.leave_line(uid, planned.asking)
        outcome = await self.executor.execute(observed, planned)
        self._log(observed, outcome.refusal)
        self._schedule(uid, planned, outcome)
        return "failed" if outcome.failed else "done"

    async def _still_exists(self, observed: Observed) -> bool:
        """Whether a job that the cache does not have is there after all: before its pods and
        partitions are taken away, the API server itself is asked."""
        key = observed.key
        try:
            job = await self.effects.client.get(IPUJOBS, key.name, key.namespace)
        except NotFound:
            return False
        except ApiError:
            return True  # as long as nobody says that it is gone
        return uid_of(job) == key.uid

    def _log(self, observed: Observed, refusal: str) -> None:
        """Says a refusal once, however often it is tried again."""
        uid = observed.key.uid
        if not refusal:
            self._refusals.pop(uid, None)
        elif refusal != self._refusals.get(uid):
            self._refusals[uid] = refusal
            log.warning("refused; trying again", job=observed.key.path, why=refusal)

    def _schedule(self, uid: str, planned: Plan, outcome: Outcome) -> None:
        self._remember(uid, outcome.fault)
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

    def _remember(self, uid: str, fault: Fault | None) -> None:
        """A fault that may be over by itself is told from its second time on: a token controller
        that is a second late is no news."""
        if fault is None:
            self._faults.pop(uid, None)
            self._stumbled.discard(uid)
        elif not fault.is_passing or uid in self._stumbled:
            self._faults[uid] = fault
        else:
            self._stumbled.add(uid)
