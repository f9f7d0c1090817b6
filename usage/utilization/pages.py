"""glue: the page of utilization, its chart and its heat map."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from django.http import JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from ipuhub.text import spell_share
from ipuhub.web.access import require_admin, signed_in
from ipuhub.web.exports import export
from ipuhub.web.filters import BadFilter
from ipuhub.web.problems import bad_parameters
from ipuhub.web.requests import note_as_of
from usage.query import given, read_format, read_month, read_total
from usage.sums.measures import hours
from usage.time.months import usage_zone
from usage.time.windows import STEPS, Month
from usage.unchanged import capacity_poll
from usage.utilization.answers import (
    CapacityQuestion,
    answer_capacity,
    capacity_columns,
    week_columns,
)
from usage.utilization.weekhours import draw_week, hour_rows

if TYPE_CHECKING:
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from usage.query import Params
    from usage.utilization.amounts import Utilization
    from usage.utilization.answers import CapacityAnswer

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
        question = CapacityQuestion.of(params, now, usage_zone(), "total")
        answer = answer_capacity(question, with_week=not kind)
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
        question = CapacityQuestion.of(params, timezone.now(), usage_zone(), "total")
        answer = answer_capacity(question, with_week=True)
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    rows = hour_rows(answer.record.week, has_total=has_total)
    return export("csv", week_columns(), rows, "utilization-week")


@require_safe
@signed_in
def utilization_chart(request: HttpRequest) -> HttpResponseBase:
    """Return each step of all controllers as the page's chart draws it. Raises PermissionDenied."""
    require_admin(request.user)
    now, zone = timezone.now(), usage_zone()
    try:
        question = CapacityQuestion.of({**given(request.GET), "by": ["total"]}, now, zone)
        poll = capacity_poll(request, question.window, now)
        if same := poll.known():
            return same
        answer = answer_capacity(question)
        poll.keep(are_summed=answer.record.is_summed)
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
        "heat": draw_week(answer.record.week),
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
    known = answer.record.known_until
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
