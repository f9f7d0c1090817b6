"""domain: the hours of the week as the clocks of a time zone show them, and their heat map.

Between two changes of its clocks a time zone is a fixed shift from UTC, so the hour of the week of
an instant is arithmetic, which SQL does as well. The hour that a change of clocks repeats counts
into its cell twice; the hour that it skips counts nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from ipuhub.text import spell_share
from usage.sums.measures import TOTAL
from usage.utilization.amounts import Utilization

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from zoneinfo import ZoneInfo

DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
HOURS: Final = 24
SLOTS: Final = 24 * 7
FIRST: Final = 72
"""1970 began on a Thursday: 72 hours after Monday 00:00, which is slot 0."""
LEVELS: Final = 5
_HOUR: Final = 3600
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """From `begin` to `until` the clocks are `seconds` ahead of UTC."""

    begin: datetime
    until: datetime
    seconds: int


@dataclass(frozen=True, slots=True)
class Week:
    """The time zone of the hours, and the controllers to count (empty: all)."""

    shifts: tuple[ClockOffset, ...]
    controllers: frozenset[str] = frozenset()

    def cut(self, begin: datetime, until: datetime) -> Iterator[ClockOffset]:
        """Yield [begin, until) in parts between changes of the clocks."""
        for shift in self.shifts:
            first, last = max(begin, shift.begin), min(until, shift.until)
            if first < last:
                yield ClockOffset(first, last, shift.seconds)

    def hours(self, begin: datetime, until: datetime) -> dict[datetime, int]:
        """Return when slots begin in [begin, until), and which; the first at `begin`."""
        found: dict[datetime, int] = {}
        for part in self.cut(begin, until):
            at, last = int(part.begin.timestamp()), part.until.timestamp()
            while at < last:
                found[datetime.fromtimestamp(at, UTC)] = slot_of(at, part.seconds)
                at += _HOUR - (at + part.seconds) % _HOUR
        return found

    def counts(self, controller: str) -> bool:
        """Return whether the sums include `controller`."""
        return not self.controllers or controller in self.controllers


@dataclass(frozen=True, slots=True)
class Cell:
    """An hour of the week; `level` 0 to LEVELS - 1, or None where nothing is known."""

    day: int
    hour: int
    level: int | None
    share: str
    words: str


@dataclass(frozen=True, slots=True)
class HourRow:
    """An hour of the week and its sums, a row of the heat map's file.

    The line of totals has no hour; its weekday is TOTAL.
    """

    weekday: str
    hour: int | None
    amounts: Utilization

    @property
    def reserved_percent(self) -> str | None:
        """The share of the capacity that partitions held; None where nothing is known."""
        if not self.amounts.is_known:
            return None
        return f"{100 * self.amounts.reserved / self.amounts.capacity:.2f}"


@dataclass(frozen=True, slots=True)
class HeatMap:
    """`rows`: the cells of each day. `words`: its extremes, empty if nothing is known."""

    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    words: str

    @property
    def hours(self) -> list[tuple[str, tuple[Cell, ...]]]:
        """Return the cells of each hour, as a table that fits a phone has them."""
        columns = zip(*(cells for _, cells in self.rows), strict=True)
        return [(f"{cells[0].hour:02}:00", cells) for cells in columns]


def week_of(begin: datetime, until: datetime, zone: ZoneInfo, *controllers: str) -> Week:
    """Return the clocks of `zone` in [begin, until)."""
    found: list[ClockOffset] = []
    while begin < until:
        end = _change(begin, until, zone)
        found.append(ClockOffset(begin, end, _seconds(begin, zone)))
        begin = end
    return Week(tuple(found), frozenset(controllers))


def slot_of(second: int, shift: int) -> int:
    """Return the hour of the week at a second of the epoch; 0 is Monday 00:00."""
    return ((second + shift) // _HOUR + FIRST) % SLOTS


def draw_week(sums: Mapping[int, Utilization]) -> HeatMap:
    """Return what share of the capacity partitions held in each hour of the week."""
    cells = [_cell(slot, sums.get(slot, Utilization())) for slot in range(SLOTS)]
    rows = tuple(
        (name, tuple(cells[HOURS * day : HOURS * (day + 1)])) for day, name in enumerate(DAYS)
    )
    known = [cell.day * HOURS + cell.hour for cell in cells if cell.level is not None]
    return HeatMap(rows, _extremes({slot: sums[slot] for slot in known}))


def hour_rows(sums: Mapping[int, Utilization], *, has_total: bool) -> Iterator[HourRow]:
    """Yield all hours of the week, from Monday 00:00 on, then perhaps their sum."""
    for slot in range(SLOTS):
        day, hour = divmod(slot, HOURS)
        yield HourRow(DAYS[day], hour, sums.get(slot, Utilization()))
    if has_total:
        yield HourRow(TOTAL, None, sum(sums.values(), Utilization()))


def _cell(slot: int, amounts: Utilization) -> Cell:
    day, hour = divmod(slot, HOURS)
    if not amounts.is_known:
        return Cell(day, hour, None, "no data", f"{_spell(slot)}: no data")
    level = min(LEVELS - 1, LEVELS * amounts.reserved // amounts.capacity)
    share = _share(amounts)
    words = [
        f"{_spell(slot)}: {share} held",
        *(
            f"{spell_share(part, amounts.capacity)} {name}"
            for name, part in (("held idle", amounts.held_idle), ("unknown", amounts.unknown))
            if part
        ),
    ]
    return Cell(day, hour, level, share, ", ".join(words))


def _extremes(known: Mapping[int, Utilization]) -> str:
    if not known:
        return ""
    shares = {slot: amounts.reserved / amounts.capacity for slot, amounts in known.items()}
    most, least = (choose(known, key=shares.__getitem__) for choose in (max, min))
    if shares[most] == shares[least]:
        return f"Every recorded hour: {_share(known[most])} held."
    return f"Most held: {_told(most, known)}. Least held: {_told(least, known)}."


def _told(slot: int, known: Mapping[int, Utilization]) -> str:
    return f"{_spell(slot)}, {_share(known[slot])}"


def _share(amounts: Utilization) -> str:
    return spell_share(amounts.reserved, amounts.capacity)


def _spell(slot: int) -> str:
    day, hour = divmod(slot, HOURS)
    return f"{DAYS[day]} {hour:02}:00"


def _change(begin: datetime, until: datetime, zone: ZoneInfo) -> datetime:
    """Return when the clocks change first after `begin`, at most `until`."""
    shift, low = _seconds(begin, zone), begin
    while low < until:
        high = min(low + _DAY, until)
        if _seconds(high, zone) != shift:
            return _bisect(low, high, zone)
        low = high
    return until


def _bisect(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    shift = _seconds(low, zone)
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=int((high - low).total_seconds()) // 2)
        low, high = (middle, high) if _seconds(middle, zone) == shift else (low, middle)
    return high


def _seconds(instant: datetime, zone: ZoneInfo) -> int:
    offset = instant.astimezone(zone).utcoffset()
    return int((offset or timedelta()).total_seconds())
