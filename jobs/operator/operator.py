"""io: the operator process: caches, the poll of partitions, workers and readiness."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from ipuhub.kube.informer import Informer
from ipuhub.kube.resources import NAMESPACES, NODES
from ipuhub.kube.workqueue import WorkQueue
from ipuhub.times import utc_now
from jobs.builders.pods import PodOptions
from jobs.ipujob.conditions import Reason
from jobs.ipujob.names import IPUJOBS, LABEL_JOB_UID, RESOURCE_OF, Kind, namespace_of
from jobs.ipujob.privileges import NOBODYS
from jobs.ipujob.rules import RESYNC_SECONDS, USUAL, Rules
from jobs.ipujob.spec import UNLIMITED
from jobs.operator import metrics
from jobs.operator.controller import Controller, low_priority_writes
from jobs.operator.effects import Effects, Expectations
from jobs.operator.eventwriter import EventWriter
from jobs.operator.execute import Executor
from jobs.operator.observer import (
    BY_JOB,
    BY_NODE,
    BY_UID,
    Caches,
    Observer,
    by_job,
    by_node,
    by_uid,
    only_metadata,
)
from jobs.operator.ownership import trim_child, trim_job, trim_node, trim_pod
from jobs.operator.partitions import PartitionFacts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.events import EventRecorder
    from ipuhub.process.health import Health
    from jobs.ipujob.privileges import Privileges
    from jobs.ipujob.rules import Patience
    from jobs.ipujob.spec import SessionLimits
    from jobs.operator.partitions import Partitions

log = structlog.get_logger(__name__)
HEALTH_SECONDS = 1.0
LONGEST_BACKOFF_SECONDS = 30.0  # after an outage, or once a user has made room, jobs go on soon
CRD_SECONDS = 60.0
RETRY_SECONDS = 0.2  # while no word of partitions holds up every job, at a start above all
STALE_SECONDS = 90.0  # a quiet watch gets a message at least every 70 s


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorOptions:
    """Options of the operator. `now` gives the time of day, `monotonic` seconds that only grow."""

    concurrency: int = 16
    poll_seconds: float = 2.0
    pods: PodOptions = field(default_factory=PodOptions)
    limits: SessionLimits = UNLIMITED
    privileges: Privileges = NOBODYS
    patience: Patience = USUAL
    namespaces: frozenset[str] = frozenset()
    now: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic


def fill_metrics(controller: Controller, now: datetime) -> None:
    """Update the metrics that are read from a controller and its caches."""
    caches, facts = controller.effects.caches, controller.effects.facts
    observer = controller.observer
    metrics.fill_queue(controller.queue)
    ours = [job for job in caches.jobs.all() if observer.rules.concern(namespace_of(job))]
    metrics.fill_jobs(ours)
    metrics.fill_refused(controller.faults())
    metrics.fill_waiting(facts, caches, now)
    metrics.IGNORED_PODS.set(observer.ignored_pods)


class Operator:
    """Everything that runs in the operator process.

    An API server or a proxy that is absent, at the start or later, is waited for: the health
    checks `api-server` and `proxy` say so.
    """

    def __init__(
        self,
        client: KubeClient,
        partitions: Partitions,
        recorder: EventRecorder,
        health: Health,
        options: OperatorOptions,
    ) -> None:
        self._options = options
        self._health = health
        self.now = options.now
        self._listed_under = ""
        self.informers = _informers(client, self._is_crd_another)
        self.nodes = Informer(client, NODES, transform=trim_node)
        self.caches = _caches(self.informers, self.nodes)
        self.facts = PartitionFacts(partitions, lambda uid: self.caches.job(uid) is not None)
        gate = low_priority_writes()
        self.event_writer = EventWriter(recorder, gate, options.now)
        effects = self.effects = Effects(
            client=client,
            partitions=partitions,
            recorder=self.event_writer,
            caches=self.caches,
            facts=self.facts,
            expectations=Expectations(options.monotonic),
            now=self.now,
        )
        rules = Rules(options.limits, options.privileges, options.patience, options.namespaces)
        self.controller = Controller(
            queue=WorkQueue(clock=options.monotonic, max_seconds=LONGEST_BACKOFF_SECONDS),
            later=WorkQueue(clock=options.monotonic, max_seconds=LONGEST_BACKOFF_SECONDS),
            observer=Observer(self.caches, self.facts, options.pods, rules),
            executor=Executor(effects),
            effects=effects,
            gate=gate,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        self.informers["ipujobs"].add_handler(self.controller.on_job)
        self.informers["namespaces"].add_handler(self.controller.on_namespace)
        self.nodes.add_handler(self.controller.on_node)
        for resource in RESOURCE_OF.values():
            self.informers[resource.plural].add_handler(self.controller.on_child)
        async with asyncio.TaskGroup() as group:
            for informer in (*self.informers.values(), self.nodes):
                group.create_task(informer.run())
            group.create_task(self.event_writer.run())
            group.create_task(self._report_health())
            group.create_task(self._poll())
            await self._synced()
            await self.effects.keeper.look(self.effects.client)
            log.info("caches are complete", jobs=len(self.caches.jobs.all()))
            group.create_task(self._resync())
            group.create_task(self._watch_crd())
            group.create_task(self.controller.run(self._options.concurrency))

    def fill_metrics(self) -> None:
        """Bring the metrics up to date that are read off the queue, the caches and the facts."""
        fill_metrics(self.controller, self.now())

    async def _synced(self) -> None:
        for informer in self.informers.values():
            await informer.wait_synced()

    async def _poll(self) -> None:
        """One request for all partitions of all jobs, again and again; soon, while none answers.

        No pass asks for a partition before, so that a longer pause would be every job's delay.
        """
        while True:
            before = self.facts.problem
            changed = await self.facts.poll(self.now())
            if bool(before) != bool(self.facts.problem):
                self.controller.enqueue_all()  # all who wait for the proxy, or may have to
            for uid in changed:
                self.controller.enqueue(uid)
            pause = self._options.poll_seconds
            await asyncio.sleep(min(pause, RETRY_SECONDS) if self.facts.problem else pause)

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(RESYNC_SECONDS)
            self.controller.enqueue_all()

    async def _watch_crd(self) -> None:
        while True:
            await asyncio.sleep(CRD_SECONDS)
            await self._look_at_crd()

    async def _look_at_crd(self) -> None:
        if await self.effects.keeper.look(self.effects.client):
            self.controller.enqueue_all()

    async def _is_crd_another(self) -> bool:
        """Return whether the copy of the jobs was made under another CRD. An API server ends
        watches then; until it does, they lack the new fields, and go on after what they have
        shown."""
        await self._look_at_crd()
        before, self._listed_under = self._listed_under, self.effects.keeper.schema
        return before not in {"", self._listed_under}

    async def _report_health(self) -> None:
        reported = ""
        while True:
            self._health.beat("loop")
            self._health.set("proxy", not self.facts.problem, self.facts.problem)
            reported = await self._report_crd(reported)
            self._health.note("nodes", _unknown_nodes(self.nodes.problem))
            problems = [text for text in map(_problem, self.informers.items()) if text]
            self._health.set("api-server", not problems, "; ".join(problems))
            await asyncio.sleep(HEALTH_SECONDS)

    async def _report_crd(self, reported: str) -> str:
        """Report the fields that the CRD drops, as an event unless it equals the previous report
        (`said`)."""
        keeper = self.effects.keeper
        self._health.set("crd", not keeper.problem, keeper.problem)
        self._health.note("crd", keeper.note)
        sentence = keeper.problem or keeper.note
        if sentence and sentence != reported:
            reason = Reason.OTHER_CRD.value
            await self.event_writer.record(
                keeper.crd, type="Warning", reason=reason, message=sentence
            )
        return sentence


def _unknown_nodes(problem: str) -> str:
    """Return the features that jobs lose if nodes cannot be read; the operator is ready without
    them."""
    if not problem:
        return ""
    return f"Nodes cannot be watched, so jobs learn of a NotReady node from their pods: {problem}"


def _problem(named: tuple[str, Informer]) -> str:
    name, informer = named
    if informer.problem:
        return f"{name}: {informer.problem}"
    if not informer.synced:
        return f"{name}: not listed yet"
    stale = informer.stale_seconds(time.monotonic())
    return f"{name}: not heard of for {stale:.0f} s" if stale > STALE_SECONDS else ""


def _informers(
    client: KubeClient, is_crd_another: Callable[[], Awaitable[bool]]
) -> dict[str, Informer]:
    """By plural name. Of what belongs to jobs only labelled objects are followed."""
    jobs = Informer(
        client,
        IPUJOBS,
        indexers={BY_UID: by_uid},
        transform=trim_job,
        must_relist=is_crd_another,
    )
    followed = {"ipujobs": jobs}
    for kind, resource in RESOURCE_OF.items():
        followed[resource.plural] = Informer(
            client,
            resource,
            label_selector=LABEL_JOB_UID,
            indexers={BY_JOB: by_job} | ({BY_NODE: by_node} if kind is Kind.POD else {}),
            transform=trim_pod if kind is Kind.POD else trim_child,
        )
    followed["namespaces"] = Informer(client, NAMESPACES, transform=only_metadata)
    return followed


def _caches(informers: dict[str, Informer], nodes: Informer) -> Caches:
    return Caches(
        jobs=informers["ipujobs"],
        children={kind: informers[r.plural] for kind, r in RESOURCE_OF.items()},
        namespaces=informers["namespaces"],
        nodes=nodes,
    )
