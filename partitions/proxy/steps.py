"""io: one step of a partition towards the state in its entry, in tracker and V-IPU controller.

Each step reads the entry, sends at most one change to the controller, and records the result. After
a crash the same steps continue from the entry.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import structlog

from ipuhub.partition import Phase, Reason
from partitions.proxy import lifecycle
from partitions.proxy.controllers import PartitionSettings, explain_shortage, order_candidates
from partitions.proxy.drift import asked_of, strangeness
from partitions.proxy.lifecycle import waiting_partition
from partitions.proxy.queue import Offer, Readiness
from partitions.proxy.tracker import free_id, next_serial
from partitions.proxy.vipuapi import is_under_removal
from partitions.vipu.errors import (
    AlreadyExists,
    NoCapacity,
    NotFound,
    NotReady,
    Unavailable,
    VipuError,
)
from partitions.vipu.types import CreateRequest, ReadyState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from ipuhub.partition import Partition
    from partitions.proxy.controllers import ControllerView, PlacementRule
    from partitions.proxy.fleet import Fleet
    from partitions.proxy.lifecycle import Shortage, TrackerEntry
    from partitions.proxy.queue import WaitingQueue
    from partitions.proxy.store import TrackerStore
    from partitions.proxy.tracker import Draft
    from partitions.vipu.types import VipuStatus

log = structlog.get_logger(__name__)

# A controller that takes a removal may begin it late; one that has forgotten it never does.
LOOKS_UNTIL_ASKED_AGAIN: Final = 10
# A removal that takes longer, about 1 s, is worth a write: people see that it goes on.
LOOKS_UNTIL_TOLD: Final = 6


class Next(Enum):
    """When the next step of a partition is due; ACCEPTED: at the memory's `look_at`."""

    SETTLED = auto()
    NOW = auto()
    ACCEPTED = auto()
    POLL = auto()
    BACKOFF = auto()


@dataclass(slots=True)
class Memory:
    """What this process knows of one attempt and no other process needs to.

    `is_first_ask`: no request to create this partition can have been sent to its controller, so
    that a partition of its id there is somebody else's. `waiting` is the answer of an attempt
    that found no room. `accepted_at` (nothing: this process has not asked) and `look_at` are of
    the loop's clock; `looks` counts since then, or since a removal was taken.
    """

    is_first_ask: bool = False
    is_removed: bool = False
    is_reset: bool = False
    accepted_at: float | None = None
    look_at: float = 0.0
    looks: int = 0
    tried: set[str] = field(default_factory=set)
    waiting: Partition | None = None


