"""The operator's passes over an in-memory world, one step at a time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ipuhub.kube.workqueue import WorkQueue
from jobs.builders.pods import PodOptions
from jobs.ipujob.names import LABEL_JOB_UID, uid_of
from jobs.ipujob.privileges import NOBODYS
from jobs.ipujob.rules import USUAL, Rules
from jobs.ipujob.spec import UNLIMITED
from jobs.operator.controller import Controller
from jobs.operator.effects import Effects, Expectations
from jobs.operator.execute import Executor
from jobs.operator.observer import Observer
from jobs.operator.partitions import PartitionFacts
from tests.fakes.kube import FakeKube
from tests.fakes.partitions import FakePartitions

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipuhub.partition import Partition


class RefusedError(Exception):
    """The proxy will not do it."""

    retryable = False


class WatchfulPartitions(FakePartitions):
    """Refuses what must never happen: taking a partition away from a pod that still runs."""

    def __init__(self, kube: FakeKube, **options: Any) -> None:
        super().__init__(**options)
        self._kube = kube
        self.detours: dict[str, int] = {}  # by UID: turns of the loop that a call takes longer
        self.refused: set[str] = set()  # UIDs of jobs that get no answer but a refusal

    async def ensure(self, **request: Any) -> Partition:
        for _ in range(self.detours.get(request["uid"], 0)):
            await asyncio.sleep(0)
        if request["uid"] in self.refused:
            raise RefusedError("no more than 0 IPUs for this job")
        before = len(self.tries)
        record = await super().ensure(**request)
        if len(self.tries) > before:
            self._check_unused(request["uid"], request["instance"])
        return record

    async def release(self, uid: str, instance: int) -> Partition | None:
        self._check_unused(uid, instance)
        return await super().release(uid, instance)

    def _check_unused(self, uid: str, instance: int) -> None:
        for pod in self._kube.present_pods():
            if pod["metadata"]["uid"] in self._kube.strangers:
                continue
            labels = pod["metadata"]["labels"]
            of = (labels.get(LABEL_JOB_UID), labels.get("graphcore.ai/instance"))
            mine = of == (uid, str(instance))
            assert not mine or pod["status"]["phase"] in {"Succeeded", "Failed"}, (
                f"partition taken from {pod['metadata']['name']}"
            )


class Events:
    """Remembers Events."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    async def record(self, regarding: Any, *, type: str, reason: str, message: str) -> None:  # noqa: A002
        self.seen.append((type, reason, message))

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.seen]


async def carry_out_beside(controller: Controller) -> None:
    """Carry out what is due of the steps that no pass waits for."""
    while len(controller.later):
        uid = await controller.later.get()
        try:
            await controller.beside.carry_out(uid)
        finally:
            controller.later.done(uid)


class JobWorld:
    """A cluster, a proxy, and an operator whose caches are always current."""

    def __init__(self, *, ipus: int = 32) -> None:
        self.kube = FakeKube()
        self.partitions = WatchfulPartitions(self.kube, ipus=ipus)
        self.events = Events()
        self.limits = UNLIMITED
        self.privileges = NOBODYS
        self.patience = USUAL
        self.namespaces: frozenset[str] = frozenset()
        self.now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
        self.start()

    def start(self) -> None:
        """A fresh operator that knows nothing but what it observes."""
        caches = self.kube.caches()
        self.facts = PartitionFacts(self.partitions, lambda uid: caches.job(uid) is not None)
        effects = Effects(
            client=self.kube,  # type: ignore[arg-type]
            partitions=self.partitions,
            recorder=self.events,
            caches=caches,
            facts=self.facts,
            expectations=Expectations(self.now.timestamp),
            now=lambda: self.now,
        )
        rules = Rules(self.limits, self.privileges, self.patience, self.namespaces)
        self.controller = Controller(
            queue=WorkQueue(),
            later=WorkQueue(clock=self.now_seconds),
            observer=Observer(caches, self.facts, PodOptions(), rules),
            executor=Executor(effects),
            effects=effects,
        )

    async def passes(self, count: int = 1) -> None:
        """A poll, then passes over every job, `count` times."""
        for _ in range(count):
            self.now += timedelta(seconds=3)
            await self.facts.poll(self.now)
            for uid in self._uids():
                await self.controller.reconcile(uid)
                await carry_out_beside(self.controller)

    async def by_queue(self, **pods: Any) -> None:
        """A poll, then the passes that are due, side by side, until none is left, then a tick."""
        self.now += timedelta(seconds=3)
        for uid in (*await self.facts.poll(self.now), *self._uids()):
            self.controller.enqueue(uid)
        queue = self.controller.queue
        while len(queue):
            taken = [await queue.get() for _ in range(len(queue))]
            await asyncio.gather(*(self.controller.reconcile(uid) for uid in taken))
            for uid in taken:
                queue.done(uid)
            await carry_out_beside(self.controller)
        self.kube.tick(**pods)

    async def run(self, rounds: int = 40, **pods: Any) -> None:
        """Lets operator and cluster work until nothing has changed for a while."""
        for _ in range(rounds):
            await self.passes()
            self.kube.tick(**pods)

    async def until(self, reached: Callable[[], bool], **pods: Any) -> None:
        """Lets operator and cluster work until something holds."""
        for _ in range(60):
            if reached():
                return
            await self.passes()
            self.kube.tick(**pods)
        raise AssertionError("not reached")

    def now_seconds(self) -> float:
        return self.now.timestamp()

    def state(self, name: str = "sample") -> str | None:
        job = self.kube.job(name)
        return (job or {}).get("status", {}).get("launcherStatus")

    def condition(self, name: str = "sample") -> dict[str, Any]:
        """The condition that is True."""
        job = self.kube.job(name) or {}
        return next(c for c in job["status"]["conditions"] if c["status"] == "True")

    def _uids(self) -> list[str]:
        jobs = [uid_of(job) for job in self.controller.effects.caches.jobs.all()]
        pods = [pod["metadata"]["labels"][LABEL_JOB_UID] for pod in self.kube.pods()]
        return list(dict.fromkeys([*jobs, *pods, *self.facts.uids()]))
