"""domain: a partition of a job, as far as the operator knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from jobs.ipujob.conditions import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from jobs.ports import PartitionFact

REMOVAL_REFUSED = Reason.REMOVAL_REFUSED.value
LOST = Reason.PARTITION_LOST.value
ASK_AGAIN = timedelta(seconds=5)  # between two calls for one partition that is not there yet


class Phase(StrEnum):
    """Where a partition stands; `waiting` is only ever an answer."""

    WAITING = "waiting"
    RESERVING = "reserving"
    CREATING = "creating"
    ACTIVE = "active"
    ERROR = "error"
    RELEASING = "releasing"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Partition:
    """One instance's partition. `asked_at`: when the operator last asked for it (None: not since
    it started, or not since something changed that makes asking again worth while)."""

    instance: int
    phase: str
    attempt: int = 0
    id: str = ""
    size: int = 0
    controller: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    message: str = ""
    asked_at: datetime | None = None

    @property
    def is_removal_refused(self) -> bool:
        """The V-IPU controller does not remove it, by `message`."""
        return self.phase == Phase.RELEASING and self.reason == REMOVAL_REFUSED

    @property
    def is_lost(self) -> bool:
        """It is gone, or a stranger's has its id: nothing of it is left to keep."""
        return self.phase == Phase.ERROR and self.reason == LOST

    def was_asked(self, now: datetime) -> bool:
        """Whether the operator has asked for it a moment ago."""
        return self.asked_at is not None and now - self.asked_at < ASK_AGAIN


def from_fact(fact: PartitionFact, asked_at: datetime | None = None) -> Partition:
    """The operator's view of what the proxy said."""
    return Partition(
        instance=fact.instance,
        phase=fact.phase,
        attempt=fact.attempt,
        id=fact.id,
        size=fact.size,
        controller=fact.controller,
        node_selector=fact.node_selector,
        reason=fact.reason,
        message=fact.message or _shortage(fact),
        asked_at=asked_at,
    )


def _shortage(fact: PartitionFact) -> str:
    if fact.phase != Phase.WAITING or fact.needed is None:
        return ""
    return f"{fact.needed} IPUs in one block are needed and not free now"
