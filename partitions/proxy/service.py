"""io: partitions for jobs: reserve, create, activate, reset, release; each call is idempotent."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from ipuhub.partition import Partition, Phase
from partitions.errors import Contradiction, ReplicaEnds, UnknownPartition
from partitions.proxy import lifecycle, tombstones
from partitions.proxy.controllers import PlacementRule, order_candidates
from partitions.proxy.drift import scope_of_settings, terms_of
from partitions.proxy.lifecycle import TrackerEntry, Verdict, partition_of, waiting_partition
from partitions.proxy.queue import Offer, QueueOptions, WaitingQueue
from partitions.proxy.shortage import explain_shortage
from partitions.proxy.steps.driver import Driver, Pace
from partitions.proxy.steps.step import Memory, Surroundings
from partitions.proxy.tracker import free_id, next_serial
from partitions.proxy.vipuapi import make_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from ipuhub.partition import PodKey
    from partitions.proxy.controllers import ControllerView
    from partitions.proxy.fleet import Fleet
    from partitions.proxy.lifecycle import Holder, Request, Shortage
    from partitions.proxy.queue import Waiter
    from partitions.proxy.tracker import Draft
    from partitions.proxy.trackerstore import TrackerStore

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """`answer_seconds`: how long a call waits for its partition before it answers "not yet"."""

    answer_seconds: float = 1.0
    rule: PlacementRule = PlacementRule.FIRST_FIT
    pace: Pace | None = None
    queue: QueueOptions = field(default_factory=QueueOptions)


@dataclass(frozen=True, slots=True)
class _Planned:
    """The outcome of a request; no entry: it must be reserved, or is held back, and why. `is_new`:
    this call reserved it."""

    entry: TrackerEntry | None
    is_new: bool = False
    held_back: Shortage | None = None


class PartitionService:
    """Holds partitions for the instances of jobs; `now` gives the time as aware UTC.

    Calls for one (job UID, instance) follow each other, others run side by side. Every call may
    raise TrackerUnavailable, or ReplicaEnds: the same call again, to the replica that leads by
    then, continues where it stopped.
    """

    def __init__(
        self,
        store: TrackerStore,
        fleet: Fleet,
        now: Callable[[], datetime],
        options: ServiceOptions,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._now = now
        self._options = options
        self.waiting = WaitingQueue(options.queue)
        around = Surroundings(store, fleet, now, options.rule, self.waiting)
        self._driver = Driver(around, options.pace or Pace())
        self._made_keys: dict[Holder, tuple[str, str]] = {}
        self._calls: set[asyncio.Future[None]] = set()
        self._is_ending = False

    def records(self) -> list[Partition]:
        """Return all partitions and tombstones; entries of one holder in order of creation."""
        return [partition_of(entry) for entry in self._store.tracker.ordered()]

    def in_turn(self) -> list[tuple[Waiter, bool]]:
        """Return the waiting requests in order of service; see `WaitingQueue.in_turn`."""
        return self.waiting.in_turn(self._now())

    def find(self, uid: str, instance: int) -> Partition:
        """The last partition of a holder, its tombstone included; raises UnknownPartition."""
        return partition_of(self._known((uid, instance)))

    async def ensure(self, request: Request) -> Partition:
        """See to it that the holder has a clean partition for its attempt.

        Raises StaleAttempt for an attempt that is over, Contradiction for another size or job.
        """
        with self._call():
            record = await self._ensured(request)
        if record.phase != Phase.WAITING.value:
            self.waiting.forget(request.holder)
        return record

    async def _ensured(self, request: Request) -> Partition:
        memory = None
        async with self._driver.locks.hold(request.holder):
            verdict = self._verdict(request)
            if verdict is not Verdict.KEEP:
                planned = await self._planned(request, verdict)
                if isinstance(planned, Partition):
                    return planned
                if planned.is_new:
                    memory = Memory(is_first_ask=True)
        return await self._answer(request.holder, memory)

    async def reset(self, uid: str, instance: int, attempt: int) -> Partition:
        """Prepare a clean partition for `attempt`; raises UnknownPartition if there is none."""
        holder = (uid, instance)

        def change(draft: Draft) -> None:
            entry = draft.newest(holder)
            if entry is None or entry.phase in {Phase.RELEASING, Phase.RELEASED}:
                raise UnknownPartition(f"instance {instance} of job UID {uid} holds no partition")
            lifecycle.refuse_stale(entry, attempt)
            if attempt > entry.attempt:
                draft.put(lifecycle.begin_attempt(entry, attempt))

        with self._call():
            async with self._driver.locks.hold(holder):
                await self._store.write(change)
            return await self._answer(holder)

    async def release(self, uid: str, instance: int) -> Partition:
        """Remove the partition; raises UnknownPartition if there never was a partition."""
        holder = (uid, instance)

        def change(draft: Draft) -> None:
            entry = draft.newest(holder)
            if entry is not None and entry.phase is not Phase.RELEASED:
                draft.put(lifecycle.begin_release(entry))

        self.waiting.forget(holder)
        self._made_keys.pop(holder, None)
        with self._call():
            async with self._driver.locks.hold(holder):
                if self._known(holder).phase is not Phase.RELEASED:
                    await self._store.write(change)
            return await self._answer(holder)

    async def make_key(self, uid: str, instance: int, attempt: int) -> PodKey | None:
        """Make a key for the pods of an active partition; an earlier key ends.

        It is in the answer and nowhere else: who loses it asks again. None: they need none. Raises
        UnknownPartition, StaleAttempt, ControllerUnavailable, or Contradiction where a key is
        stored already.
        """
        holder = (uid, instance)
        with self._call():
            async with self._driver.locks.hold(holder):
                entry = self._known(holder)
                lifecycle.require_key_wanted(entry, attempt)
                made = await make_key(self._fleet.api(entry.controller), entry.id)
                if made is None:
                    without = lifecycle.with_key(entry, "")
                    await self._store.write(lambda draft: draft.replace(entry, without))
                    return None
                self._made_keys[holder] = (entry.key, made.id)
                return made

    async def store_key(self, uid: str, instance: int, attempt: int, key_id: str) -> Partition:
        """Note that pods can use the key that was made last; it stays for this attempt.

        Raises UnknownPartition, StaleAttempt, or Contradiction: another key has been made since, or
        by another replica, and a new key is to be made.
        """
        holder = (uid, instance)

        def change(draft: Draft) -> None:
            entry = draft.newest(holder)
            if entry is None:
                raise UnknownPartition(f"instance {instance} of job UID {uid} has no partition")
            if (entry.attempt, entry.pod_key) == (attempt, key_id):
                return
            lifecycle.require_key_wanted(entry, attempt)
            if self._made_keys.get(holder) != (entry.key, key_id):
                raise Contradiction(f"key {key_id} is not the last key made; make a new key")
            draft.put(lifecycle.with_key(entry, key_id))

        with self._call():
            async with self._driver.locks.hold(holder):
                await self._store.write(change)
                self._made_keys.pop(holder, None)
            return self.find(uid, instance)

    async def acknowledge(self, names: frozenset[str]) -> int:
        """Drop tombstones that a recorder has stored: record keys, or UIDs for all tombstones of a
        job.

        Return how many tombstones that were. An unreleased partition is not acknowledged.
        """

        def change(draft: Draft) -> int:
            found = [
                entry
                for entry in draft.entries()
                if entry.phase is Phase.RELEASED and names & {entry.uid, entry.key}
            ]
            for entry in found:
                draft.put(tombstones.acknowledge(entry))
            return len(found)

        with self._call():
            return await self._store.write(change)

    async def resume(self, holder: Holder) -> None:
        """Go on with a holder's unfinished partition, for as long as a call would wait."""
        with self._call():
            await self._wait(holder)

    async def finish(self, seconds: float) -> int:
        """Accept no more calls, and let every partition finish its phase within so many seconds.

        Return how many did not finish.
        """
        self._is_ending = True
        self._driver.finish()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (busy := self._calls | self._driver.tasks) and (remaining := until - loop.time()) > 0:
            await asyncio.wait(busy, timeout=remaining)
        return len(self._driver.tasks)

    async def close(self) -> None:
        """Stop at once; the next leader continues from the tracker."""
        await self._driver.close()

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Count a call that has to end before this replica does."""
        if self._is_ending:
            raise ReplicaEnds("this replica is shutting down; try again in a moment")
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._calls.add(call)
        try:
            yield
        finally:
            self._calls.discard(call)
            call.set_result(None)

    def _known(self, holder: Holder) -> TrackerEntry:
        entry = self._store.tracker.newest(holder)
        if entry is None:
            raise UnknownPartition(f"instance {holder[1]} of job UID {holder[0]} has no partition")
        return entry

    def _verdict(self, request: Request) -> Verdict:
        """Return the verdict on the request by the tracker's entries; KEEP: nothing to write."""
        return lifecycle.decide(self._store.tracker.newest(request.holder), request)

    async def _planned(self, request: Request, verdict: Verdict) -> _Planned | Partition:
        """Write what the request comes to; a record is the answer that there is no room."""
        if verdict is not Verdict.RESERVE:
            planned = await self._store.write(lambda draft: self._plan(draft, request, None))
            if planned.entry is not None:
                return planned
        views = await self._fleet.views()
        candidates = order_candidates(views, request.size, self._options.rule)
        if not candidates:
            self.waiting.note(request.holder, request.size, self._now())
            return waiting_partition(request, explain_shortage(views, request.size))
        offer = Offer(views, candidates)
        planned = await self._store.write(lambda draft: self._plan(draft, request, offer))
        held_back = planned.held_back
        return planned if held_back is None else waiting_partition(request, held_back)

    def _plan(self, draft: Draft, request: Request, offer: Offer | None) -> _Planned:
        """Put what the request comes to; without an offer nothing new is reserved."""
        entry = draft.newest(request.holder)
        verdict = lifecycle.decide(entry, request)
        if verdict is Verdict.RESERVE or entry is None:
            if offer is None:
                return _Planned(None)
            arguments = (request.holder, request.size, offer, draft, self._now())
            targets, held_back = self.waiting.open_to(*arguments)
            if held_back is not None:
                return _Planned(None, held_back=held_back)
            reserved = self._reserve(draft, entry, request, targets[0])
            return _Planned(draft.put(reserved), is_new=True)
        if verdict is Verdict.RESET:
            return _Planned(draft.put(lifecycle.begin_attempt(entry, request.attempt)))
        if verdict is Verdict.RELEASE_FIRST:
            return _Planned(draft.put(lifecycle.begin_release(entry)))
        return _Planned(entry)

    def _reserve(
        self, draft: Draft, last: TrackerEntry | None, request: Request, target: ControllerView
    ) -> TrackerEntry:
        listed, now = {partition.id for partition in target.partitions}, self._now()
        return TrackerEntry(
            uid=request.uid,
            instance=request.instance,
            serial=next_serial(last, now),
            namespace=request.namespace,
            name=request.name,
            attempt=request.attempt,
            id=free_id(request, draft, listed),
            size=request.size,
            phase=Phase.RESERVING,
            controller=target.spec.address,
            label=target.spec.label,
            reserved_at=now,
            num_gcds=request.num_gcds,
            num_replicas=request.num_replicas,
            scope=scope_of_settings(target.spec.settings),
            terms=terms_of(target.spec.settings, request.num_gcds),
        )

    async def _answer(self, holder: Holder, memory: Memory | None = None) -> Partition:
        waiting = await self._wait(holder, memory)
        return waiting or partition_of(self._known(holder))

    async def _wait(self, holder: Holder, memory: Memory | None = None) -> Partition | None:
        """Drive what is unfinished; returns the answer of an attempt that found no room."""
        entry = self._store.tracker.newest(holder)
        if entry is None or entry.phase.is_settled:
            return None
        task = self._driver.drive(holder, memory)
        await asyncio.wait({task}, timeout=self._options.answer_seconds)
        return task.result() if task.done() and not task.cancelled() else None
