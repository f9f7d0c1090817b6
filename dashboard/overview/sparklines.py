"""domain: small charts of a day or a month under the figures of the overview.

The server draws them as SVG without a script; `label` describes the content in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dashboard.overview.heldday import STEP_SECONDS, STEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dashboard.overview.heldday import DaySums

WIDTH: Final = 144
HEIGHT: Final = 24
_ROOM: Final = 1  # above the highest value, for the width of the line
_HOUR: Final = 6  # steps


@dataclass(frozen=True, slots=True)
class Sparkline:
    """`line` and `area` are points of SVG; empty where there is nothing to show."""

    label: str
    line: str = ""
    area: str = ""
    width: int = WIDTH
    height: int = HEIGHT


def draw_line(label: str, values: Sequence[float], top: float = 0) -> Sparkline:
    """The line through values at equal distances, and the area below; `top`: the least height of
    the scale."""
    highest = max([*values, top], default=0)
    if len(values) < 2 or highest <= 0:
        return Sparkline(label)
    wide = WIDTH / (len(values) - 1)
    points = [
        f"{number * wide:.4g},{_y(value, highest):g}"
        for number, value in enumerate(values)
        if _is_corner(values, number)
    ]
    line = " ".join(points)
    return Sparkline(label, line, f"0,{HEIGHT} {line} {WIDTH},{HEIGHT}")


def draw_day(what: str, amounts: Sequence[float], now: float, top: float = 0) -> Sparkline:
    """The line of a day's mean amounts per step, up to the amount of now."""
    values = [*amounts, now]
    low, high = min(values), max(values)
    label = f"{what} in the last 24 hours: from {low:.4g} to {high:.4g}, now {now:.4g}"
    return draw_line(label, values, top)


def draw_failures(steps: Mapping[int, int]) -> Sparkline:
    """The number of failed jobs per hour of the day."""
    hours = [
        float(sum(steps.get(step, 0) for step in range(first, first + _HOUR)))
        for first in range(0, STEPS, _HOUR)
    ]
    label = f"Failed jobs per hour in the last 24 hours: at most {max(hours):g}"
    return draw_line(label, hours)


def means(day: DaySums, covers: Callable[[str], bool]) -> list[float]:
    """The mean amount of each step, of the namespaces that may be seen."""
    seen = [steps for (name, _), steps in day.by_owner.items() if covers(name)]
    return [total / STEP_SECONDS for total in _totals(seen)]


def differences(first: Iterable[float], second: Iterable[float]) -> list[float]:
    """Return the excess of the first over the second, step by step, never below zero."""
    return [max(0.0, a - b) for a, b in zip(first, second, strict=True)]


def _totals(rows: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)] or [0] * STEPS


def _is_corner(values: Sequence[float], number: int) -> bool:
    """Return whether the line turns here: long flat stretches need no points."""
    if number in {0, len(values) - 1}:
        return True
    return not values[number - 1] == values[number] == values[number + 1]


def _y(value: float, highest: float) -> float:
    return round(HEIGHT - value / highest * (HEIGHT - _ROOM), 1)
