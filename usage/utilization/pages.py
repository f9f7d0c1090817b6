"""glue: the page of utilization, and its query string, which chart and API share."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from django.http import JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from ipuhub.text import Figure, spell_share
from ipuhub.web.access import require_admin, signed_in
from ipuhub.web.columns import Column
from ipuhub.web.exports import export
from ipuhub.web.filters import BadFilter, Mistake, refuse_unknown
from ipuhub.web.problems import bad_parameters
from ipuhub.web.requests import note_as_of
from usage.query import (
    given,
    read_format,
    read_month,
    read_range,
    read_total,
    single_value,
)
from usage.sums.measures import TOTAL, hours
from usage.time.months import usage_zone
from usage.time.windows import STEPS, Month, WindowError, step_begins
from usage.utilization.amounts import Utilization, total_by_step
from usage.utilization.selectors import read_capacity
from usage.utilization.weekhours import draw_week, hour_rows, week_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from usage.query import Params
    from usage.time.windows import Window
    from usage.utilization.selectors import Excerpt

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
    """Rows in order of time and controller, `controllers` over the whole range, and their total.

    `known_until`: last poll of the controllers (None: never); `silent_seconds`: time in the range
    without polls.
    """

    window: Window
    step: str
    rows: Sequence[CapacityRow]
    controllers: Mapping[str, Utilization]
    total: Utilization
    known_until: datetime | None
    silent_seconds: int
    week: Mapping[int, Utilization]

    def lines(self, *, has_total: bool) -> Sequence[CapacityRow | CapacityTotal]:
        """Return the rows for a file; with their exact sum, if there are any."""
        return [*self.rows, CapacityTotal(self.total)] if has_total and self.rows else self.rows

    @property
    def has_gaps(self) -> bool:
        """Return whether so much is unknown that it needs a warning: above 0.1 % of capacity."""
        return 1000 * self.total.unknown > self.total.capacity


def answer_capacity(
    params: Params,
    now: datetime,
    zone: ZoneInfo,
    *also: str,
    with_week: bool = False,
    excerpt: Excerpt | None = None,
) -> CapacityAnswer:
    """Return what `params` ask for; `also` names further parameters the caller reads itself.

    `with_week`: by hour of the week in place of by step, as the page shows it. With an `excerpt`
    there are rows of its steps only: the steps before and after are read as one. Raises BadFilter.
    """
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
    if with_week:
        begins = [window.begin]
    only = params.get("controller", ())
    week = week_of(window.begin, window.until, zone, *only) if with_week else None
    begun = [begin for begin in begins if begin < window.until]
    listed = excerpt.of(begun) if excerpt else range(len(begun))
    read = sorted({*begins[:1], *begins[listed.start : listed.stop + 1]})
    record = read_capacity(read, window.until, week)
    steps = {name: rows for name, rows in record.steps.items() if not only or name in only}
    count = sum(begin < window.until for begin in read)
    series = steps if by == _BY[0] else {"": total_by_step(steps, count)}
    ends = [*begins[1:], window.end]
    rows = [
        CapacityRow(begins[n], ends[n], name, amounts[place])
        for place, n in enumerate(listed, read.index(begins[listed.start]))
        for name, amounts in series.items()
    ]
    totals = {name: sum(amounts, Utilization()) for name, amounts in steps.items()}
    return CapacityAnswer(
        window,
        step,
        rows,
        totals,
        sum(totals.values(), Utilization()),
        record.known_until,
        record.silent_seconds,
        record.week,
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


# Name in the chart, the sum, and its class of usage.css.
BANDS: Final = (
    ("Running pods", "busy", "band-busy"),
    ("Held idle", "held_idle", "band-idle"),
    ("By others", "by_others", "band-others"),
    ("Free", "idle", "band-free"),
    ("Down", "down", "band-down"),
    ("Unknown", "unknown", "band-unknown"),
)


@require_safe
@signed_in
def utilization_page(request: HttpRequest) -> HttpResponseBase:
    """Show administrators a range, or hand out its twin. Raises PermissionDenied."""
    require_admin(request.user)
    now, params = timezone.now(), given(request.GET)
    try:
        kind, has_total = read_format(params), read_total(params)
        answer = answer_capacity(params, now, usage_zone(), "total", with_week=not kind)
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    if kind:
        lines = answer.lines(has_total=has_total and kind == "csv")
        return export(kind, capacity_columns(), lines, "utilization")
    note_as_of(request, _as_of(answer))
    return render(request, "usage/utilization.html", _context(answer, params, now))


@require_safe
@signed_in
def utilization_week(request: HttpRequest) -> HttpResponseBase:
    """Hand out the heat map of a range as CSV. Raises PermissionDenied."""
    require_admin(request.user)
    try:
        params = given(request.GET)
        has_total = read_total(params)
        answer = answer_capacity(params, timezone.now(), usage_zone(), "total", with_week=True)
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    rows = hour_rows(answer.week, has_total=has_total)
    return export("csv", week_columns(), rows, "utilization-week")


@require_safe
@signed_in
def utilization_chart(request: HttpRequest) -> HttpResponseBase:
    """Return each step of all controllers as the page's chart draws it. Raises PermissionDenied."""
    require_admin(request.user)
    zone = usage_zone()
    try:
        answer = answer_capacity({**given(request.GET), "by": ["total"]}, timezone.now(), zone)
    except BadFilter as error:
        return JsonResponse({"detail": " ".join(error.messages)}, status=400)
    form = "%Y-%m-%d %H:%M" if answer.step == "hour" else "%Y-%m-%d"
    bands = [band for band in BANDS if any(getattr(r.amounts, band[1]) for r in answer.rows)]
    response = JsonResponse(
        {
            "label": "IPU-hours",
            "whole": "Whole range",
            "days": [row.begin.astimezone(zone).strftime(form) for row in answer.rows],
            "series": [
                {
                    "name": name,
                    "paint": [css, []],
                    "values": [float(hours(getattr(row.amounts, band))) for row in answer.rows],
                }
                for name, band, css in bands
            ],
        }
    )
    response["Cache-Control"] = "private, no-cache"
    return response


