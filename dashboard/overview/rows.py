"""domain: the jobs of the overview: counts of running and waiting jobs, and the jobs that ended
last.

From live manifests, or from cached manifests while the cluster is unavailable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ipuhub.partition import Phase
from ipuhub.text import spell_share
from jobs.ipujob.conditions import FINISHED, JobState, brief_message
from jobs.ipujob.names import parse_time
from partitions.proxy.capacity import TOTAL

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ipuhub.kube.resources import Manifest

_NOT_HELD: Final = frozenset({Phase.WAITING.value, Phase.RELEASED.value})
_FINISHED: Final = frozenset(state.value for state in FINISHED)
_RUNNING: Final = frozenset({JobState.RUNNING.value, JobState.RESTARTING.value})
_STARTING_SECONDS: Final = 20  # a pending job of this age is about to run: polled each second


@dataclass(frozen=True, slots=True)
class Active:
    """Jobs that have not ended: how many run (or restart) and wait, their partitions, and whether
    a job has just been made."""

    count: int = 0
    running: int = 0
    pending: int = 0
    partitions: int = 0
    is_starting: bool = False


@dataclass(frozen=True, slots=True)
class EndedRow:
    """One line of the jobs that ended last; `seconds`: how long it ran, if it did."""

    uid: str
    namespace: str
    name: str
    user: str
    status: str
    reason: str
    ipus: int
    seconds: float | None
    message: str
    ended: dt.datetime


@dataclass(frozen=True, slots=True)
class Fleet:
    """IPUs held by jobs that may be seen, and free in the whole fleet; None: not known yet.

    `drawn`: the IPUs of the map beside it; 0: none is drawn.
    """

    held: int
    free: int | None
    drawn: int = 0

    @property
    def total(self) -> int:
        """The IPUs of the fleet. A controller may say what is free, and not where it is: then the
        map draws fewer than there are."""
        return max(self.drawn, self.held + (self.free or 0))

    @property
    def share(self) -> str:
        """The share that is held."""
        return spell_share(self.held, self.total)


class Remembered(Protocol):
    """The needed facts of a job's record."""

    uid: str
    namespace: str
    name: str
    user: str
    status: str
    reason: str
    ipus: int
    partitions: Any
    message: str
    created_at: dt.datetime
    started_at: dt.datetime | None
    completed_at: dt.datetime | None


class Holding(Protocol):
    """The needed facts of a partition."""

    @property
    def namespace(self) -> str:
        """Return the namespace of its job."""

    @property
    def phase(self) -> str:
        """Return its phase."""


def live_jobs(
    manifests: Iterable[Manifest], covers: Callable[[str], bool], now: dt.datetime
) -> Active:
    """The unfinished jobs among `manifests` that `covers` allows."""
    seen = [each for each in manifests if covers(each["metadata"]["namespace"])]
    facts = [
        (
            status.get("launcherStatus") or JobState.PENDING.value,
            status.get("partitions"),
            parse_time(each["metadata"].get("creationTimestamp")),
        )
        for each in seen
        for status in [each.get("status") or {}]
    ]
    return _count([fact for fact in facts if fact[0] not in _FINISHED], now)


def remembered_jobs(records: Iterable[Remembered], now: dt.datetime) -> Active:
    """The same, from records of unfinished jobs."""
    return _count([(each.status, each.partitions, each.created_at) for each in records], now)


def ended_rows(records: Iterable[Remembered]) -> list[EndedRow]:
    """The records that have an end, in their order."""
    return [
        EndedRow(
            uid=record.uid,
            namespace=record.namespace,
            name=record.name,
            user=record.user,
            status=record.status,
            reason=record.reason,
            ipus=record.ipus,
            seconds=(record.completed_at - record.started_at).total_seconds()
            if record.started_at
            else None,
            message=brief_message(record.message, f"{record.namespace}/{record.name}"),
            ended=record.completed_at,
        )
        for record in records
        if record.completed_at is not None
    ]


def fleet_numbers(
    stats: Mapping[str, Any], covers: Callable[[str], bool], *, sees_all: bool, drawn: int = 0
) -> Fleet:
    """The numbers of `/stats` for a user who may see the namespaces in `covers`, beside a map of
    `drawn` IPUs."""
    sums = stats.get(TOTAL)
    if sums is None:
        return Fleet(0, None, drawn)
    own = (
        int(numbers["used"]) for name, numbers in stats.items() if name != TOTAL and covers(name)
    )
    return Fleet(int(sums["used"]) if sees_all else sum(own), int(sums["available"]), drawn)


def held_phases(holdings: Iterable[Holding], covers: Callable[[str], bool]) -> Sequence[str]:
    """The phases of all held partitions that `covers` allows."""
    return [
        holding.phase
        for holding in holdings
        if holding.phase not in _NOT_HELD and covers(holding.namespace)
    ]


def _count(facts: Sequence[tuple[str, Any, dt.datetime | None]], now: dt.datetime) -> Active:
    states = [state for state, _, _ in facts]
    young = (at for state, _, at in facts if state == JobState.PENDING.value and at)
    return Active(
        count=len(facts),
        running=sum(state in _RUNNING for state in states),
        pending=states.count(JobState.PENDING.value),
        partitions=sum(_held(partitions) for _, partitions, _ in facts),
        is_starting=any((now - at).total_seconds() < _STARTING_SECONDS for at in young),
    )


def _held(partitions: Any) -> int:
    return sum(
        bool(each.get("id") if isinstance(each, dict) else each) for each in partitions or ()
    )