class Steps:
    """Carries out single steps; `now` gives the time as aware UTC."""

    def __init__(
        self,
        store: TrackerStore,
        fleet: Fleet,
        now: Callable[[], datetime],
        rule: PlacementRule,
        waiting: WaitingQueue,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._now = now
        self._rule = rule
        self._waiting = waiting
        self._readiness = Readiness()

    async def step(self, entry: TrackerEntry, memory: Memory) -> Next:
        """Take the next step; raises TrackerUnavailable when it cannot be written down."""
        match entry.phase:
            case Phase.RESERVING:
                return await self._make(entry, memory)
            case Phase.CREATING:
                return await self._poll(entry, memory)
            case Phase.RELEASING:
                return await self._remove(entry, memory)
            case _:
                return Next.SETTLED

    # ------------------------------------------------------------------ create

    async def _make(self, entry: TrackerEntry, memory: Memory) -> Next:
        """Reset the partition if it exists and is ours, else create one."""
        try:
            listed = {} if memory.is_first_ask else await self._fleet.listed(entry.controller)
            found = listed.get(entry.id)
            is_there = found is not None and found.ready_state is not ReadyState.REMOVED
            api = self._fleet.api(entry.controller)
            is_ending = is_there and await is_under_removal(api, entry.id)
        except VipuError as error:
            return await self._hang(entry, Reason.CONTROLLER_UNAVAILABLE, error)
        memory.is_reset = is_there
        if found is not None and is_there and (why := strangeness(entry, found)):
            return await self._take_other_id(entry, memory, listed, why)
        if is_ending:
            return Next.POLL  # neither ours to reset nor room for a new one yet
        spec = self._fleet.spec_of(entry.controller)
        if spec and not memory.is_reset and entry.asked != asked_of(spec.settings):
            await self._replace(entry, lifecycle.ask(entry, asked_of(spec.settings)))
            return Next.NOW
        return await self._send(entry, memory)

    async def _send(self, entry: TrackerEntry, memory: Memory) -> Next:
        """Have the partition reset or created."""
        api = self._fleet.api(entry.controller)
        try:
            if memory.is_reset:
                await api.reset_partition(entry.id)
            elif self._fleet.spec_of(entry.controller) is None:
                raise NoCapacity(f"{entry.controller} is off the list and drains")
            else:
                await api.create_partition(self._create_request(entry))
        except VipuError as error:
            return await self._not_taken(entry, memory, error)
        memory.is_first_ask = False
        self._note_acceptance(entry, memory)
        return await self._accepted(entry, memory)

    async def _not_taken(self, entry: TrackerEntry, memory: Memory, error: VipuError) -> Next:
        """What follows from the controller's refusal to create or to reset."""
        if isinstance(error, AlreadyExists):
            return await self._meet_existing(entry, memory)
        if isinstance(error, NoCapacity):
            return await self._go_elsewhere(entry, memory)
        if isinstance(error, NotFound):
            return Next.NOW  # removed between the question and the reset
        memory.is_first_ask = False  # the answer may be lost, not the request
        if isinstance(error, NotReady) and memory.is_reset:
            return await self._give_back(entry, error)
        if error.retryable:
            return await self._hang_unanswered(entry, memory, error)
        return await self._refused(entry, error)

    async def _refused(self, entry: TrackerEntry, error: VipuError) -> Next:
        await self._replace(entry, lifecycle.fail(entry, Reason.CREATE_REFUSED, str(error)))
        return Next.SETTLED

    async def _give_back(self, entry: TrackerEntry, why: VipuError) -> Next:
        """The partition cannot be reset, since its IPUs are broken: another takes its place."""
        log.warning("partition given back", id=entry.id, problem=str(why))
        try:
            await self._fleet.api(entry.controller).remove_partition(entry.id)
        except NotFound:
            return Next.NOW
        except VipuError as error:
            return await self._hang(entry, Reason.CONTROLLER_UNAVAILABLE, error)
        return Next.BACKOFF

    async def _accepted(self, entry: TrackerEntry, memory: Memory) -> Next:
        accepted = lifecycle.accept(entry)
        if await self._is_ready_at_once(entry, memory):
            self._learn(entry, memory)
            await self._replace(entry, self._activated(accepted))
            return Next.NOW  # somebody may have written something else into the tracker meanwhile
        await self._replace(entry, accepted)
        return Next.ACCEPTED

    def _activated(self, entry: TrackerEntry) -> TrackerEntry:
        wants_key = self._fleet.wants_key(entry.controller)
        return lifecycle.activate(entry, self._now(), wants_key=wants_key)

    async def _is_ready_at_once(self, entry: TrackerEntry, memory: Memory) -> bool:
        """Look before the acceptance is written, where that is when to look: what is ACTIVE by then
        is worth one write, not two."""
        if memory.look_at > asyncio.get_running_loop().time():
            return False
        memory.looks += 1
        try:
            status = await self._fleet.api(entry.controller).partition_status(entry.id)
        except VipuError:
            return False  # the next look will see it, too
        return status.is_usable

    def _note_acceptance(self, entry: TrackerEntry, memory: Memory) -> None:
        """The controller is at work from now on, while that is still being written down."""
        wait = self._readiness.first_look_seconds(entry.controller, is_reset=memory.is_reset)
        memory.accepted_at, memory.looks = asyncio.get_running_loop().time(), 0
        memory.look_at = memory.accepted_at + wait

    async def _meet_existing(self, entry: TrackerEntry, memory: Memory) -> Next:
        """A partition of our id exists: ours from before, or, at the first ask, another's."""
        if not memory.is_first_ask:
            return Next.BACKOFF  # it appeared since the question: ask again, and judge it
        return await self._take_other_id(entry, memory, {entry.id}, "it was there before")

    async def _take_other_id(
        self, entry: TrackerEntry, memory: Memory, listed: Collection[str], why: str
    ) -> Next:
        """The partition of our id is somebody else's: leave it alone and take another id."""
        where = {"id": entry.id, "controller": entry.controller}
        log.warning("partition id taken by someone else", **where, problem=why)

        def rename(draft: Draft) -> bool:
            if draft.get(entry.key) != entry:
                return False
            draft.put(lifecycle.rename(entry, free_id(entry, draft, {entry.id, *listed})))
            return True

        memory.is_first_ask = await self._store.write(rename)
        return Next.NOW

    async def _go_elsewhere(self, entry: TrackerEntry, memory: Memory) -> Next:
        """Someone was faster here: try the next controller, or give the reservation up."""
        memory.tried.add(entry.controller)
        if self._fleet.spec_of(entry.controller) is not None:
            self._fleet.note_refusal(entry.controller, entry.size)
        views = await self._fleet.views()
        candidates = [
            view
            for view in order_candidates(views, entry.size, self._rule)
            if view.spec.address not in memory.tried
        ]
        offer = Offer(views, candidates)
        shortage = explain_shortage(views, entry.size)
        if candidates:
            held_back = await self._store.write(lambda draft: self._move(draft, entry, offer))
            if held_back is None:
                memory.is_first_ask = True
                return Next.NOW
            shortage = held_back
        else:
            self._waiting.note(entry.holder, entry.size, self._now())
        memory.waiting = waiting_partition(entry, shortage)
        await self._replace(entry, lifecycle.give_up(entry, self._now()))
        return Next.SETTLED

    def _move(self, draft: Draft, entry: TrackerEntry, offer: Offer) -> Shortage | None:
        """Send the reservation to a controller that it may have, or say why to none."""
        if draft.get(entry.key) != entry:
            return None
        asked = (entry.holder, entry.size, offer, draft, self._now())
        targets, held_back = self._waiting.open_to(*asked)
        if held_back is None:
            _move(draft, entry, targets[0], self._now())
        return held_back

    def _create_request(self, entry: TrackerEntry) -> CreateRequest:
        """Auto-reset and relocation stay off: pods hold the partition and must see its faults."""
        spec = self._fleet.spec_of(entry.controller)
        settings = spec.settings if spec else PartitionSettings()
        return CreateRequest(
            id=entry.id,
            size=entry.size,
            cluster_id=settings.cluster_id,
            allocation_id=settings.allocation_id,
            num_gcds=entry.num_gcds or settings.num_gcds,
            num_replicas=entry.num_replicas or settings.num_replicas,
            reconfigurable=settings.reconfigurable,
            auto_reset=False,
            relocatable=False,
        )

    # ------------------------------------------------------------------ activate

    async def _poll(self, entry: TrackerEntry, memory: Memory) -> Next:
        memory.looks += 1
        try:
            status = await self._fleet.api(entry.controller).partition_status(entry.id)
        except NotFound:
            await self._replace(entry, lifecycle.make_again(entry))
            return Next.BACKOFF
        except VipuError as error:
            return await self._hang(entry, Reason.CONTROLLER_UNAVAILABLE, error)
        if status.ready_state is ReadyState.REMOVED:
            await self._replace(entry, lifecycle.make_again(entry))
            return Next.BACKOFF
        if status.is_faulty:
            await self._replace(entry, lifecycle.fault(entry, status))
            return Next.SETTLED
        if status.is_usable:
            self._learn(entry, memory)
            await self._replace(entry, self._activated(entry))
            return Next.NOW  # as above
        return Next.POLL

    def _learn(self, entry: TrackerEntry, memory: Memory) -> None:
        if memory.accepted_at is None:
            return
        took = asyncio.get_running_loop().time() - memory.accepted_at
        self._readiness.learn(entry.controller, took, memory.looks, is_reset=memory.is_reset)

    # ------------------------------------------------------------------ release

    async def _remove(self, entry: TrackerEntry, memory: Memory) -> Next:
        api = self._fleet.api(entry.controller)
        try:
            if not memory.is_removed:
                found = (await self._fleet.listed(entry.controller)).get(entry.id)
                if found is not None and (why := strangeness(entry, found)):
                    return await self._leave(entry, why)
                if found is not None:
                    await api.remove_partition(entry.id)
                    memory.is_removed, memory.looks = True, 0
            status = await api.partition_status(entry.id)
        except NotFound:
            pass
        except VipuError as error:
            is_silent = isinstance(error, Unavailable)
            reason = Reason.CONTROLLER_UNAVAILABLE if is_silent else Reason.RELEASE_REFUSED
            return await self._hang(entry, reason, error)
        else:
            if status.ready_state is not ReadyState.REMOVED:
                return await self._still_there(entry, status, memory)
        await self._replace(entry, lifecycle.finish_release(entry, self._now()))
        return Next.SETTLED

    async def _leave(self, entry: TrackerEntry, why: str) -> Next:
        """Somebody else's partition has our id, so that ours cannot exist any more."""
        log.warning("partition left alone", controller=entry.controller, problem=why)
        await self._replace(entry, lifecycle.leave(entry, self._now(), why))
        return Next.SETTLED

    async def _still_there(self, entry: TrackerEntry, status: VipuStatus, memory: Memory) -> Next:
        """The removal is under way, or may begin late; else it is asked for again."""
        memory.looks += 1
        if status.is_removing and memory.looks >= LOOKS_UNTIL_TOLD:
            await self._hang(entry, Reason.REMOVING, _removing(entry))
        if status.is_removing or (not status.is_faulty and memory.looks < LOOKS_UNTIL_ASKED_AGAIN):
            return Next.POLL
        memory.is_removed, memory.looks = False, 0
        problem = "; ".join(status.errors) or (
            f"{entry.controller} was to remove partition {entry.id}, "
            f"which is {status.ready_state} and {status.operation_state}"
        )
        return await self._hang(entry, Reason.RELEASE_REFUSED, problem)

    # ------------------------------------------------------------------ write

    async def _hang(self, entry: TrackerEntry, reason: Reason, error: VipuError | str) -> Next:
        """Write down, once, why it does not go on, and come back later."""
        if entry.reason != reason:
            log.warning("partition hangs", id=entry.id, phase=entry.phase.value, problem=str(error))
            await self._replace(entry, lifecycle.hang(entry, reason, str(error)))
        return Next.BACKOFF

    async def _hang_unanswered(self, entry: TrackerEntry, memory: Memory, error: VipuError) -> Next:
        """The partition may come, whenever that is; a reset makes nothing."""
        if memory.is_reset or entry.may_come:
            return await self._hang(entry, Reason.CONTROLLER_UNAVAILABLE, error)
        log.warning("no answer to a creation", id=entry.id, problem=str(error))
        await self._replace(entry, lifecycle.hang_unanswered(entry, str(error)))
        return Next.BACKOFF

    async def _replace(self, entry: TrackerEntry, new: TrackerEntry | None) -> None:
        """Write `new` (None: nothing) in place of `entry`, unless somebody changed that."""
        await self._store.write(lambda draft: draft.replace(entry, new))
        if new is not None and new.phase is not entry.phase:
            job = f"{new.namespace}/{new.name}"
            log.info("partition", id=new.id, phase=new.phase.value, job=job)


def _removing(entry: TrackerEntry) -> str:
    return f"{entry.controller} is removing partition {entry.id}: its IPUs are not free yet"


def _move(draft: Draft, entry: TrackerEntry, target: ControllerView, now: datetime) -> None:
    listed = {partition.id for partition in target.partitions}
    if entry.may_come:  # it stays known where it may come; the other controller's is a new holding
        draft.put(lifecycle.finish_release(entry, now))
        entry = lifecycle.again(entry, next_serial(entry, now), now)
        listed.add(entry.id)
    new_id = free_id(entry, draft, listed) if entry.id in listed else entry.id
    spec = target.spec
    where = {"controller": spec.address, "label": spec.label, "asked": asked_of(spec.settings)}
    draft.put(lifecycle.move(entry, **where, partition_id=new_id))
