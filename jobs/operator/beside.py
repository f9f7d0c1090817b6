"""io: the steps that no pass waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from jobs.operator.actions import Plan
from jobs.operator.failures import FaultLog, RefusalLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.kube.workqueue import WorkQueue
    from jobs.operator.actions import Step
    from jobs.operator.execute import Executor
    from jobs.operator.observed import Observed

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Beside:
    """Carries out what plans have `beside` their steps, job by job, and tries it again until it is
    done or no plan has it any more.

    `faults` says what holds it up, and `enqueue` hears of the job whenever that changes.
    """

    queue: WorkQueue[str]
    executor: Executor
    enqueue: Callable[[str], None]
    faults: FaultLog = field(default_factory=FaultLog)
    _refusals: RefusalLog = field(default_factory=RefusalLog)
    _wanted: dict[str, tuple[Observed, tuple[Step, ...]]] = field(default_factory=dict)
    _under_way: set[str] = field(default_factory=set)

    def want(self, observed: Observed, steps: tuple[Step, ...]) -> None:
        """Take in what the job's newest plan has beside its steps."""
        uid = observed.key.uid
        if not steps:
            self.drop(uid)
        elif uid not in self._under_way:  # what is under way ends with a change, and a new plan
            is_new = uid not in self._wanted
            self._wanted[uid] = (observed, steps)
            if is_new:  # else it waits for its turn, or for its next try
                self.queue.add(uid)

    def drop(self, uid: str) -> None:
        """Nothing of a job is wanted any more."""
        self._wanted.pop(uid, None)
        self.faults.remember(uid, None)
        self._refusals.forget(uid)
        self.queue.forget(uid)

    async def work(self) -> None:
        """Carry out what is wanted until cancelled. Several of these run side by side."""
        while True:
            uid = await self.queue.get()
            try:
                await self.carry_out(uid)
            except Exception:  # one poisoned key must not stop the others
                log.exception("steps beside a pass failed", uid=uid)
                self.queue.add_rate_limited(uid)
            finally:
                self.queue.done(uid)

    async def carry_out(self, uid: str) -> None:
        """One try at what is wanted of one job."""
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
            self.queue.forget(uid)
        elif outcome.retry_after is not None:
            self.queue.add_after(uid, outcome.retry_after)
        else:
            self.queue.add_rate_limited(uid)
