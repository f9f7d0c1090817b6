"""glue: what became of the IPUs of each V-IPU controller, in steps of any past range."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.db import connection

from usage.intervals import bounds
from usage.utilization.amounts import Holding, State, Story, sweep
from usage.utilization.sql import CAPACITY_WATCH, HOLDINGS, RUNS, SILENCES, STATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from usage.utilization.amounts import Utilization

_MICRO = 10**6
_BY_CONTROLLER = RUNS.replace("KEY", "controller")
_BY_PARTITION = RUNS.replace("KEY", "id")
_OF_PARTITIONS = _BY_PARTITION.replace(
    "WHERE stop > start", "WHERE id = ANY(%(ids)s) AND stop > start"
)


@dataclass(frozen=True, slots=True)
class CapacityRecord:
    """Utilization by controller, each with one entry for a step that has begun.

    `known_until`: when controllers were last asked, before the end of the range; None: never.
    `silent_seconds`: for how long of the range nobody asked.
    """

    steps: Mapping[str, Sequence[Utilization]]
    known_until: datetime | None
    silent_seconds: int


def read_capacity(begins: Sequence[datetime], until: datetime) -> CapacityRecord:
    """Return the record of steps that begin at `begins`, the last of them up to `until`.

    All are whole seconds and `until` is past; steps that begin later are left out.
    """
    passed = [instant for instant in begins if instant < until]
    if not passed:
        return CapacityRecord({}, None, 0)
    edges = [*passed, until]
    stories, silences = _read_stories(edges)
    busy = _read_runs(edges)
    seconds = [int(edge.timestamp()) for edge in edges]
    steps = {
        name: [
            step.with_pods(*busy.get((name, n), (0, 0)))
            for n, step in enumerate(sweep(story, seconds))
        ]
        for name, story in stories.items()
    }
    return CapacityRecord(
        {name: rows for name, rows in sorted(steps.items()) if any(row.capacity for row in rows)},
        _known_until(stories, silences, until),
        sum(max(0, b - a) for a, b in _merged(silences, edges)) // _MICRO,
    )


def partition_runs(
    ids: Sequence[int], begin: datetime, until: datetime
) -> dict[int, tuple[int, int]]:
    """Return, by partition, the IPU-seconds with a pod on it and its pods' micro-IPU-seconds."""
    if until <= begin:
        return {}
    parameters = bounds(begin, until) | {"bounds": [begin, until], "ids": list(ids)}
    return {row[0]: (int(row[2]), int(row[3])) for row in _run(_OF_PARTITIONS, parameters)}


def _read_stories(
    edges: Sequence[datetime],
) -> tuple[dict[str, Story], tuple[tuple[int, int], ...]]:
    parameters: dict[str, Any] = bounds(edges[0], edges[-1]) | {"watch": CAPACITY_WATCH}
    states: dict[str, list[State]] = {}
    held_then: dict[str, int] = {}
    for name, at, total, free, down, reachable, held in _run(STATES, parameters):
        states.setdefault(name, []).append(State(at, total, free, down, reachable))
        held_then.setdefault(name, int(held))
    holdings: dict[str, list[Holding]] = {}
    for name, start, stop, size in _run(HOLDINGS, parameters):
        holdings.setdefault(name, []).append(Holding(start, stop, size))
    silences = tuple((start, stop) for start, stop in _run(SILENCES, parameters))
    stories = {
        name: Story(
            tuple(states.get(name, ())),
            held_then.get(name, 0),
            tuple(holdings.get(name, ())),
            silences,
        )
        for name in states.keys() | holdings.keys()
    }
    return stories, silences


def _read_runs(edges: Sequence[datetime]) -> dict[tuple[str, int], tuple[int, int]]:
    parameters = bounds(edges[0], edges[-1]) | {"bounds": list(edges)}
    rows = _run(_BY_CONTROLLER, parameters)
    return {(name, step): (int(busy), int(micro)) for name, step, busy, micro in rows}


def _known_until(
    stories: Mapping[str, Story], silences: Sequence[tuple[int, int]], until: datetime
) -> datetime | None:
    if not any(story.states for story in stories.values()):
        return None
    end = int(until.timestamp()) * _MICRO
    last = [start for start, stop in silences if stop >= end]
    return datetime.fromtimestamp(min([*last, end]) / _MICRO, UTC)


def _merged(
    silences: Sequence[tuple[int, int]], edges: Sequence[datetime]
) -> list[tuple[int, int]]:
    first, last = (int(edge.timestamp()) * _MICRO for edge in (edges[0], edges[-1]))
    found: list[tuple[int, int]] = []
    for start, stop in sorted((max(a, first), min(b, last)) for a, b in silences):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found


def _run(statement: str, parameters: Mapping[str, Any]) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[Any] = cursor.fetchall()
        return rows
