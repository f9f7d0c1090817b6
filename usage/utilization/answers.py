"""glue: a question about utilization in a query string, which page, chart and API share, and its
answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ipuhub.text import Figure
from ipuhub.web.columns import Column
from ipuhub.web.filters import BadFilter, Mistake, refuse_unknown
from usage.query import read_range, single_value
from usage.sums.measures import TOTAL, hours
from usage.time.windows import WindowError, step_begins
from usage.utilization.amounts import Utilization, total_by_step
from usage.utilization.selectors import read_capacity
from usage.utilization.weekhours import week_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from usage.query import Params
    from usage.time.windows import Window
    from usage.utilization.selectors import CapacityRecord, Excerpt

WHOLE: Final = "all"  # the step of one sum over the range
_BY: Final = ("controller", "total")
_OWN: Final = frozenset({"month", "from", "to", "step", "by", "controller", "format", "window"})


@dataclass(frozen=True, slots=True)
class Output:
    """A printed sum: its name in files, its label, and the exact sum with its unit."""

    name: str
    label: str
    amount: str
    unit: int = 1


OUTPUTS: Final = (
    Output("capacity", "Capacity", "capacity"),
    Output("reserved", "Reserved", "reserved"),
    Output("pod", "Pods", "pod_micro", 10**6),
    Output("held_idle", "Held idle", "held_idle"),
    Output("by_others", "By others", "by_others"),
    Output("idle", "Idle", "idle"),
    Output("down", "Down", "down"),
    Output("unknown", "Unknown", "unknown"),
)
"""capacity = reserved + idle + down + unknown; the others are parts of reserved."""


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """One controller (empty: all together) in one step."""

    begin: datetime
    end: datetime
    controller: str
    amounts: Utilization


@dataclass(frozen=True, slots=True)
class CapacityTotal:
    """The line of totals of a file: all rows of all controllers."""

    amounts: Utilization
    begin: str = TOTAL
    end: None = None
    controller: str = ""


@dataclass(frozen=True, slots=True)
class CapacityAnswer:
    """Rows in order of time and controller, `controllers` over the whole range, and their total."""

    window: Window
    step: str
    rows: Sequence[CapacityRow]
    controllers: Mapping[str, Utilization]
    total: Utilization
    record: CapacityRecord

    def lines(self, *, has_total: bool) -> Sequence[CapacityRow | CapacityTotal]:
        """Return the rows for a file; with their exact sum, if there are any."""
        return [*self.rows, CapacityTotal(self.total)] if has_total and self.rows else self.rows

    @property
    def has_gaps(self) -> bool:
        """Return whether so much is unknown that it needs a warning: above 0.1 % of capacity."""
        return 1000 * self.total.unknown > self.total.capacity


@dataclass(frozen=True, slots=True)
class CapacityQuestion:
    """A question about utilization: the time and its steps, by controller or in total, and the
    controllers (empty: all)."""

    window: Window
    step: str
    begins: Sequence[datetime]
    by: str
    only: Sequence[str]
    zone: ZoneInfo

    @classmethod
    def of(cls, params: Params, now: datetime, zone: ZoneInfo, *also: str) -> CapacityQuestion:
        """Return what `params` ask for; `also` names further parameters the caller reads itself.
        Raises BadFilter."""
        refuse_unknown(params, _OWN | set(also))
        step = single_value(params, "step") or "day"
        by = single_value(params, "by") or _BY[0]
        if by not in _BY:
            raise BadFilter(Mistake("by", f"{by!r} is not one of {', '.join(_BY)}."))
        try:
            window = read_range(params, now, zone)
            begins = [window.begin] if step == WHOLE else step_begins(window, step, zone)
        except WindowError as error:
            raise BadFilter(Mistake(error.parameter, error.sentence)) from error
        return cls(window, step, begins, by, params.get("controller", ()), zone)


def answer_capacity(
    question: CapacityQuestion, *, with_week: bool = False, excerpt: Excerpt | None = None
) -> CapacityAnswer:
    """Return the answer.

    `with_week`: by hour of the week in place of by step, as the page shows it. With an `excerpt`
    there are rows of its steps only: the steps before and after are read as one. Raises BadFilter.
    """
    window, only = question.window, question.only
    begins = [window.begin] if with_week else question.begins
    week = week_of(window.begin, window.until, question.zone, *only) if with_week else None
    begun = [begin for begin in begins if begin < window.until]
    listed = excerpt.of(begun) if excerpt else range(len(begun))
    read = sorted({*begins[:1], *begins[listed.start : listed.stop + 1]})
    in_total = question.by != _BY[0] and not only and week is None
    record = read_capacity(read, window.until, week, in_total=in_total)
    steps = {name: rows for name, rows in record.steps.items() if not only or name in only}
    count = sum(begin < window.until for begin in read)
    series = steps if question.by == _BY[0] else {"": total_by_step(steps, count)}
    ends = [*begins[1:], window.end]
    rows = [
        CapacityRow(begins[n], ends[n], name, amounts[place])
        for place, n in enumerate(listed, read.index(begins[listed.start]))
        for name, amounts in series.items()
    ]
    totals = {name: sum(amounts, Utilization()) for name, amounts in steps.items()}
    return CapacityAnswer(
        window,
        question.step,
        rows,
        totals,
        sum(totals.values(), Utilization()),
        record,
    )


def capacity_columns() -> tuple[Column, ...]:
    """Return the columns of CapacityRow rows in files: hours as text, and the exact sums."""
    return (
        Column("begin", "From", lambda row: row.begin),
        Column("end", "Until", lambda row: row.end),
        Column("controller", "Controller", lambda row: row.controller),
        *_amount_columns(),
    )


def week_columns() -> tuple[Column, ...]:
    """Return the columns of the heat map's file, of HourRows."""
    return (
        Column("weekday", "Weekday", lambda row: row.weekday),
        Column("hour", "Hour", lambda row: row.hour),
        Column("reserved_percent", "Reserved", _percent, kind="number"),
        *_amount_columns(),
    )


def _amount_columns() -> tuple[Column, ...]:
    return (
        *(Column(f"{o.name}_ipu_hours", o.label, _hours(o), kind="number") for o in OUTPUTS),
        *(Column(exact_name(o), o.label, _exact(o), kind="export") for o in OUTPUTS),
    )


def _percent(row: Any) -> object:
    return None if row.reserved_percent is None else Figure(row.reserved_percent)


def amounts_record(amounts: Utilization) -> dict[str, Any]:
    """Return the sums as the API prints them: hours beside the exact whole numbers."""
    record: dict[str, Any] = {
        f"{o.name}_ipu_hours": str(hours(getattr(amounts, o.amount), o.unit)) for o in OUTPUTS
    }
    return record | {"exact": {exact_name(o): getattr(amounts, o.amount) for o in OUTPUTS}}


def exact_name(output: Output) -> str:
    """Return the name of the exact sum, with its unit."""
    return f"{output.name}_{'micro_' if output.unit > 1 else ''}ipu_seconds"


def _hours(output: Output) -> Callable[[Any], object]:
    return lambda row: Figure(hours(getattr(row.amounts, output.amount), output.unit))


def _exact(output: Output) -> Callable[[Any], object]:
    return lambda row: getattr(row.amounts, output.amount)
