"""io: common parts of every step of a partition: its entry, its controller, state changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

import structlog

from partitions.proxy import lifecycle
from partitions.proxy.queue import Readiness

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ipuhub.partition import Partition, Reason
    from partitions.proxy.controllers import PlacementRule
    from partitions.proxy.fleet import Fleet
    from partitions.proxy.lifecycle import TrackerEntry
    from partitions.proxy.queue import WaitingQueue
    from partitions.proxy.trackerstore import TrackerStore
    from partitions.proxy.vipuapi import VipuApi

log = structlog.get_logger(__name__)


class Next(Enum):
    """The time of a partition's next step; ACCEPTED: at the memory's `look_at`."""

    SETTLED = auto()
    NOW = auto()
    ACCEPTED = auto()
    POLL = auto()
    BACKOFF = auto()


@dataclass(slots=True)
class Memory:
    """Knowledge of one attempt that only this process needs.

    `is_first_ask`: no request to create this partition can have been sent to its controller, so a
    partition with its id there belongs to another owner. `was_there`: its controller has listed the
    partition that is to be released. `waiting` is the answer of an attempt that found no room.
    `is_told`: the entry says that no other controller has room. `accepted_at` (nothing: this
    process has not sent a request) and `look_at` are times of the event loop; `looks` counts the
    checks since then, or since a removal was accepted. `tried`: the controllers that were full or
    did not answer. `is_unanswered`: the last creation got no answer, or could not be stored.
    `has_gone_on`: the attempt left a controller for that.
    """

    is_first_ask: bool = False
    was_there: bool = False
    is_removed: bool = False
    is_reset: bool = False
    is_told: bool = False
    is_unanswered: bool = False
    has_gone_on: bool = False
    accepted_at: float | None = None
    look_at: float = 0.0
    looks: int = 0
    tried: set[str] = field(default_factory=set)
    waiting: Partition | None = None

    def of_next_holding(self) -> Memory:
        """Return what counts for the attempt on another controller too."""
        return Memory(tried=self.tried, has_gone_on=self.has_gone_on)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The objects that all steps share; `now` gives the time as aware UTC."""

    store: TrackerStore
    fleet: Fleet
    now: Callable[[], datetime]
    rule: PlacementRule
    waiting: WaitingQueue
    readiness: Readiness = field(default_factory=Readiness)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a partition; raises TrackerUnavailable when it cannot be recorded."""

    around: Surroundings
    entry: TrackerEntry
    memory: Memory

    @property
    def api(self) -> VipuApi:
        """The partition's controller."""
        return self.around.fleet.api(self.entry.controller)

    async def replace(self, new: TrackerEntry | None) -> None:
        """Replace the entry by `new` (None: remove it), unless it has changed."""
        await self.around.store.write(lambda draft: draft.replace(self.entry, new))
        if new is not None and new.phase is not self.entry.phase:
            log.info("partition", phase=new.phase.value, **new.log_fields)

    async def hang(self, reason: Reason, problem: object) -> Next:
        """Record, once, why the partition makes no progress, and come back later."""
        entry = self.entry
        if entry.reason != reason:
            phase = entry.phase.value
            log.warning("partition hangs", phase=phase, problem=str(problem), **entry.log_fields)
            await self.replace(lifecycle.hang(entry, reason, str(problem)))
        return Next.BACKOFF
