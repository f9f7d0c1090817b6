"""domain: the lines of the overview, out of live manifests or out of what is remembered."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ipuhub.web.colours import colour_of
from jobs.history.rows import size_of
from jobs.ipujob.conditions import FINISHED, JobState, brief_message
from partitions.proxy.capacity import TOTAL
from partitions.proxy.lifecycle import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ipuhub.kube.types import Manifest

_NOT_HELD = frozenset({Phase.WAITING.value, Phase.RELEASED.value})
_FINISHED = frozenset(state.value for state in FINISHED)
_RUNNING = frozenset({JobState.RUNNING.value, JobState.RESTARTING.value})


@dataclass(frozen=True, slots=True)
class JobRow:
    """One line of the table of active jobs; `workers` as `1/2`: active of wanted."""

    uid: str
    namespace: str
    name: str
    status: str
    colour: str
    ipus: int
    workers: str
    partitions: tuple[str, ...]
    message: str
    created: dt.datetime | None


@dataclass(frozen=True, slots=True)
class Fleet:
    """IPUs held by jobs that may be seen, and free in the whole fleet; None: not known yet."""

    held: int
    free: int | None
    namespaces: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        """Held and free."""
        return self.held + (self.free or 0)


class Remembered(Protocol):
    """What is needed of a job record."""

    uid: str
    namespace: str
    name: str
    status: str
    ipus: int
    workers: int
    partitions: Any
    message: str
    created_at: dt.datetime


class Holding(Protocol):
    """What is needed of a partition."""

    @property
    def namespace(self) -> str:
        """Where its job lives."""

    @property
    def phase(self) -> str:
        """Where it stands."""


def active_rows(manifests: Iterable[Manifest], covers: Callable[[str], bool]) -> list[JobRow]:
    """The unfinished jobs among `manifests` that `covers` allows, newest first."""
    seen = (one for one in manifests if covers(one["metadata"]["namespace"]))
    rows = [_live_row(one) for one in seen]
    return _newest_first(row for row in rows if row.status not in _FINISHED)


def remembered_rows(records: Iterable[Remembered]) -> list[JobRow]:
    """The same, from records of unfinished jobs."""
    return _newest_first(_remembered_row(record) for record in records)


def count_states(rows: Iterable[JobRow]) -> tuple[int, int]:
    """How many of the jobs run (or restart), and how many wait."""
    states = [row.status for row in rows]
    return sum(one in _RUNNING for one in states), states.count(JobState.PENDING.value)


def fleet_numbers(
    stats: Mapping[str, Any], covers: Callable[[str], bool], *, sees_all: bool
) -> Fleet:
    """The numbers of `/stats` for somebody who may see what `covers` allows."""
    spaces = [
        (name, int(numbers["used"]))
        for name, numbers in sorted(stats.items())
        if name != TOTAL and covers(name)
    ]
    sums = stats.get(TOTAL)
    if sums is None:
        return Fleet(0, None, ())
    held = int(sums["used"]) if sees_all else sum(number for _, number in spaces)
    return Fleet(held, int(sums["available"]), tuple(spaces))


def held_phases(holdings: Iterable[Holding], covers: Callable[[str], bool]) -> Sequence[str]:
    """The phases of all held partitions that `covers` allows."""
    return [one.phase for one in holdings if one.phase not in _NOT_HELD and covers(one.namespace)]


def _newest_first(rows: Iterable[JobRow]) -> list[JobRow]:
    first = dt.datetime.min.replace(tzinfo=dt.UTC)
    return sorted(rows, key=lambda row: (row.created or first, row.uid), reverse=True)


def _live_row(job: Manifest) -> JobRow:
    meta, spec, status = job["metadata"], job.get("spec") or {}, job.get("status") or {}
    workers = status.get("workersStatus") or {}
    wanted = size_of(spec).workers
    state = status.get("launcherStatus") or JobState.PENDING.value
    return JobRow(
        uid=meta.get("uid", ""),
        namespace=meta["namespace"],
        name=meta["name"],
        status=state,
        colour=colour_of(state),
        ipus=int(status.get("ipus") or 0),
        workers=f"{workers.get('active', 0)}/{wanted}",
        partitions=_partition_ids(status.get("partitions")),
        message=brief_message(
            status.get("lastMessage") or "", f"{meta['namespace']}/{meta['name']}"
        ),
        created=_instant(meta.get("creationTimestamp")),
    )


def _remembered_row(record: Remembered) -> JobRow:
    return JobRow(
        uid=record.uid,
        namespace=record.namespace,
        name=record.name,
        status=record.status,
        colour=colour_of(record.status),
        ipus=record.ipus,
        workers=str(record.workers),
        partitions=_partition_ids(record.partitions),
        message=brief_message(record.message, f"{record.namespace}/{record.name}"),
        created=record.created_at,
    )


def _partition_ids(held: Any) -> tuple[str, ...]:
    found = [one.get("id") if isinstance(one, dict) else one for one in held or ()]
    return tuple(str(one) for one in found if one)


def _instant(text: str | None) -> dt.datetime | None:
    if not text:
        return None
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class EndedRow:
    """One line of the table of jobs that ended last; `seconds`: how long it ran, if it did."""

    uid: str
    namespace: str
    name: str
    status: str
    colour: str
    ipus: int
    seconds: float | None
    message: str
    ended: dt.datetime


class Ended(Remembered, Protocol):
    """What is needed of the record of a job that ended."""

    started_at: dt.datetime | None
    completed_at: dt.datetime | None


def ended_rows(records: Iterable[Ended]) -> list[EndedRow]:
    """The records that have an end, in their order."""
    return [
        EndedRow(
            uid=one.uid,
            namespace=one.namespace,
            name=one.name,
            status=one.status,
            colour=colour_of(one.status),
            ipus=one.ipus,
            seconds=(one.completed_at - one.started_at).total_seconds() if one.started_at else None,
            message=brief_message(one.message, f"{one.namespace}/{one.name}"),
            ended=one.completed_at,
        )
        for one in records
        if one.completed_at is not None
    ]
