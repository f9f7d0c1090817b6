"""glue: the fleet's map, queue and rows of a reading, worked out once while jobs and fleet stay the
same, for all readers with the same rights.

Each value has a mark for ETags, so that a poll of an unchanged fleet compares two marks in place of
drawing thousands of IPUs again.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from dashboard.fleetmap import (
    IDLE_AFTER_SECONDS,
    Reader,
    draw_fleet,
    list_ipus,
    read_board,
)
from dashboard.fleetqueue import JobFacts
from ipuhub.partition import parse_time as parse_since
from ipuhub.web.pollcache import for_seconds, known_unchanged, note_basis
from ipuhub.web.requests import note_as_of
from ipuhub.web.whilesame import WhileSame
from jobs.history.rows import size_of
from jobs.ipujob.conditions import JobState, Reason
from jobs.ipujob.fields import FIELDS, whole_number
from jobs.ipujob.names import ANNOTATION_CREATED_BY, annotations_of, parse_time
from jobs.selectors import groups_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from dashboard.fleetmap import FleetMap, IpuRow
    from dashboard.live import LiveState
    from ipuhub.kube.resources import Manifest
    from ipuhub.web.access import Scope
    from partitions.fleetjson import FleetJson

_T = TypeVar("_T")
_LONGEST_SECONDS: Final = 10 * 365 * 24 * 3600  # more is no limit, and no time of PostgreSQL's
_IPU_FIELDS: Final = (
    "controller",
    "cluster",
    "ipulink_domain",
    "machine",
    "position",
    "state",
    "partition",
    "job_uid",
)


@dataclass(frozen=True, slots=True)
class Marked(Generic[_T]):
    """A value, and a mark that only equal values share."""

    value: _T
    mark: str

    @classmethod
    def of(cls, value: _T) -> Marked[_T]:
        """Return the value with the digest of its repr; it has no rows of the database."""
        return cls(value, hashlib.sha256(repr(value).encode()).hexdigest())


_JOBS: Final[WhileSame[Scope, dict[str, JobFacts]]] = WhileSame()
_COUNTED: Final = itertools.count()
_NUMBERS: Final[WhileSame[None, int]] = WhileSame()
_UNTIL: Final[WhileSame[Scope, datetime | None]] = WhileSame()
_GROUPS: Final[WhileSame[Scope, Mapping[str, str]]] = WhileSame()
_BOARDS: Final[WhileSame[Scope, Marked[FleetMap]]] = WhileSame()
_MAPS: Final[WhileSame[tuple[Scope, str], Marked[FleetMap]]] = WhileSame()
_ROWS: Final[WhileSame[Scope, Sequence[IpuRow]]] = WhileSame(most=16)
_IPUS: Final[WhileSame[Scope, Marked[list[dict[str, Any]]]]] = WhileSame(most=16)


def jobs_in(state: LiveState, scope: Scope, now: datetime) -> dict[str, JobFacts]:
    """The jobs of a reading that a reader may see, by UID."""

    def build() -> tuple[dict[str, JobFacts], datetime | None]:
        found = visible_jobs_of(state, scope, now)
        return found, min(_ends(found), default=None)

    return _JOBS.get(scope, (state.jobs.value,), now, build)


def groups_in(state: LiveState, scope: Scope, now: datetime) -> Mapping[str, str]:
    """Return by UID the groups for which the usage of jobs with partitions counts, as recorded.
    Costs one query."""
    return settled_groups(groups_of(scope, holders(state.fleet.value)), scope, now)


def settled_groups(found: Mapping[str, str], scope: Scope, now: datetime) -> Mapping[str, str]:
    """Return these groups as the same object that an equal reading of them had before."""
    return _GROUPS.get(scope, (found,), now, lambda: (found, None))


def board_of(state: LiveState, scope: Scope, now: datetime) -> Marked[FleetMap]:
    """Return who waits and what fits, as `read_board` has it."""
    fleet, jobs = state.fleet.value, jobs_in(state, scope, now)
    return _BOARDS.get(
        scope,
        (fleet, jobs),
        now,
        lambda: (
            Marked.of(read_board(fleet, jobs, Reader(scope.covers, scope.sees_all, now))),
            _holds_until(fleet, jobs, now),
        ),
    )


def map_of(
    state: LiveState, scope: Scope, now: datetime, fill: str, groups: Mapping[str, str]
) -> Marked[FleetMap]:
    """Return the map of a reading; `groups` of its jobs by UID, as `settled_groups` returns
    them."""
    fleet, jobs = state.fleet.value, jobs_in(state, scope, now)
    return _MAPS.get(
        (scope, fill),
        (fleet, jobs, groups),
        now,
        lambda: (
            Marked.of(
                draw_fleet(fleet, jobs, Reader(scope.covers, scope.sees_all, now, fill, groups))
            ),
            _holds_until(fleet, jobs, now),
        ),
    )


def rows_of(state: LiveState, scope: Scope, now: datetime) -> Sequence[IpuRow]:
    """Return each IPU of a reading with all that the map says of it. Costs one query."""
    fleet, jobs = state.fleet.value, jobs_in(state, scope, now)
    groups = groups_in(state, scope, now)
    return _ROWS.get(
        scope,
        (fleet, jobs, groups),
        now,
        lambda: (
            tuple(list_ipus(fleet, jobs, Reader(scope.covers, scope.sees_all, now, groups=groups))),
            _holds_until(fleet, jobs, now),
        ),
    )


def ipus_of(state: LiveState, scope: Scope, now: datetime) -> Marked[list[dict[str, Any]]]:
    """Return each IPU of a reading as a record of the API."""
    fleet, jobs = state.fleet.value, jobs_in(state, scope, now)

    def build() -> tuple[Marked[list[dict[str, Any]]], datetime | None]:
        rows = list_ipus(fleet, jobs, Reader(scope.covers, scope.sees_all, now))
        records = [{name: getattr(row, name) for name in _IPU_FIELDS} for row in rows]
        return Marked.of(records), _holds_until(fleet, jobs, now)

    return _IPUS.get(scope, (fleet, jobs), now, build)


def holds_until(state: LiveState, scope: Scope, now: datetime) -> datetime | None:
    """Return when time alone changes what is shown of a reading; None: never."""
    fleet, jobs = state.fleet.value, jobs_in(state, scope, now)

    def build() -> tuple[datetime | None, datetime | None]:
        until = _holds_until(fleet, jobs, now)
        return until, until

    return _UNTIL.get(scope, (fleet, jobs), now, build)


def _holds_until(fleet: FleetJson, jobs: Mapping[str, JobFacts], now: datetime) -> datetime | None:
    """Return when time alone changes what is shown of a fleet: a partition is then held so long
    that it counts as idle, or a job reaches its limit. None: never."""
    controllers = fleet.get("controllers") or ()
    if any(each["message"] for each in controllers):
        return now  # the minute of its last answer is counted from now
    idle = (
        since + timedelta(seconds=IDLE_AFTER_SECONDS)
        for controller in controllers
        for each in controller["partitions"]
        if each["job"] and (since := parse_since(each["job"]["since"]))
    )
    return min((at for at in (*idle, *_ends(jobs)) if at > now), default=None)


def _ends(jobs: Mapping[str, JobFacts]) -> Iterator[datetime]:
    return (facts.ends_by for facts in jobs.values() if facts.ends_by)


def number_of(state: LiveState, now: datetime) -> int:
    """Return a number that no reading with other values has, or had before."""
    values = tuple(reading.value for reading in state.readings)
    return _NUMBERS.get(None, values, now, lambda: (next(_COUNTED), None))


def known_of_reading(
    request: HttpRequest, state: LiveState, scope: Scope, now: datetime, *values: object
) -> HttpResponseBase | None:
    """Return a 304 if the reader has the answer of this reading and `values`, else None: then the
    ETag of the answer is kept for the next poll."""
    problems = [
        (each.problem, each.detail, each.read_at) for each in state.readings if each.problem
    ]
    basis = for_seconds(now, scope, number_of(state, now), tuple(problems), *values)
    until = holds_until(state, scope, now)
    if until is not None and basis.until is not None:
        basis = replace(basis, until=min(until, basis.until))
    note_as_of(request, state.fleet.read_at)
    note_basis(request, basis)
    return known_unchanged(request, basis)


def holders(fleet: FleetJson) -> set[str]:
    """Return the UIDs of the jobs that hold partitions."""
    partitions = (each for c in fleet.get("controllers") or () for each in c["partitions"])
    return {each["job"]["uid"] for each in partitions if each["job"]}


def visible_jobs_of(state: LiveState, scope: Scope, now: datetime) -> dict[str, JobFacts]:
    """The jobs of a reading that a reader may see, by UID."""
    visible = (job for job in state.jobs.value if scope.covers(job["metadata"]["namespace"]))
    return {facts.uid: facts for facts in (_facts(job, now) for job in visible)}


def _facts(job: Manifest, now: datetime) -> JobFacts:
    meta, status = job["metadata"], job.get("status") or {}
    workers = (status.get("workersStatus") or {}).get("active")
    active = workers or 0
    return JobFacts(
        uid=meta.get("uid", ""),
        namespace=meta["namespace"],
        name=meta["name"],
        user=annotations_of(job).get(ANNOTATION_CREATED_BY, ""),
        runs=bool(active) or status.get("launcherStatus") == JobState.RUNNING.value,
        ends_by=_ends_by(job, now),
        workers=workers if isinstance(workers, int) else None,
        all_workers=size_of(job.get("spec") or {}).workers if active else 0,
        waits=_waits(status),
    )


def _waits(status: Mapping[str, Any]) -> bool:
    """Return whether a job was refused IPUs and has not got them since."""
    return status.get("launcherStatus") == JobState.PENDING.value and any(
        each["status"] == "True" and each.get("reason") == Reason.NO_CAPACITY.value
        for each in status.get("conditions") or ()
    )


def _ends_by(job: Manifest, now: datetime) -> datetime | None:
    """Return when a job frees its IPUs at the latest, by its activeDeadlineSeconds. None if that is
    unknown: the job has no limit or is past it, has not started or has finished, or keeps its
    partition until it is deleted."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    limit, started = (
        whole_number(spec.get("activeDeadlineSeconds")),
        parse_time(status.get("startTime")),
    )
    if limit is None or started is None:
        return None
    if status.get("completionTime") or FIELDS.value(spec, "keepPartition"):
        return None
    end = started + timedelta(seconds=min(limit, _LONGEST_SECONDS))
    return end if end > now else None
