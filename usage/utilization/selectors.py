"""glue: utilization of each V-IPU controller, in steps of any past range."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from django.db import connection

from ipuhub.web.filters import BadFilter, Mistake
from usage.reading import one_snapshot, patience, rows_of
from usage.time.windows import bounds
from usage.utilization.amounts import Utilization
from usage.utilization.rollups import plan, read_quarters, read_summed_time, read_week
from usage.utilization.rows import RUNS, read_polls, read_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from usage.utilization.rollups import Plan, SummedTime
    from usage.utilization.weekhours import Week

_MICRO = 10**6
_BY_PARTITION = RUNS.replace("KEY", "id")
_OF_PARTITIONS = _BY_PARTITION.replace(
    "WHERE stop > start", "WHERE id = ANY(%(ids)s) AND stop > start"
)


@dataclass(frozen=True, slots=True)
class CapacityRecord:
    """Utilization by controller, each with one entry for a step that has begun.

    `known_until`: last poll of the controllers before the end of the range; None: never.
    `silent_seconds`: time in the range without polls. `week`: the sums by hour of the week.
    `is_summed`: all of it was read from sums. `has_listed_gaps`: the list of gaps has some of the
    time without polls.
    """

    steps: Mapping[str, Sequence[Utilization]]
    known_until: datetime | None
    silent_seconds: int
    week: Mapping[int, Utilization]
    is_summed: bool = False
    has_listed_gaps: bool = False


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The steps whose rows are wanted: at most `most`, from the step of `begin` on."""

    begin: datetime | None
    most: int

    def of(self, begins: Sequence[datetime]) -> range:
        """Return the numbers of these steps."""
        first = 0 if self.begin is None else max(0, bisect_right(begins, self.begin) - 1)
        return range(first, min(len(begins), first + self.most))


@one_snapshot(read_only=True)
def read_capacity(
    begins: Sequence[datetime],
    until: datetime,
    week: Week | None = None,
    *,
    in_total: bool = False,
) -> CapacityRecord:
    """Return the record of steps that begin at `begins`, the last of them up to `until`.

    All are whole seconds and `until` is past; steps that begin later are left out. With `week`
    also by hour of the week. `in_total`: one entry, without a name, for all controllers. Raises
    BadFilter where rows are needed that retention deleted, or too many.
    """
    edges = [*(instant for instant in begins if instant < until), until]
    if len(edges) == 1:
        return CapacityRecord({}, None, 0, {})
    standing = read_summed_time()
    parts = plan(edges, standing)
    _refuse_purged(parts, standing)
    steps: dict[str, list[Utilization]] = {}
    slots: dict[int, Utilization] = {}
    if week:
        quarters, slots = read_week(parts.sums, standing, week)
    else:
        quarters = read_quarters(parts.sums, standing, in_total=in_total)

    def add(name: str, step: int, amounts: Utilization) -> None:
        own = steps.setdefault(name, [Utilization()] * (len(edges) - 1))
        own[step] += amounts

    for sums in quarters:
        add(*sums)
    with patience(bounded=parts.is_dear), connection.cursor() as cursor:
        polls = read_polls(cursor, edges[0], until, standing.known_now)
        for stretch, first in parts.stretches:
            hours = week.hours(stretch[0], stretch[-1]) if week else {}
            cuts = sorted({*stretch, *hours})
            for name, rows in read_rows(cursor, cuts, polls.gaps).items():
                slot = 0
                for begin, amounts in zip(cuts, rows, strict=False):
                    slot = hours.get(begin, slot)
                    if not amounts.capacity:  # most hours of the month of a new installation
                        continue
                    add("" if in_total else name, first + bisect_right(stretch, begin) - 1, amounts)
                    if week and week.counts(name):
                        slots[slot] = slots.get(slot, Utilization()) + amounts
    return CapacityRecord(
        {name: rows for name, rows in sorted(steps.items()) if any(row.capacity for row in rows)},
        _known_until(polls.gaps, until) if polls.has_capacity else None,
        sum(max(0, b - a) for a, b in _merged(polls.gaps, edges)) // _MICRO,
        slots,
        is_summed=not parts.stretches,
        has_listed_gaps=polls.are_listed,
    )


def _refuse_purged(parts: Plan, standing: SummedTime) -> None:
    frozen = standing.frozen
    if frozen is None or not any(edges[0] < frozen for edges, _ in parts.stretches):
        return
    sentence = f"raw rows before {frozen:%F %R} UTC were purged, and with them the utilization"
    if standing.begin < frozen:
        sentence += (
            f" but for its sums by quarter of an hour since {standing.begin:%F %R} UTC. Request "
            "a range that begins and ends at a quarter"
        )
    raise BadFilter(Mistake("from", f"{sentence}."))


def partition_runs(
    ids: Sequence[int], begin: datetime, until: datetime
) -> dict[int, tuple[int, int]]:
    """Return, by partition, the IPU-seconds with a pod on it and its pods' micro-IPU-seconds."""
    if until <= begin:
        return {}
    parameters = bounds(begin, until) | {"bounds": [begin, until], "ids": list(ids)}
    return {
        row[0]: (int(row[2]), int(row[3]))
        for row in rows_of(_OF_PARTITIONS, parameters, bounded=False)
    }


def _known_until(gaps: Sequence[tuple[int, int]], until: datetime) -> datetime:
    end = int(until.timestamp()) * _MICRO
    last = [start for start, stop in gaps if stop >= end]
    return datetime.fromtimestamp(min([*last, end]) / _MICRO, UTC)


def _merged(gaps: Sequence[tuple[int, int]], edges: Sequence[datetime]) -> list[tuple[int, int]]:
    first, last = (int(edge.timestamp()) * _MICRO for edge in (edges[0], edges[-1]))
    found: list[tuple[int, int]] = []
    for start, stop in sorted((max(a, first), min(b, last)) for a, b in gaps):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], stop))
        else:
            found.append((start, stop))
    return found
