"""io: tells the story of V-IPU controllers from the rows themselves: exact, but dear."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from usage.time.intervals import bounds
from usage.utilization.amounts import Holding, State, Story, sweep
from usage.utilization.sql import ASKED, CAPACITY_WATCH, HOLDINGS, RUNS, STATES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from usage.utilization.amounts import Utilization

    Silences = tuple[tuple[int, int], ...]

_BY_CONTROLLER: Final = RUNS.replace("KEY", "controller")


def read_rows(
    cursor: Any, edges: Sequence[datetime], silences: Silences
) -> dict[str, list[Utilization]]:
    """Return, by controller, what became of its IPUs between each edge and the next.

    Edges are whole seconds; `silences` as `read_asked` returns them, at least those of this time.
    """
    stories = _read_stories(cursor, edges, silences)
    busy = _read_runs(cursor, edges)
    seconds = [int(edge.timestamp()) for edge in edges]
    return {
        name: [
            step.with_pods(*busy.get((name, n), (0, 0)))
            for n, step in enumerate(sweep(story, seconds))
        ]
        for name, story in stories.items()
    }


@dataclass(frozen=True, slots=True)
class Asked:
    """From and to when nobody asked the controllers, in microseconds, not clipped; `told`: whether
    any had told its IPUs before the end."""

    silences: Silences
    told: bool


def read_asked(cursor: Any, begin: datetime, until: datetime, known: datetime | None) -> Asked:
    """Return when in [begin, until) controllers were asked, in one query.

    `known`: until when they were asked; None: nobody ever did, which is no silence.
    """
    cursor.execute(ASKED, bounds(begin, until) | {"watch": CAPACITY_WATCH})
    rows = cursor.fetchall()
    found = [(start, stop) for _, start, stop in rows if start is not None]
    if known is not None and known < until:
        found.append((_micro(known), _micro(until)))
    return Asked(tuple(found), told=rows[0][0])


def _micro(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _read_stories(
    cursor: Any, edges: Sequence[datetime], silences: Silences
) -> Mapping[str, Story]:
    parameters: dict[str, Any] = bounds(edges[0], edges[-1])
    states: dict[str, list[State]] = {}
    held_then: dict[str, int] = {}
    cursor.execute(STATES, parameters)
    for name, at, total, free, down, reachable, held in cursor.fetchall():
        states.setdefault(name, []).append(State(at, total, free, down, reachable))
        held_then.setdefault(name, int(held))
    holdings: dict[str, list[Holding]] = {}
    cursor.execute(HOLDINGS, parameters)
    for name, start, stop, size in cursor.fetchall():
        holdings.setdefault(name, []).append(Holding(start, stop, size))
    return {
        name: Story(
            tuple(states.get(name, ())),
            held_then.get(name, 0),
            tuple(holdings.get(name, ())),
            silences,
        )
        for name in states.keys() | holdings.keys()
    }


def _read_runs(cursor: Any, edges: Sequence[datetime]) -> dict[tuple[str, int], tuple[int, int]]:
    cursor.execute(_BY_CONTROLLER, bounds(edges[0], edges[-1]) | {"bounds": list(edges)})
    rows = cursor.fetchall()
    return {(name, step): (int(busy), int(micro)) for name, step, busy, micro in rows}
