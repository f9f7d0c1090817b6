"""domain: the last 24 hours in steps of ten minutes: IPUs held by group, as a chart.

The chart marks the steps in which jobs failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from dashboard.fleetqueue import UNKNOWN_GROUP
from ipuhub.web.palette import OTHER, paints_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

STEP_SECONDS: Final = 600
STEPS: Final = 144
_SHOWN: Final = 6  # readers cannot distinguish more areas; the rest is one
_WIDTH: Final = 864
_HEIGHT: Final = 120


@dataclass(frozen=True, slots=True)
class DaySums:
    """Amounts x seconds per step, from `begin` on: IPUs held, or jobs that wait; by namespace,
    which decides who may see them, and the group that they count for (empty: not known)."""

    begin: datetime
    by_owner: Mapping[tuple[str, str], Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Area:
    """One group (empty: all others) in the chart: its outline, and its mean of held IPUs."""

    label: str
    points: str
    css: str
    decals: tuple[str, ...]
    mean: float


@dataclass(frozen=True, slots=True)
class DayChart:
    """The areas from the bottom up; `capacity_y` is the height of the capacity line, `ticks` are
    (x, time), `failures` (x in per cent, time, how many jobs failed). Without areas nothing was
    held in the 24 hours before `until`."""

    until: datetime
    areas: tuple[Area, ...]
    capacity: int
    capacity_y: float
    ticks: tuple[tuple[float, datetime], ...]
    failures: tuple[tuple[float, datetime, int], ...] = ()
    width: int = _WIDTH
    height: int = _HEIGHT

    @property
    def capacity_percent(self) -> float:
        """Height of the capacity line as a share of the chart, for its label: text inside would be
        stretched with the chart."""
        return round(100 * self.capacity_y / self.height, 1)


def day_before(now: datetime) -> tuple[datetime, datetime]:
    """The 24 hours up to the last whole step: until it ends, the chart stays the same."""
    rounded = int(now.timestamp()) // STEP_SECONDS * STEP_SECONDS
    until = datetime.fromtimestamp(rounded, now.tzinfo)
    return until - timedelta(seconds=STEPS * STEP_SECONDS), until


def sum_up(parts: Iterable[Mapping[str, Any]], begin: datetime) -> DaySums:
    """Sum exact IPU-seconds per step from the rows of `trends.parts_sql`."""
    found: dict[tuple[str, str], list[int]] = {}
    for part in parts:
        steps = found.setdefault((part["namespace"], part["group"]), [0] * STEPS)
        first, last, ipus = part["first"], part["last"], part["ipus"]
        # As if all ended with their first step; what is too much is taken back from the last.
        steps[first] += ipus * (first + 1) * STEP_SECONDS - part["begins"]
        for step in range(first + 1, last + 1):
            steps[step] += ipus * STEP_SECONDS
        steps[last] -= ipus * (last + 1) * STEP_SECONDS - part["ends"]
    return DaySums(begin, found)


def draw_day(
    day: DaySums,
    capacity: int,
    covers: Callable[[str], bool],
    failed: Mapping[int, int] | None = None,
) -> DayChart:
    """Draw the chart for a user who may see the namespaces in `covers`; all others are summed up as
    others.

    `failed`: number of failed jobs by step.
    """
    seen: dict[str, list[Sequence[int]]] = {}
    rest: list[Sequence[int]] = []
    for (namespace, group), steps in day.by_owner.items():
        (seen.setdefault(group or UNKNOWN_GROUP, []) if covers(namespace) else rest).append(steps)
    sums = {group: _total(rows) for group, rows in seen.items()}
    largest = sorted(sums, key=lambda group: (-sum(sums[group]), group))[:_SHOWN]
    rest += [steps for group, steps in sums.items() if group not in largest]
    layers = [(group, sums[group]) for group in largest]
    if rest:
        layers.append(("", _total(rest)))
    paints = paints_of(largest, UNKNOWN_GROUP)
    highest = max((sum(c) for c in zip(*(steps for _, steps in layers), strict=True)), default=0)
    top = max(capacity * STEP_SECONDS, highest, 1) * 1.08
    areas, floor = [], [0] * STEPS
    for name, steps in layers:
        ceiling = [low + more for low, more in zip(floor, steps, strict=True)]
        mean = sum(steps) / STEPS / STEP_SECONDS
        css, decals = paints.get(name, OTHER)
        areas.append(Area(name, _outline(floor, ceiling, top), css, decals, round(mean, 1)))
        floor = ceiling
    ticks = tuple(
        (_WIDTH * hours / 24, day.begin + timedelta(hours=hours)) for hours in (0, 6, 12, 18)
    )
    failures = tuple(
        (
            round(100 * (step + 0.5) / STEPS, 1),
            day.begin + timedelta(seconds=step * STEP_SECONDS),
            number,
        )
        for step, number in sorted((failed or {}).items())
    )
    until = day.begin + timedelta(seconds=STEPS * STEP_SECONDS)
    height = _y(capacity * STEP_SECONDS, top)
    return DayChart(until, tuple(areas), capacity, height, ticks, failures)


def _total(rows: Iterable[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


def _outline(floor: Sequence[int], ceiling: Sequence[int], top: float) -> str:
    """Points of the area between two lines of steps; a corner only where the line moves."""
    return " ".join([*_line(ceiling, top), *reversed(_line(floor, top))])


def _line(steps: Sequence[int], top: float) -> list[str]:
    wide = _WIDTH / STEPS
    points: list[str] = []
    for step, amount in enumerate(steps):
        ends = step in {0, STEPS - 1}
        if ends or amount != steps[step - 1]:
            points.append(f"{step * wide:g},{_y(steps[max(step - 1, 0)], top):g}")
            points.append(f"{step * wide:g},{_y(amount, top):g}")
    return [*points, f"{_WIDTH},{_y(steps[-1], top):g}"]


def _y(amount: float, top: float) -> float:
    return round(_HEIGHT * (1 - amount / top), 1)
