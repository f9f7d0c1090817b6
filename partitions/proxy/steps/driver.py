"""io: drives each unfinished partition, step by step, until nothing is left to do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from ipuhub.backoff import Backoff, jitter
from ipuhub.concurrency import KeyedLocks, end_tasks, wait_set
from ipuhub.partition import Phase
from partitions.errors import NotLeading, PartitionsError, TrackerUnavailable
from partitions.proxy.steps.activate import activate
from partitions.proxy.steps.create import create
from partitions.proxy.steps.release import release
from partitions.proxy.steps.step import Memory, Next, Step

if TYPE_CHECKING:
    from ipuhub.partition import Partition
    from partitions.proxy.lifecycle import Holder, TrackerEntry
    from partitions.proxy.steps.step import Surroundings

log = structlog.get_logger(__name__)
_POLL = Backoff(first_seconds=0.05, max_seconds=1.0)
_RETRY = Backoff(first_seconds=0.2, max_seconds=5.0)
_STEPS = {Phase.RESERVING: create, Phase.CREATING: activate, Phase.RELEASING: release}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The delay until a controller is looked at again: while it works, and after a failure."""

    poll: Backoff = _POLL
    retry: Backoff = _RETRY


@dataclass(eq=False, slots=True)
class _Drive:
    """A running drive; `wake` ends its present pause, `memory` belongs to one attempt; `last`: the
    phase with which it ends although there is more to do."""

    task: asyncio.Task[Partition | None] | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    memory: Memory = field(default_factory=Memory)
    attempt: tuple[str, int] = ("", -1)
    last: Phase | None = None


class Driver:
    """One task per holder (job UID and instance) with unfinished work.

    Code that changes a holder's entry does so under `locks.hold(holder)`, and then calls `drive`.
    """

    def __init__(self, around: Surroundings, pace: Pace) -> None:
        self.locks: KeyedLocks[Holder] = KeyedLocks()
        self._around = around
        self._store = around.store
        self._pace = pace
        self._drives: dict[Holder, _Drive] = {}
        self._is_finishing = False

    @property
    def tasks(self) -> set[asyncio.Task[Partition | None]]:
        """The drives that are under way."""
        return {drive.task for drive in self._drives.values() if drive.task is not None}

    def finish(self) -> None:
        """From now on every drive, also of those to come, ends with the phase that its partition
        is in, or as soon as it would have to wait because something failed."""
        self._is_finishing = True
        for holder, drive in self._drives.items():
            drive.last = self._phase(holder)
            drive.wake.set()

    def drive(self, holder: Holder, memory: Memory | None = None) -> asyncio.Task[Partition | None]:
        """Start or wake the holder's task; return the answer of an attempt that found no room.

        `memory` comes from the caller that has just reserved.
        """
        drive = self._drives.get(holder)
        if drive is None:
            drive = self._drives[holder] = _Drive()
        if self._is_finishing:
            drive.last = self._phase(holder)
        if memory is not None:
            entry = self._store.tracker.newest(holder)
            if entry is not None and drive.attempt != _attempt_of(entry):
                drive.memory, drive.attempt = memory, _attempt_of(entry)
        drive.wake.set()
        if drive.task is None:
            drive.task = asyncio.create_task(self._run(holder, drive))
        return drive.task

    async def close(self) -> None:
        """Stop all drives where they are; their entries say how to go on."""
        await end_tasks(*self.tasks)

    async def _run(self, holder: Holder, drive: _Drive) -> Partition | None:
        pauses = 0
        try:
            while True:
                drive.wake.clear()
                async with self.locks.hold(holder):
                    due = await self._step(holder, drive)
                    if due is Next.SETTLED or self._ends(holder, drive, due):
                        # Under the lock: a change that comes now starts a new drive.
                        del self._drives[holder]
                        return drive.memory.waiting
                if due in {Next.NOW, Next.ACCEPTED}:
                    pauses = 0
                else:
                    await wait_set(drive.wake, self._pause_seconds(due, pauses))
                    pauses += 1
                    if due is Next.BACKOFF and self._is_finishing:
                        return None
                if due is Next.ACCEPTED:
                    now = asyncio.get_running_loop().time()
                    await wait_set(drive.wake, drive.memory.look_at - now)
        finally:
            if self._drives.get(holder) is drive:
                del self._drives[holder]

    def _ends(self, holder: Holder, drive: _Drive, due: Next) -> bool:
        """Return whether the rest is left to the next leader."""
        return self._is_finishing and (due is Next.BACKOFF or self._phase(holder) is not drive.last)

    def _phase(self, holder: Holder) -> Phase | None:
        try:
            entry = self._store.tracker.newest(holder)
        except TrackerUnavailable:
            return None
        return entry.phase if entry is not None else None

    async def _step(self, holder: Holder, drive: _Drive) -> Next:
        try:
            entry = self._store.tracker.newest(holder)
            if entry is None:
                return Next.SETTLED
            if drive.attempt != _attempt_of(entry):
                is_same = drive.attempt[1] == entry.attempt
                drive.memory = drive.memory.of_next_holding() if is_same else Memory()
                drive.attempt = _attempt_of(entry)
            take = _STEPS.get(entry.phase)
            if take is None:
                return Next.SETTLED
            return await take(Step(self._around, entry, drive.memory))
        except NotLeading:
            return Next.BACKOFF  # nothing was sent
        except PartitionsError as error:
            log.debug("step not written, retrying", job_uid=holder[0], problem=str(error))
            drive.memory.is_first_ask = False
            return Next.BACKOFF
        except Exception:  # the outermost loop of one partition: it must not end the others
            log.exception("step failed", job_uid=holder[0], instance=holder[1])
            drive.memory.is_first_ask = False
            return Next.BACKOFF

    def _pause_seconds(self, due: Next, pauses: int) -> float:
        backoff = self._pace.poll if due is Next.POLL else self._pace.retry
        return backoff.delay_seconds(pauses, jitter())


def _attempt_of(entry: TrackerEntry) -> tuple[str, int]:
    return entry.key, entry.attempt
