"""A cluster, a proxy and operators that die, lag and stumble, on a clock of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ipuhub.kube.workqueue import WorkQueue
from ipuhub.partition import ASK_AGAIN
from jobs.builders.pods import PodOptions
from jobs.ipujob.names import RESOURCE_OF, Kind
from jobs.ipujob.rules import USUAL, Rules
from jobs.operator.controller import Controller
from jobs.operator.effects import Effects, Expectations
from jobs.operator.execute import Executor
from jobs.operator.observer import Caches, Observer
from jobs.operator.ownership import trim_child
from jobs.operator.partitions import PartitionFacts
from tests.fakes.announcements import Announcements
from tests.fakes.invariants import Invariants
from tests.fakes.jobworld import Events, WatchfulPartitions, carry_out_beside
from tests.fakes.kube import NOON, FakeKube, Killed
from tests.fakes.logcache import Feed, LogCache
from tests.fakes.partitions import FakePartitions
from tests.fakes.wire import Wire, WiredKube, WiredPartitions

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from jobs.ipujob.rules import Patience
    from tests.fakes.wire import Mischief

STEP_SECONDS = 2.0
MOST_PASSES = 300  # of one operator in one step: more is a busy loop
MOST_STEPS = 900  # half an hour


@dataclass
class Rival:
    """A second operator that believes to lead, from a moment on and for half a minute (seconds)."""

    since: float
    feed: Feed = field(default_factory=Feed)
    seconds: float = 30.0


@dataclass
class Breakage:
    """From a moment on and for a while (seconds) the V-IPU controller refuses to make and reset
    partitions; with `breaks` those that are ACTIVE turn ERROR first. With `forgets` it does not
    answer at all, and has lost its partitions when it answers again. `waits_for_start`: the moment
    is counted from when the job runs."""

    since: float
    seconds: float
    breaks: bool = False
    forgets: bool = False
    waits_for_start: bool = False


@dataclass
class Faults:
    """The faults of a world. `kill_at`: an operator dies right after that write (from 1); its
    successor starts `downtime` seconds later, with watches as `feed_after` says. `proxy_kill_at`:
    the same of a whole proxy, whose successor starts at once."""

    kill_at: int | None = None
    proxy_kill_at: int | None = None
    downtime: float = 0.0
    feed: Feed = field(default_factory=Feed)
    feed_after: Feed | None = None
    mischief: Mischief | None = None
    turns: Callable[[], int] | None = None
    rival: Rival | None = None
    breakage: Breakage | None = None
    patience: Patience = USUAL


class Replica:
    """One operator process."""

    def __init__(self, world: ChaosWorld, feed: Feed) -> None:
        kube, self._feed, self._world = world.kube, feed, world
        self.wire = Wire(
            on_write=world.count_write, mischief=world.faults.mischief, turns=world.faults.turns
        )
        plurals = ["ipujobs", "namespaces", "nodes", *(r.plural for r in RESOURCE_OF.values())]
        trimmed = {r.plural for kind, r in RESOURCE_OF.items() if kind is not Kind.POD}
        self.caches = {
            plural: LogCache(kube, plural, trim_child if plural in trimmed else None)
            for plural in plurals
        }
        caches = Caches(
            jobs=self.caches["ipujobs"],
            children={kind: self.caches[r.plural] for kind, r in RESOURCE_OF.items()},
            namespaces=self.caches["namespaces"],
            nodes=self.caches["nodes"],
        )
        partitions: Any = WiredPartitions(world.partitions, self.wire)
        self.facts = PartitionFacts(partitions, lambda uid: caches.job(uid) is not None)
        client: Any = WiredKube(kube, self.wire)
        effects = Effects(
            client=client,
            partitions=partitions,
            recorder=world.events,
            caches=caches,
            facts=self.facts,
            expectations=Expectations(world.clock),
            now=lambda: world.now,
        )
        self.queue: WorkQueue[str] = WorkQueue(clock=world.clock, max_seconds=30.0)
        self.controller = Controller(
            queue=self.queue,
            later=WorkQueue(clock=world.clock, max_seconds=30.0),
            observer=Observer(
                caches, self.facts, PodOptions(), Rules(patience=world.faults.patience)
            ),
            executor=Executor(effects),
            effects=effects,
        )
        for plural, cache in self.caches.items():
            on_child = self.controller.on_child
            cache.handlers.append(self.controller.on_job if plural == "ipujobs" else on_child)
            cache.relist(feed.from_past)

    @property
    def is_idle(self) -> bool:
        """It has seen everything and waits for nothing but changes."""
        behind = any(cache.is_behind for cache in self.caches.values())
        queues = (self.queue, self.controller.later)
        waits = any(len(queue) or queue.delayed for queue in queues) or self.facts.problem
        return not behind and not waits

    async def work(self) -> None:
        """Do one step: a poll, then the passes that are due."""
        self._deliver()
        before = self.facts.problem
        changed = await self.facts.poll(self._world.now)
        if bool(before) != bool(self.facts.problem):
            self.controller.enqueue_all()
        for uid in changed:
            self.controller.enqueue(uid)
        for _ in range(MOST_PASSES):
            if not len(self.queue):
                return
            uid = await self.queue.get()
            try:
                await self.controller.reconcile(uid)
            finally:
                self.queue.done(uid)
            await carry_out_beside(self.controller)
            self._deliver()
        raise AssertionError("an operator does not come to rest")

    def _deliver(self) -> None:
        for cache in self.caches.values():
            cache.advance(self._feed)


class ChaosWorld:
    """Everything a story happens in. One step is two seconds."""

    QUIET_STEPS = 1  # in a row without a change: it has settled

    def __init__(
        self, faults: Faults | None = None, *, ipus: int = 32, kube: FakeKube | None = None
    ) -> None:
        self.faults = faults or Faults()
        self.kube = kube or FakeKube()
        self.began = NOON if kube is None else kube.now()
        self.now: datetime = self.began + timedelta(seconds=1)
        self.kube.now = lambda: self.now
        self.partitions = self.make_partitions(ipus)
        self.events = Events()
        self.invariants = Invariants(self.kube, self.partitions)
        self.invariants.is_orderly = not (self.faults.mischief or self.faults.rival)
        is_ours = isinstance(self.partitions, FakePartitions)
        self.announcements = Announcements(self.kube, self.partitions) if is_ours else None
        self._breaks_at: datetime | None = None
        self._asked_by = self.began  # when whoever waits for IPUs will have asked again
        self.writes = 0
        self.kinds: list[str] = []  # of each write what it did
        self.steps = 0
        self._starts_at: datetime | None = None
        self.replicas: list[Any] = [self.make_replica(self.faults.feed)]
        self._rival: Any = None

    def make_partitions(self, ipus: int) -> Any:
        """The V-IPU Proxy."""
        return WatchfulPartitions(self.kube, ipus=ipus)

    def make_replica(self, feed: Feed) -> Any:
        """One more operator."""
        return Replica(self, feed)

    def retire(self, replica: Any) -> None:
        """An operator is gone."""
        self.replicas.remove(replica)

    def clock(self) -> float:
        return self.now.timestamp()

    def count_write(self, kind: str) -> bool:
        """One more write; whether its writer dies of it."""
        self.writes += 1
        self.kinds.append(kind)
        return self.writes == self.faults.kill_at

    async def step(self, **pods: Any) -> None:
        """Two seconds of operators, proxy and cluster."""
        self.now += timedelta(seconds=STEP_SECONDS)
        self.steps += 1
        if self._starts_at is not None and self.now >= self._starts_at:
            self._starts_at = None
            self.replicas.append(self.make_replica(self.faults.feed_after or Feed()))
        self._see_to_rival()
        self._see_to_breakage()
        await asyncio.gather(*map(self._work, list(self.replicas)))
        self.partitions.tick()
        self.kube.tick(**pods)
        self.check()

    def check(self) -> None:
        """Nothing forbidden has happened so far."""
        self.invariants.check()
        if self.announcements is not None:
            self.announcements.check(self.now)

    def _see_to_breakage(self) -> None:
        plan = self.faults.breakage
        if plan is None:
            return
        if self._breaks_at is None and not (plan.waits_for_start and self.state() != "Running"):
            since = self.now if plan.waits_for_start else self.began
            self._breaks_at = since + timedelta(seconds=plan.since)
        if self._breaks_at is None or self.now < self._breaks_at:
            return
        if not self.partitions.refuses and plan.breaks:
            self.partitions.break_all("an IPU is down")
        self.partitions.refuses = "" if plan.forgets else "the controller is out of order"
        self.partitions.is_silent = plan.forgets
        if self.now >= self._breaks_at + timedelta(seconds=plan.seconds):
            self.partitions.refuses, self.faults.breakage = "", None
            self._asked_by = self.now + 2 * ASK_AGAIN
            if plan.forgets:
                self.partitions.restart_empty()

    def _see_to_rival(self) -> None:
        plan, age = self.faults.rival, (self.now - self.began).total_seconds()
        if plan is None or age < plan.since:
            return
        if self._rival is None:
            self._rival = self.make_replica(plan.feed)
            self.replicas.insert(0, self._rival)
        elif age >= plan.since + plan.seconds and self._rival in self.replicas:
            self.retire(self._rival)
            self.faults.rival = None

    async def _work(self, replica: Any) -> None:
        try:
            await replica.work()
        except Killed:
            self.retire(replica)
            self._starts_at = self.now + timedelta(seconds=self.faults.downtime)

    async def settle(self, **pods: Any) -> None:
        """Steps until nothing is under way any more."""
        quiet = 0
        for _ in range(MOST_STEPS):
            before = len(self.kube.changes), len(self.partitions.history)
            await self.step(**pods)
            after = len(self.kube.changes), len(self.partitions.history)
            quiet = quiet + 1 if before == after and self.is_idle else 0
            if quiet == self.QUIET_STEPS:
                return
        raise AssertionError(f"not settled: {self.state()}")

    async def run(self, steps: int, **pods: Any) -> None:
        for _ in range(steps):
            await self.step(**pods)

    async def until(self, reached: Callable[[], bool], **pods: Any) -> None:
        """Steps until something holds."""
        for _ in range(MOST_STEPS):
            if reached():
                return
            await self.step(**pods)
        raise AssertionError("not reached")

    @property
    def is_idle(self) -> bool:
        if self.faults.rival is not None or self._starts_at is not None or self._is_breaking:
            return False
        if not all(r.is_idle for r in self.replicas):
            return False
        return not self.partitions.is_moving

    @property
    def _is_breaking(self) -> bool:
        is_broken = self.faults.breakage is not None and self._breaks_at is not None
        return is_broken or self.now < self._asked_by

    def state(self, name: str = "sample") -> str | None:
        return (self.kube.job(name) or {}).get("status", {}).get("launcherStatus")

    def status(self, name: str = "sample") -> dict[str, Any]:
        return (self.kube.job(name) or {}).get("status") or {}
