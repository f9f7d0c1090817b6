"""domain: the SELECTs that add up a window in its parts: sums where they stand, else lifetimes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from usage.sums.pieces import pieces, stretch_parameters
from usage.time.intervals import POD_ENDS, POD_PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from usage.sums.parts import Parts, Rolled, Stretch


@dataclass(frozen=True, slots=True)
class Cell:
    """SQL of one sum: of rows that are summed (`opens`: a step begins with this one), of what was
    held as an hour ended (for `lasting` seconds), of pieces of lifetimes, and of pieces that are
    taken off since their pods no longer hold anything (`is_over`: from the beginning)."""

    rolled: str
    level: str = ""
    pieces: str = ""
    ended: str = ""


NOTHING: Final = Cell("0::numeric", "0::numeric", "0::numeric", "0::numeric")


@dataclass(frozen=True, slots=True)
class Summed:
    """What is summed under which names: from tables (without their grain) by expressions for the
    `keys`, `where` a row of them is meant; from lifetimes of `source`, `source_where`, with these
    columns of theirs."""

    tables: str
    keys: Mapping[str, str]
    where: str
    cells: Mapping[str, Cell]
    source: str
    source_where: str
    source_columns: str

    @property
    def columns(self) -> str:
        """SQL of the keys."""
        return ", ".join(f"{sql} AS {name}" for name, sql in self.keys.items())

    def listed(self, kind: str) -> str:
        """Return SQL of the sums, each under its name."""
        return ", ".join(f"{getattr(each, kind)} AS {name}" for name, each in self.cells.items())


def part_selects(summed: Summed, parts: Parts, name: str) -> tuple[list[str], dict[str, Any]]:
    """Return SELECTs of bucket, keys and sums, and their parameters, which begin with `name`."""
    selects: list[str] = []
    parameters: dict[str, Any] = {}
    for grain, kind, taken in parts.rolled:
        if taken:
            selects.append(_rolled_sums(summed, grain, kind, f"{name}_{grain}"))
            parameters |= _rolled_parameters(f"{name}_{grain}", taken)
    for number, stretch in enumerate(parts.stretches):
        own = f"{name}_{number}"
        selects += _stretch_sums(summed, stretch, own)
        parameters |= stretch_parameters(own, stretch)
    return selects, parameters


def together(selects: Sequence[str], names: Sequence[str], keys: Sequence[str]) -> str:
    """Return the sum of all `selects`, each of which has a row for each value of the keys."""
    by, sums = ", ".join(keys), ", ".join(names)
    if len(selects) == 1:
        return f"SELECT {by}, {sums} FROM ({selects[0]}) AS parts ({by}, {sums})"  # noqa: S608
    sums = ", ".join(f"sum({name}) AS {name}" for name in names)
    return (
        f"SELECT {by}, {sums} FROM ("  # noqa: S608
        + " UNION ALL ".join(selects)
        + f") AS parts ({by}, {', '.join(names)}) GROUP BY {ordinals(len(keys))}"
    )


def ordinals(count: int) -> str:
    """Return what groups by the first `count` columns."""
    return ", ".join(str(n + 1) for n in range(count))


def _rolled_sums(summed: Summed, grain: str, kind: str, name: str) -> str:
    """Return a SELECT from sums of this grain, bucket by bucket: grouped by buckets at once the
    planner would expect as many groups as rows, and sort them all on disk."""
    times = (
        f"SELECT d.time FROM unnest(%({name}_times)s::{kind}[], %({name}_buckets)s::int[])"  # noqa: S608
        " AS d (time, number) WHERE d.number = b.bucket"
    )
    rows = (
        f"SELECT *, {grain} = b.opening AS opens FROM {summed.tables}{grain}"  # noqa: S608
        f" WHERE {grain} = ANY(ARRAY({times})) AND {summed.where}"
    )
    return (
        f"SELECT b.bucket, held.* FROM unnest(%({name}_numbers)s::int[],"  # noqa: S608
        f" %({name}_openings)s::{kind}[]) AS b (bucket, opening) CROSS JOIN LATERAL"
        f" (SELECT {summed.columns}, {summed.listed('rolled')} FROM ({rows}) AS rows"
        f" GROUP BY {ordinals(len(summed.keys))}) AS held"
    )


def _rolled_parameters(name: str, taken: Sequence[Rolled]) -> dict[str, Any]:
    openings = dict.fromkeys(each.bucket for each in taken)
    openings |= {each.bucket: each.time for each in taken if each.opens}
    return {
        f"{name}_times": [each.time for each in taken],
        f"{name}_buckets": [each.bucket for each in taken],
        f"{name}_numbers": list(openings),
        f"{name}_openings": list(openings.values()),
    }


def _stretch_sums(summed: Summed, stretch: Stretch, name: str) -> list[str]:
    """Return SELECTs of what lifetimes held in the stretch called `name`.

    Where the hour before is summed: what was held as it ended, for the whole stretch, and what
    begins in it, less what is no longer held after an end in it.
    """
    columns = f"{summed.columns}, {summed.source_columns}"
    by = f"GROUP BY {ordinals(len(summed.keys) + 1)}"
    listed = ", ".join(["bucket", *summed.keys])

    def added_up(source: str, extra: str, kind: str) -> str:
        many = len(stretch.buckets) > 1
        held = pieces(source, f"{columns}{extra}", summed.source_where, name, many=many)
        return f"SELECT {listed}, {summed.listed(kind)} FROM ({held}) AS pieces {by}"  # noqa: S608

    if stretch.after is None or not all(each.level for each in summed.cells.values()):
        return [added_up(summed.source, "", "pieces")]
    seconds = int((stretch.bounds[1] - stretch.bounds[0]).total_seconds())
    rows = (
        f"SELECT *, {seconds} AS lasting, {stretch.opens[0]} AS opens FROM {summed.tables}hour"  # noqa: S608
        f" WHERE hour = %({name}_after)s AND {summed.where}"
    )
    carried = (
        f"SELECT {stretch.buckets[0]}, {summed.columns}, {summed.listed('level')}"  # noqa: S608
        f" FROM ({rows}) AS rows {by}"
    )
    return [
        carried,
        added_up(POD_PARTS[0], "", "pieces"),
        added_up(POD_ENDS, ", finished_at = b.begins AS is_over", "ended"),
    ]
