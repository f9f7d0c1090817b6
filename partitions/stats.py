"""domain: the numbers of `/stats` and of capacity as rows and bars, for pages and API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from partitions.proxy.capacity import TOTAL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class Amounts(Protocol):
    """The IPUs of a controller, or of all of them."""

    @property
    def used(self) -> int:
        """Held by partitions."""

    @property
    def free(self) -> int:
        """Ready for new partitions."""

    @property
    def cordoned(self) -> int:
        """Cordoned IPUs without a holder."""

    @property
    def faulty(self) -> int:
        """Faulty IPUs without a holder."""


@dataclass(frozen=True, slots=True)
class StatRow:
    """IPUs held by jobs of one namespace, and IPUs free in the whole fleet."""

    namespace: str
    used: int
    available: int


@dataclass(frozen=True, slots=True)
class StatTable:
    """The rows that a user may see; `total` only for users who see all; `available` None: not read
    yet."""

    rows: Sequence[StatRow]
    total: StatRow | None
    available: int | None


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar: IPUs in the state `name`, from `start` on."""

    name: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class Totals:
    """Amounts of several controllers together."""

    total: int
    used: int
    free: int
    cordoned: int
    faulty: int


def stat_table(
    stats: Mapping[str, Any], covers: Callable[[str], bool], *, sees_all: bool
) -> StatTable:
    """The rows of `/stats` whose namespace `covers` allows, by name."""
    rows = [
        StatRow(namespace, int(numbers["used"]), int(numbers["available"]))
        for namespace, numbers in sorted(stats.items())
        if namespace != TOTAL and covers(namespace)
    ]
    sums = stats.get(TOTAL)
    if sums is None:
        return StatTable(rows, None, None)
    total = StatRow(TOTAL, int(sums["used"]), int(sums["available"]))
    return StatTable(rows, total if sees_all else None, total.available)


def bar_segments(amounts: Amounts) -> Sequence[Segment]:
    """The bar of a controller: held, cordoned, faulty, free; empty parts are left out."""
    parts = (
        ("used", amounts.used),
        ("cordoned", amounts.cordoned),
        ("faulty", amounts.faulty),
        ("free", amounts.free),
    )
    segments, start = [], 0
    for name, size in parts:
        if size > 0:
            segments.append(Segment(name, start, size))
            start += size
    return segments


def sum_amounts(controllers: Iterable[Amounts]) -> Totals:
    """Return the sums over all controllers."""
    found = list(controllers)
    used = sum(amounts.used for amounts in found)
    free = sum(amounts.free for amounts in found)
    cordoned = sum(amounts.cordoned for amounts in found)
    faulty = sum(amounts.faulty for amounts in found)
    return Totals(used + free + cordoned + faulty, used, free, cordoned, faulty)
