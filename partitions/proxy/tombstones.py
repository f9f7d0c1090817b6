"""domain: the entries of released partitions: how long they stay, and late partitions under their
ids.

V-IPU may create a partition after its job has given it up: the answer was lost, or the request was
accepted and the partition is listed only later. Then the tombstone causes its removal. V-IPU stores
no owner, and a person or another cluster may use the same id, so a tombstone claims a partition
only

- if the requested partition has not been seen yet: once it was seen and removed, the id is free,
- if all properties that V-IPU lists match the request, and
- until its controller has answered for a while without it. A controller that does not answer proves
  nothing: it may have created the partition before it stopped answering.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from ipuhub.partition import Phase, Reason
from partitions.proxy.lifecycle import enter

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.proxy.tracker import Draft


def finish_release(entry: TrackerEntry, now: datetime, *, was_there: bool = False) -> TrackerEntry:
    """The partition is gone, since `now` or since it was lost; the entry stays as a tombstone.

    `was_there`: its controller has shown it, and removed it.
    """
    if was_there or not entry.may_come:
        entry = settle(entry)
    else:  # outdated fields leave room for new ones (tracker.py)
        num_gcds = 0 if entry.terms[:-1] else entry.num_gcds
        entry = replace(entry, label="", num_gcds=num_gcds, num_replicas=0)
    return replace(enter(entry, Phase.RELEASED), released_at=entry.lost_at or now)


def leave(entry: TrackerEntry, now: datetime, message: str) -> TrackerEntry:
    """Record that the partition with its id belongs to another owner and stays, and why."""
    released = finish_release(settle(entry), now)
    return replace(released, reason=Reason.PARTITION_LOST, message=message)


def give_up(entry: TrackerEntry, now: datetime) -> TrackerEntry | None:
    """A reservation that found no room; None when nothing of it is worth keeping.

    A reservation that was active in an earlier attempt becomes a tombstone: its IPU-seconds count.
    So does a partition that may come yet.
    """
    return finish_release(entry, now) if entry.active_at or entry.may_come else None


def acknowledge(entry: TrackerEntry) -> TrackerEntry:
    """A recorder has stored this tombstone."""
    return replace(entry, recorded=True)


def is_waiting(entry: TrackerEntry) -> bool:
    """Return whether the entry is a tombstone whose partition may come yet."""
    return entry.phase is Phase.RELEASED and entry.may_come


def is_over(entry: TrackerEntry) -> bool:
    """Return whether nothing of the entry is, or may come to be, on its controller."""
    return entry.phase is Phase.RELEASED and not entry.may_come


def note_arrival(entry: TrackerEntry) -> TrackerEntry:
    """Its partition came, and its controller has taken the order to remove it."""
    return replace(entry, has_come=True, missed_at=None)


def note_absence(entry: TrackerEntry, now: datetime, wait_seconds: float) -> TrackerEntry:
    """Its controller answers and does not list the partition: after `wait_seconds` of that, or once
    it has come and gone, none comes any more."""
    if not entry.has_come:
        missed_at = entry.missed_at or now
        if now - missed_at < timedelta(seconds=wait_seconds):
            return replace(entry, missed_at=missed_at)
    return settle(entry)


def settle(entry: TrackerEntry) -> TrackerEntry:
    """Record that the partition cannot appear any more: a partition with its id belongs to another
    owner."""
    return replace(entry, may_come=False, has_come=False, missed_at=None, scope="", terms="")


def settle_others(draft: Draft, tomb: TrackerEntry, may_be: Callable[[TrackerEntry], bool]) -> None:
    """Settle the other tombstones of the id that the partition `may_be` of: one partition can match
    only one of them, and any later partition belongs to another owner. A tombstone with other terms
    still waits for its own partition."""
    place = (tomb.controller, tomb.id)
    for other in list(draft.entries()):
        is_other = other.key != tomb.key and (other.controller, other.id) == place
        if is_other and is_waiting(other) and may_be(other):
            draft.put(settle(other))


def is_expired(
    entry: TrackerEntry, now: datetime, keep_seconds: float, *, needs_recorder: bool
) -> bool:
    """Return whether a tombstone may go: old enough and, with a recorder, acknowledged by it."""
    if entry.phase is not Phase.RELEASED:
        return False
    if needs_recorder and not entry.recorded:
        return False
    return entry.released_at is None or now - entry.released_at >= timedelta(seconds=keep_seconds)
