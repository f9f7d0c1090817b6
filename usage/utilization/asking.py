"""glue: reads what is asked of utilization from a query string, alike for page, chart and API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ipuhub.csvsafe import Figure
from ipuhub.months import MonthError
from ipuhub.web.filters import BadFilter
from ipuhub.web.lists import Column
from usage.query import one, read_range, refuse_unknown
from usage.sums.measures import hours
from usage.time.windows import WindowError, step_begins
from usage.utilization.amounts import Utilization, total_by_step
from usage.utilization.selectors import read_capacity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from usage.query import Params
    from usage.time.windows import Window

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
class CapacityAnswer:
    """Rows in order of time and controller, `controllers` over the whole range, and their total.

    `known_until`: when controllers were last asked (None: never); `silent_seconds`: for how long
    of the range nobody asked.
    """

    window: Window
    step: str
    rows: Sequence[CapacityRow]
    controllers: Mapping[str, Utilization]
    total: Utilization
    known_until: datetime | None
    silent_seconds: int


def answer_capacity(params: Params, now: datetime, zone: ZoneInfo, *also: str) -> CapacityAnswer:
    """Return what `params` ask for; `also` names further parameters the caller reads itself.

    Raises BadFilter.
    """
    refuse_unknown(params, _OWN | set(also))
    step = one(params, "step") or "day"
    by = one(params, "by") or _BY[0]
    if by not in _BY:
        raise BadFilter([f"by: {by!r} is none of {', '.join(_BY)}."])
    try:
        window = read_range(params, now, zone)
        begins = [window.begin] if step == WHOLE else step_begins(window, step, zone)
    except (MonthError, WindowError) as error:
        raise BadFilter([str(error)]) from error
    record = read_capacity(begins, window.until)
    only = params.get("controller", ())
    steps = {name: rows for name, rows in record.steps.items() if not only or name in only}
    count = sum(begin < window.until for begin in begins)
    shown = steps if by == _BY[0] else {"": total_by_step(steps, count)}
    ends = [*begins[1:], window.end]
    rows = [
        CapacityRow(begins[n], ends[n], name, amounts[n])
        for n in range(count)
        for name, amounts in shown.items()
    ]
    whole = {name: sum(amounts, Utilization()) for name, amounts in steps.items()}
    return CapacityAnswer(
        window,
        step,
        rows,
        whole,
        sum(whole.values(), Utilization()),
        record.known_until,
        record.silent_seconds,
    )


def capacity_columns() -> tuple[Column, ...]:
    """Return the columns of CapacityRow rows in files: hours as text, and the exact sums."""
    return (
        Column("begin", "From", lambda row: row.begin),
        Column("end", "Until", lambda row: row.end),
        Column("controller", "Controller", lambda row: row.controller),
        *(Column(f"{o.name}_ipu_hours", o.label, _hours(o), kind="number") for o in OUTPUTS),
        *(Column(exact_name(o), o.label, _exact(o), kind="export") for o in OUTPUTS),
    )


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
