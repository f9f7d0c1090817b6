"""The world of the stories on an API server: whole operators over HTTP, on the world's clock."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ipuhub.kube.client import KubeClient
from ipuhub.kube.events import EventRecorder
from ipuhub.kube.resources import EVENTS
from jobs.operator.metrics import OPERATOR
from jobs.operator.operator import Operator, OperatorOptions
from tests.fakes.chaosworld import STEP_SECONDS, ChaosWorld
from tests.fakes.counted import metric_value
from tests.fakes.kube import Killed
from tests.fakes.tap import News, Tap
from tests.fakes.waiting import eventually
from tests.fakes.wire import Wire, WiredPartitions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ipuhub.kube.credentials import ClusterConfig
    from tests.fakes.chaosworld import Faults
    from tests.fakes.logcache import Feed
    from tests.fakes.serverkube import Observer, ServerKube
    from tests.fakes.wholeproxy import WholeProxy

POLL_SECONDS = 0.01
PATIENCE_SECONDS = 90.0  # an operator that is not at rest by then is busy for nothing
COLLECTED_SECONDS = 90.0  # a real garbage collector learns of a new kind every 30 s
NOBODY = "nobody"  # no job's UID: a pass over it looks at the clock and does nothing


class WiredClient(KubeClient):
    """The API server, as one operator reaches it. Its first lists and watches are not broken."""

    def __init__(self, config: ClusterConfig, replica: ServerReplica) -> None:
        super().__init__(config, user_agent="ipu-operator")
        self._replica = replica

    async def _on_wire(self, verb: str, resource: Any, *args: Any, **options: Any) -> Any:
        call: Callable[..., Any] = getattr(super(), verb)
        kube = self._replica.world.kube

        async def act() -> Any:
            answer = await call(resource, *args, **options)
            if verb not in {"get", "list"}:
                kube.wrote(resource.plural, answer)
            return answer

        return await self._replica.wire.call(verb, act, is_proxy=False, what=resource.plural)

    async def get(self, resource: Any, *args: Any, **options: Any) -> Any:
        return await self._on_wire("get", resource, *args, **options)

    async def list(self, resource: Any, namespace: str | None = None, **options: Any) -> Any:
        if namespace is None:
            return await super().list(resource, None, **options)
        return await self._on_wire("list", resource, namespace, **options)

    async def create(self, resource: Any, *args: Any, **options: Any) -> Any:
        if resource is EVENTS:
            return await super().create(resource, *args, **options)
        return await self._on_wire("create", resource, *args, **options)

    async def patch(self, resource: Any, *args: Any, **options: Any) -> Any:
        if resource is EVENTS:
            return await super().patch(resource, *args, **options)
        return await self._on_wire("patch", resource, *args, **options)

    async def delete(self, resource: Any, *args: Any, **options: Any) -> Any:
        return await self._on_wire("delete", resource, *args, **options)

    @asynccontextmanager
    async def stream(self, resource: Any, *args: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        tap = self._replica.tap(resource.plural)
        async with super().stream(resource, *args) as chunks:
            yield tap.pass_on(chunks)


class _Health:
    """The health of an operator, which no test reads."""

    def set(self, name: str, ok: bool, detail: str = "") -> None:
        """One check."""

    def note(self, name: str, sentence: str) -> None:
        """One sentence to know."""

    def beat(self, name: str) -> None:
        """A sign of life."""


def _crashes() -> float:
    """Return how many passes ended in an unexpected error: the operator's loop continues after
    one."""
    return metric_value(OPERATOR, "ipuhub_operator_pass_duration_seconds_count", outcome="crashed")


class ServerReplica:
    """One operator, whole: informers, queue, workers and its poll of partitions."""

    def __init__(self, world: ServerWorld, feed: Feed) -> None:
        self.world, self.feed = world, feed
        self.news = News()
        self.wire = Wire(
            on_write=world.count_write, mischief=world.faults.mischief, turns=world.faults.turns
        )
        self._taps: dict[str, Tap] = {}
        self._events = 0
        self._client = WiredClient(world.config, self)
        partitions: Any = WiredPartitions(world.partitions, self.wire)
        self.operator = Operator(
            self._client,
            partitions,
            EventRecorder(self._client, "ipu-operator", self.now),
            _Health(),
            OperatorOptions(
                concurrency=4, poll_seconds=POLL_SECONDS, now=self.now, monotonic=self.clock
            ),
        )
        self._task = asyncio.create_task(self.operator.run())

    @property
    def controller(self) -> Any:
        return self.operator.controller

    def now(self) -> Any:
        return self.world.now

    def clock(self) -> float:
        return self.world.clock()

    def tap(self, plural: str) -> Tap:
        return self._taps.setdefault(plural, Tap(plural, self))

    def counts_event(self) -> int:
        """The number of one more event."""
        self._events += 1
        return self._events - 1

    @property
    def events(self) -> int:
        """Return the number of events that its watches have had."""
        return self._events

    @property
    def is_idle(self) -> bool:
        """It has seen everything and waits for nothing but changes."""
        queue = self.operator.controller.queue
        behind = any(tap.is_behind for tap in self._taps.values())
        return not behind and not (len(queue) or queue.delayed or self.operator.facts.problem)

    async def work(self) -> None:
        """Until it is at rest, at this time of the clock. Raises Killed once it is dead."""
        self.news.set()
        self.operator.controller.enqueue(NOBODY)
        patience = time.monotonic() + PATIENCE_SECONDS
        while not self._is_at_rest():
            if self.wire.is_dead:
                raise Killed
            if self._task.done():
                self._task.result()
            assert time.monotonic() < patience, f"does not come to rest: {self._unrest()}"
            await asyncio.sleep(0.002)
        if self.wire.is_dead:
            raise Killed

    async def stop(self) -> None:
        """It ends where it is; what it has sent may still take effect."""
        self.wire.is_dead = True
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, BaseExceptionGroup, Killed):
            await self._task
        await self._client.close()

    def _is_at_rest(self) -> bool:
        queue, facts = self.operator.controller.queue, self.operator.facts
        if (
            len(queue)
            or queue.active
            or not all(i.synced for i in self.operator.informers.values())
        ):
            return False
        knows = facts.answered_at == self.world.now and not facts.problem
        gives_up = bool(facts.problem) and not self.world.has_whole_proxy
        return (knows or gives_up) and not self._unseen()

    def _unseen(self) -> list[str]:
        """Return the writes that the watches have not shown yet."""
        kube, informers = self.world.kube, self.operator.informers
        return [
            plural
            for plural, informer in informers.items()
            if not self.tap(plural).is_current(
                kube.latest.get(plural, 0), int(informer.resource_version or 0)
            )
        ]

    def _unrest(self) -> str:
        queue = self.operator.controller.queue
        return f"{len(queue)} due, {queue.active} active, unseen {self._unseen()}"


class ServerWorld(ChaosWorld):
    """A namespace of a server, and operators that reach it as their faults let them."""

    QUIET_STEPS = 2
    LONGEST_SECONDS = 16.0
    kube: ServerKube

    def __init__(
        self,
        kube: ServerKube,
        observer: Observer,
        config: ClusterConfig,
        faults: Faults,
        proxy: WholeProxy | None = None,
    ) -> None:
        self.config = config
        self._proxy = proxy
        self._observer = observer
        self._retired: list[asyncio.Task[None]] = []
        observer.world = kube
        self._pause = STEP_SECONDS
        self._crashes_before = _crashes()
        super().__init__(faults, kube=kube)

    @property
    def has_whole_proxy(self) -> bool:
        """Return whether the partitions' answer takes time of its own: until it, and be it a
        successor's, the clock stands still, or a story would be over before it has come."""
        return self._proxy is not None

    def make_partitions(self, ipus: int) -> Any:
        return self._proxy or super().make_partitions(ipus)

    def make_replica(self, feed: Feed) -> ServerReplica:
        return ServerReplica(self, feed)

    def retire(self, replica: Any) -> None:
        super().retire(replica)
        self._retired.append(asyncio.create_task(replica.stop()))

    def check(self) -> None:
        """Judge all that happened, at the end: only then its order is known."""

    async def step(self, **pods: Any) -> None:
        """Two seconds; while nothing happens at all, more and more at once."""
        before = self._happened()
        self.now += timedelta(seconds=self._pause - STEP_SECONDS)
        await super().step(**pods)
        await eventually(self._is_observed)
        if self._proxy is not None:  # the proxy in memory moves with the steps
            await eventually(lambda: not self.partitions.is_moving)
        quiet = before == self._happened()
        self._pause = min(2 * self._pause, self.LONGEST_SECONDS) if quiet else STEP_SECONDS

    def _happened(self) -> tuple[int, ...]:
        return self.writes, len(self.kube.changes), len(self.partitions.history)

    async def settle(self, **pods: Any) -> None:
        await super().settle(**pods)
        while not self.kube.has_all_its_jobs():
            await eventually(self.kube.has_all_its_jobs)
            await super().settle(**pods)
        if self.kube.refusing.is_ending:
            await self._see_namespace_end(**pods)
        await eventually(lambda: not self.kube.ownerless(), seconds=COLLECTED_SECONDS)

    async def _see_namespace_end(self, **pods: Any) -> None:
        """The server's own controller deletes what is in it, in its own time."""
        async with asyncio.timeout(COLLECTED_SECONDS):
            while self.kube.objects:
                await self.step(**pods)
        await eventually(self.kube.is_over, seconds=COLLECTED_SECONDS)

    async def compare(self) -> None:
        """Compare the tracker of a whole proxy with V-IPU."""
        if self._proxy is not None:
            await self._proxy.check()

    def judge(self) -> None:
        """Nothing forbidden has happened, in the order in which the server did it. What the
        partitions refuse, a release under a living pod above all, crashes a pass."""
        assert _crashes() == self._crashes_before
        self.kube.changes.sort(key=lambda change: change.version)
        self.invariants.check()

    async def clear(self) -> None:
        """Users delete what is left, and with it everything goes."""
        for plural, _, name in list(self.kube.objects):
            if plural == "ipujobs":
                self.kube.delete_job(name)
        await self.settle()
        assert list(self.kube.objects) == []
        assert self.kube.present_pods() == []
        assert self.partitions.held() == []

    async def close(self) -> None:
        """All operators end."""
        for replica in self.replicas:
            await replica.stop()
        await asyncio.gather(*self._retired)
        self._observer.world = None

    def _is_observed(self) -> bool:
        seen = self._observer.versions
        return all(seen[plural] >= version for plural, version in self.kube.latest.items())
