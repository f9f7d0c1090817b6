"""io: the operator's view of all partitions: one poll for all jobs, and its own calls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import structlog

from ipuhub.partition import ASK_AGAIN, Partition, Phase
from ipuhub.process.leadership import fenced

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from ipuhub.partition import PodKey

log = structlog.get_logger(__name__)
NEVER_ASKED = "it has not answered yet"


class Partitions(Protocol):
    """The V-IPU Proxy. Every call may raise an error with a `retryable` attribute."""

    async def list(self) -> Sequence[Partition]:
        """All partitions of all jobs, in one request."""
        ...

    async def ensure(
        self, *, uid: str, namespace: str, name: str, instance: int, size: int, attempt: int
    ) -> Partition:
        """Reserve and create; waits about a second for ACTIVE. Idempotent for one attempt."""
        ...

    async def reset(self, uid: str, instance: int, attempt: int) -> Partition:
        """Reset the partition for a new attempt."""
        ...

    async def release(self, uid: str, instance: int) -> Partition | None:
        """Remove the partition; None: the proxy has no such partition, so it is released."""
        ...

    async def make_key(self, uid: str, instance: int, attempt: int) -> PodKey | None:
        """Make a key for the pods of an active partition; an earlier key ends. None: they need
        none."""
        ...

    async def store_key(self, uid: str, instance: int, attempt: int, key_id: str) -> Partition:
        """Say that pods can use the key that was made last; it stays for this attempt."""
        ...


@dataclass(slots=True)
class _Entry:
    partition: Partition
    sequence: int


class PartitionFacts:
    """The latest known state of every partition, by job UID and instance.

    An answer to one of our own calls is newer than a list that was requested before it: such a list
    must not restore the old state. `problem` says why nothing is known; empty: all is well.
    `answered_at`: when the last answered list was requested; `polls`: the number of requested
    lists. In the line are partitions whose last answer is that they wait for IPUs, as long as they
    ask again whenever they are woken. `is_live` tells whether a job of this UID still exists.
    """

    def __init__(self, partitions: Partitions, is_live: Callable[[str], bool]) -> None:
        self._partitions = partitions
        self._is_live = is_live
        self._entries: dict[str, dict[int, _Entry]] = {}
        self._owners: dict[str, tuple[str, str]] = {}
        self._sequence = 0
        self.problem = NEVER_ASKED
        self.answered_at: datetime | None = None
        self._woken_at: datetime | None = None

    def of(self, uid: str) -> Mapping[int, Partition]:
        """Return the partitions of one job, by instance."""
        return {i: entry.partition for i, entry in self._entries.get(uid, {}).items()}

    def owner(self, uid: str) -> tuple[str, str] | None:
        """Namespace and name of the job that holds a partition under this UID."""
        return self._owners.get(uid)

    def uids(self) -> set[str]:
        """Every UID with a partition."""
        return set(self._entries)

    def note(self, uid: str, fact: Partition, asked_at: datetime) -> None:
        """Takes in the answer to a call of ours."""
        self._owners[uid] = (fact.namespace, fact.name)
        self._put(uid, replace(fact, asked_at=asked_at), self._next())

    def note_released(self, uid: str, instance: int) -> None:
        """Record as released a partition that the proxy does not have."""
        known = self._entries.get(uid, {}).get(instance)
        before = known.partition if known else Partition(instance=instance, phase=Phase.RELEASED)
        self._put(uid, replace(before, phase=Phase.RELEASED), self._next())

    def wake_waiting(self, now: datetime) -> set[str]:
        """Has all that wait for IPUs ask again in their next passes; their UIDs."""
        self._woken_at = now
        woken: set[str] = set()
        for uid, entry in self._waiting():
            entry.partition = replace(entry.partition, asked_at=None)
            woken.add(uid)
        return woken

    def waiting(self) -> set[str]:
        """The UIDs of the jobs that wait for IPUs."""
        return {uid for uid, _ in self._waiting()}

    def leave_line(self, uid: str, asking: Collection[int]) -> None:
        """Record that a job no longer requests IPUs, except for its instances `asking`.

        The other instances leave the queue if they were woken. Whatever the reason, a job that
        requests again gets its position by its age.
        """
        entries = self._entries.get(uid, {})
        for instance, entry in list(entries.items()):
            is_woken = entry.partition.phase == Phase.WAITING and entry.partition.asked_at is None
            if is_woken and instance not in asking:
                self._drop(uid, instance)

    def _waiting(self) -> Iterator[tuple[str, _Entry]]:
        for uid, entries in self._entries.items():
            for entry in entries.values():
                if entry.partition.phase == Phase.WAITING:
                    yield uid, entry

    async def poll(self, now: datetime) -> set[str]:
        """Read all partitions once and return the UIDs of jobs to reconcile.

        Whenever something has changed or the last try is too old, these include all jobs that wait
        for IPUs. Never raises if the proxy does not answer: `problem` then has the reason.
        """
        started = self._sequence
        try:
            records = await self._partitions.list()
        except Exception as error:
            if not hasattr(error, "retryable"):
                raise
            return self._failed(str(error))
        self.answered_at = now
        recovered = bool(self.problem)
        if recovered:
            log.info("the V-IPU Proxy answers", before=self.problem)
            self.problem = ""
        changed = self._merge(records, started)
        if changed or recovered or self._is_overdue(now):
            changed |= self.wake_waiting(now)
        return changed | self.uids() if recovered else changed

    def _failed(self, problem: str) -> set[str]:
        if self.problem in {"", NEVER_ASKED}:
            log.warning("the V-IPU Proxy does not answer; trying again", why=problem)
        was_fine = not self.problem
        self.problem = problem or "no answer"
        return self.uids() if was_fine else set()

    def _merge(self, records: Sequence[Partition], started: int) -> set[str]:
        # Of one holder the proxy lists tombstones too, in the order of their making.
        newest = {(fact.uid, fact.instance): fact for fact in records}
        changed: set[str] = set()
        for fact in newest.values():
            self._owners[fact.uid] = (fact.namespace, fact.name)
            if self._update(fact, started):
                changed.add(fact.uid)
        return changed | self._drop_missing(newest.keys(), started)

    def _update(self, fact: Partition, started: int) -> bool:
        old = self._entries.get(fact.uid, {}).get(fact.instance)
        if old is not None and old.sequence > started:
            return False
        new = replace(fact, asked_at=old.partition.asked_at) if old else fact
        if old is not None and old.partition == new:
            return False
        self._put(fact.uid, new, started)
        return True

    def _drop_missing(self, seen: Collection[tuple[str, int]], started: int) -> set[str]:
        changed: set[str] = set()
        for uid, entries in list(self._entries.items()):
            for instance, entry in list(entries.items()):
                if (uid, instance) in seen or entry.sequence > started:
                    continue
                if entry.partition.phase in {Phase.WAITING, Phase.RELEASED} and self._is_live(uid):
                    continue  # never listed, or no longer: still the last word
                self._drop(uid, instance)
                changed.add(uid)
        return changed

    def _drop(self, uid: str, instance: int) -> None:
        del self._entries[uid][instance]
        if not self._entries[uid]:
            del self._entries[uid]
            self._owners.pop(uid, None)

    def _is_overdue(self, now: datetime) -> bool:
        """Return whether the last try is too old.

        Others do not wait for a job that was woken but has not requested yet, and it does not make
        them request more often.
        """
        if self._woken_at is not None and now - self._woken_at < ASK_AGAIN:
            return False
        return any(not entry.partition.was_asked(now) for _, entry in self._waiting())

    def _put(self, uid: str, partition: Partition, sequence: int) -> None:
        self._entries.setdefault(uid, {})[partition.instance] = _Entry(partition, sequence)

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence


def only_while_leading(partitions: Partitions, left_seconds: Callable[[], float]) -> Partitions:
    """Return the V-IPU Proxy for an operator whose leadership is certain for another
    `left_seconds`.

    The API server refuses writes from an old copy; the proxy knows attempts, but no copies. An
    operator that was paused before a release would take the partition from the pods for which its
    successor has meanwhile reserved it.
    """
    return fenced(partitions, {"list"}, left_seconds)
