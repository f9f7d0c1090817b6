"""glue: the pages of usage: a month, its chart, pods, gaps and faults."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from ipuhub.months import MonthError
from ipuhub.web.access import require_accountant, usage_scope_of
from ipuhub.web.exports import FORMATS, export
from ipuhub.web.filters import BadFilter
from ipuhub.web.lists import ListPage
from ipuhub.web.problems import not_as_asked
from ipuhub.web.requests import signed_in
from usage.completeness import POD_WATCH, month_completeness
from usage.query import (
    given,
    names_of,
    read_format,
    read_month,
    read_output,
    read_question,
    read_total,
)
from usage.rates.pricing import Pricing
from usage.retention.purged import list_notes
from usage.selectors import add_pod_costs, faults, gaps, visible_lifetimes
from usage.sums.columns import sums_columns
from usage.sums.measures import COST, DIMENSIONS, LABEL, OUTPUTS, dimension
from usage.sums.queries import all_sums, chart, read_sums, with_total
from usage.tables import (
    FAULT_COLUMNS,
    GAP_COLUMNS,
    LIFETIME_COLUMNS,
    FaultFilters,
    GapFilters,
    LifetimeFilters,
)
from usage.time.ranges import MonthBounds, usage_zone
from usage.time.windows import WindowError, local_day

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from ipuhub.months import Month
    from ipuhub.web.filters import Filters
    from usage.models import PodLifetime
    from usage.query import Params
    from usage.sums.measures import Output
    from usage.sums.queries import Question, SumRow, Sums

SHOWN_ROWS = 50  # the files have all
CHART_KEYS = 8
_NAMES = ("CSV", "JSON", "JSON lines")
_CARDS = (
    ("ipu_hours", "IPU-hours, pods"),
    ("partition_ipu_hours", "IPU-hours, partitions"),
    ("cpu_core_hours", "CPU core-hours"),
    ("memory_gib_hours", "Memory GiB-hours"),
    ("gpu_hours", "GPU-hours"),
)


@require_safe
@signed_in
def month_page(request: HttpRequest) -> HttpResponseBase:
    """Show a month by group, user or the like, or hand out its twin. Raises PermissionDenied."""
    now, zone = timezone.now(), usage_zone()
    params = {"by": ["group"], **given(request.GET)}
    try:
        month = read_month(params, now, zone)
        question = read_question(params, request.user, now, zone, "measure", "total")
        _refuse_range(params)
        output = read_output(params, question)
        kind, has_total = read_format(params), read_total(params)
    except MonthError as error:
        return not_as_asked(request, [f"month: {error}"])
    except BadFilter as error:
        return not_as_asked(request, error.messages)
    begins, by = [question.window.begin], names_of(question.by)
    try:
        if kind:
            rows = all_sums(question, begins, output.amount)
            if kind == "csv" and has_total:
                rows = with_total(question, begins, rows)
            columns = sums_columns(by, question.pricing)
            return export(kind, columns, rows, f"usage-{month}-by-{_file_part(by)}")
        sums = read_sums(question, begins, output.amount, SHOWN_ROWS)
    except BadFilter as error:  # rows that it needs are gone
        return not_as_asked(request, error.messages)
    facts = month_completeness(month, question.window, now, zone)
    context = _context(month, question, params, sums) | {"facts": facts, "now": now}
    window = question.window
    context["bounds_note"] = MonthBounds(month, zone, window.begin, window.end).note
    context |= _neighbours(params, month, question, facts.earliest)
    return render(request, "usage/month.html", context)


@require_safe
@signed_in
def month_chart(request: HttpRequest) -> HttpResponseBase:
    """Return what each day held, as the chart of the month page draws it."""
    now, zone = timezone.now(), usage_zone()
    params = {"by": ["group"], **given(request.GET)}
    try:
        question = read_question(params, request.user, now, zone, "measure")
        output = read_output(params, question)
        begins, sums = chart(question, "day", output.amount, CHART_KEYS)
    except BadFilter as error:
        return JsonResponse({"detail": " ".join(error.messages)}, status=400)
    except WindowError as error:
        return JsonResponse({"detail": str(error)}, status=400)
    heights: dict[Any, int] = {}
    for (_, key), amount in sums.items():
        heights[key] = heights.get(key, 0) + amount
    order = sorted(heights, key=lambda key: (key is None, -heights[key], key or ""))
    answer = JsonResponse(
        {
            "label": _chart_label(output, question),
            "days": [f"{begin.astimezone(zone):%Y-%m-%d}" for begin in begins],
            "series": [
                {
                    "name": _shown_name(key),
                    "other": key is None,
                    "values": [
                        float(output.hours(sums.get((n, key), 0))) for n in range(len(begins))
                    ],
                }
                for key in order
            ],
        }
    )
    answer["Cache-Control"] = "private, no-cache"
    return answer


def _chart_label(output: Output, question: Question) -> str:
    currency = question.pricing.currency if output is COST and question.pricing else ""
    return f"{output.label}, {currency}" if currency else output.label


def _add_costs(request: HttpRequest, filters: Filters, rows: Sequence[PodLifetime]) -> None:
    # Whole minutes: what goes on would otherwise be another page with each poll.
    now = timezone.now().replace(second=0, microsecond=0)
    add_pod_costs(usage_scope_of(request.user), filters.form.cleaned_data, rows, now)


def _what_is_there(_request: HttpRequest) -> dict[str, Any]:
    return list_notes(POD_WATCH, timezone.now())


lifetime_list = ListPage(
    title="Pods",
    noun="pod",
    columns=LIFETIME_COLUMNS,
    filters=LifetimeFilters,
    select=visible_lifetimes,
    empty="Pods with a usage annotation appear here when the prober has recorded them.",
    more=_what_is_there,
    prepare=_add_costs,
).view
gap_list = ListPage(
    title="Gaps in the record",
    noun="gap",
    columns=GAP_COLUMNS,
    filters=GapFilters,
    select=gaps,
    order=("began_at", "id"),
    empty="All watches are complete.",
).view
_fault_list = ListPage(
    title="Faults in the record",
    noun="fault",
    columns=FAULT_COLUMNS,
    filters=FaultFilters,
    select=faults,
    order=("last_at", "id"),
    empty="The prober recorded everything without errors.",
).view


@signed_in
def fault_list(request: HttpRequest) -> Any:
    """Show administrators what the recorders could not take. Raises PermissionDenied."""
    require_accountant(request.user)
    return _fault_list(request)


def _refuse_range(params: Params) -> None:
    if {"from", "to", "window"} & set(params):
        raise BadFilter(
            ["This page shows whole months. For other ranges, use /api/v1/usage/summary."]
        )


def _context(month: Month, question: Question, params: Params, sums: Sums) -> dict[str, Any]:
    output = read_output(params, question)
    pricing = question.pricing or Pricing()
    # The first row has most: rows are in the order of the measure.
    most = sums.rows[0].measures.rank(output.amount) if sums.rows else 0
    everything = sums.total
    known = [*DIMENSIONS.values(), *(dimension(f"{LABEL}{k}", [k]) for k in settings.USAGE_LABELS)]
    return {
        "month": month,
        # A day, not an instant: templates show instants in UTC, where it may be the month before.
        "name": dt.date(month.year, month.number, 1),
        "zone": question.zone.key,
        "is_open": question.window.until < question.window.end,
        "by": names_of(question.by),
        "by_label": ", ".join(each.label for each in question.by),
        "filters": [(each.name, text) for each, texts in question.equals for text in texts],
        "output": output,
        "total": everything,
        "cards": [(OUTPUTS[name].of(everything), label) for name, label in _CARDS],
        "columns": OUTPUTS.values(),
        "pricing": question.pricing,
        "cost": pricing.money(everything.cost),
        "unpriced": [_days(stretch, question.zone) for stretch in pricing.unpriced],
        "rows": [_row(row, output.amount, most, pricing) for row in sums.rows],
        "hidden": max(0, sums.count - SHOWN_ROWS),
        "row_count": sums.count,
        "dimensions": [(d, _address(params, by=d.name)) for d in known],
        "outputs": [(o, _address(params, measure=o.name)) for o in _outputs(pricing, output)],
        "chart": f"{reverse('usage:chart')}?{_query(params)}",
        "files": [
            (name, _address(params, format=kind))
            for kind, name in zip(FORMATS, _NAMES, strict=True)
        ],
        "csv": _address(params, format="csv"),
        "unfiltered": _address(_without_filters(params)),
        "scope": question.scope,
        "seen": sorted(question.scope.namespaces or ()),
        "reports": _reports(month) if question.scope.sees_reports else None,
    }


def _outputs(pricing: Pricing, chosen: Output) -> list[Output]:
    """Return what the chart and the order can be of: of the cost where there is any."""
    with_cost = bool(pricing.currency) or chosen is COST
    return [*OUTPUTS.values(), *([COST] if with_cost else [])]


def _days(stretch: tuple[dt.datetime, dt.datetime], zone: ZoneInfo) -> tuple[dt.date, dt.date]:
    """Return the first and the last day of a stretch that ends as a day does, or now."""
    begin, end = stretch
    return local_day(begin, zone), local_day(end - dt.timedelta(seconds=1), zone)


def _row(row: SumRow, amount: str, most: int, pricing: Pricing) -> dict[str, Any]:
    share = 100 * row.measures.rank(amount) // most if most else 0
    return {
        "key": row.key,
        "measures": row.measures,
        "hours": [output.of(row.measures) for output in OUTPUTS.values()],
        "cost": pricing.money(row.measures.cost),
        "share": share,
    }


def _neighbours(
    params: Params, month: Month, question: Question, earliest: Month
) -> dict[str, Any]:
    ended = question.window.until >= question.window.end
    return {
        "previous": _address(params, month=str(month.previous())) if month > earliest else "",
        "next": _address(params, month=str(month.next())) if ended else "",
    }


def _query(params: Params, **others: str) -> str:
    kept = {name: list(texts) for name, texts in params.items() if name != "format"}
    return urlencode(kept | {name: [text] for name, text in others.items()}, doseq=True)


def _address(params: Params, **others: str) -> str:
    return f"{reverse('usage:month')}?{_query(params, **others)}"


def _without_filters(params: Params) -> Params:
    return {k: v for k, v in params.items() if k not in DIMENSIONS and not k.startswith(LABEL)}


def _file_part(by: Sequence[str]) -> str:
    """Return the dimensions as a part of a file's name."""
    return "-".join(name.removeprefix(LABEL).replace("/", "-") for name in by)


def _reports(month: Month) -> dict[str, str]:
    """Return the addresses of the month's files, and of the page that makes them."""
    kinds = ("summary", "details")
    files = {kind: reverse("usage-api:report-file", args=[month, kind, "csv"]) for kind in kinds}
    return files | {"page": reverse("usage:reports")}


def _shown_name(key: str | tuple[str, ...] | None) -> str:
    if key is None:
        return "Other"
    parts = (key,) if isinstance(key, str) else key
    return " · ".join(part or "(none)" for part in parts)