def _context(answer: CapacityAnswer, params: Params, now: dt.datetime) -> dict[str, Any]:
    zone, total = usage_zone(), answer.total
    last = answer.window.end - dt.timedelta(seconds=1)
    lines = [_line(name, amounts) for name, amounts in answer.controllers.items()]
    return {
        "answer": answer,
        "zone": zone.key,
        "first_day": answer.window.begin.astimezone(zone).date(),
        "last_day": last.astimezone(zone).date(),
        "figures": _figures(total),
        "capacity": hours(total.capacity),
        "unknown": spell_share(total.unknown, total.capacity),
        "heat": draw_week(answer.week),
        "lines": lines,
        "total": _line("All controllers", total) if len(lines) > 1 else None,
        "now": now,
        "as_of": _as_of(answer),
        "steps": [(step, _address(params, step=step), step == answer.step) for step in STEPS],
        "chart": f"{reverse('utilization-chart')}?{_query(params)}",
        "week_csv": f"{reverse('utilization-week')}?{_query(params)}",
        "csv": _address(params, format="csv"),
        "json": _address(params, format="json"),
        "only": params.get("controller", ()),
        "everything": _address({k: v for k, v in params.items() if k != "controller"}),
        **_neighbours(params, now),
    }


def _figures(total: Utilization) -> list[tuple[str, str, object]]:
    """Return name, share and IPU-hours of each state; the state of others only if not zero."""
    return [
        (name, spell_share(getattr(total, band), total.capacity), hours(getattr(total, band)))
        for name, band, _ in BANDS
        if band != "by_others" or total.by_others
    ]


def _line(name: str, amounts: Utilization) -> dict[str, Any]:
    return {
        "name": name,
        "capacity": hours(amounts.capacity),
        "shares": [
            (
                label,
                spell_share(getattr(amounts, part), amounts.capacity),
                hours(getattr(amounts, part)),
            )
            for label, part, *_ in (("Reserved", "reserved"), *BANDS)
        ],
        "bar": _bar(amounts),
    }


def _bar(amounts: Utilization) -> list[dict[str, Any]]:
    """Return the bands as parts of 1000, each from where the band before it ends."""
    parts, begin = [], 0
    so_far = 0
    for name, band, css in BANDS:
        so_far += getattr(amounts, band)
        end = 1000 * so_far // amounts.capacity if amounts.capacity else 0
        if end > begin:
            parts.append({"name": name, "x": begin, "width": end - begin, "css": css})
        begin = end
    return parts


def _as_of(answer: CapacityAnswer) -> datetime | None:
    """Return the last poll of the controllers if the range is not over; a past range has no age."""
    known = answer.known_until
    return known if known is not None and known < answer.window.until else None


def _neighbours(params: Params, now: dt.datetime) -> dict[str, Any]:
    """Return the months before and after the shown month; none if another range is shown."""
    if {"from", "to", "window"} & params.keys():
        return {"month": None}
    zone = usage_zone()
    month = read_month(params, now, zone)
    last = month >= Month.of(now, zone)
    return {
        # A day, not an instant: templates show instants in UTC, where it may be the month before.
        "month": dt.date(month.year, month.number, 1),
        "previous": _address(params, month=str(month.previous())),
        "next": "" if last else _address(params, month=str(month.next())),
    }


def _query(params: Params, **others: str) -> str:
    params_left = {name: value for name, value in params.items() if name not in {"format", "by"}}
    return urlencode(params_left | {n: [text] for n, text in others.items()}, doseq=True)


def _address(params: Params, **others: str) -> str:
    return f"{reverse('utilization')}?{_query(params, **others)}"
