"""glue: the chart of the usage page, and the lists of pods, gaps and faults."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from django.http import JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from ipuhub.web.access import require_accountant, signed_in, usage_scope_of
from ipuhub.web.filters import BadFilter, filter_text
from ipuhub.web.lists import ListPage
from ipuhub.web.palette import OTHER, paints_of
from usage.page import drill_down_url, is_month, step_of
from usage.query import given, names_of, read_output, read_question, with_prices
from usage.retention.purged import list_notes
from usage.selectors import (
    add_pod_costs,
    faults,
    gaps,
    job_names,
    job_places,
    visible_lifetimes,
)
from usage.sums.measures import COST, Measures
from usage.sums.pieces import closed_steps
from usage.sums.queries import chart, read_sums, total_as_closed
from usage.tables import (
    FAULT_COLUMNS,
    GAP_COLUMNS,
    LIFETIME_COLUMNS,
    FaultFilters,
    GapFilters,
    LifetimeFilters,
)
from usage.time.months import POD_WATCH, usage_zone
from usage.time.windows import WindowError
from usage.unchanged import sums_poll

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from zoneinfo import ZoneInfo

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from ipuhub.web.filters import Filters
    from usage.models import PodLifetime
    from usage.sums.measures import Output
    from usage.sums.queries import Question

CHART_KEYS = 8
_MOST_KEYS = 10_000  # whose cost in closed months the legend knows


@require_safe
@signed_in
def month_chart(request: HttpRequest) -> HttpResponseBase:
    """Return what each day held, as the chart of the month page draws it."""
    now, zone = timezone.now(), usage_zone()
    params = {"by": ["group"], **given(request.GET)}
    try:
        question = read_question(params, request.user, now, zone, "measure", "compare", "total")
        output = read_output(params, question)
        poll = sums_poll(request, question, now)
        if same := poll.known():
            return same
        question = with_prices(question)
        step = step_of(question.window)
        drawn = chart(question, step, output.amount, CHART_KEYS)
        begins, sums = drawn.begins, drawn.sums
        closed = _closed_costs(question) if output is COST else None
        poll.keep(are_summed=drawn.is_summed and closed is None)
    except BadFilter as error:
        return JsonResponse({"detail": " ".join(error.messages)}, status=400)
    except WindowError as error:
        return JsonResponse({"detail": str(error)}, status=400)
    heights: dict[Any, int] = {}
    for (_, key), amount in sums.items():
        heights[key] = heights.get(key, 0) + amount
    names = (
        job_names([key for key in heights if isinstance(key, str)]) if _is_by_job(question) else {}
    )
    order = sorted(heights, key=lambda key: (key is None, -heights[key], key or ""))
    plain = {key: names.get(key) or _shown_name(key) for key in order}
    labels = _named_apart(plain, zone, by_job=_is_by_job(question))
    # Two jobs of one name are two colours; a name alone keeps the colour of its name.
    painted = {
        key: plain[key] if labels[key] == plain[key] else f"{plain[key]} {key}" for key in order
    }
    paints = paints_of(painted[key] for key in order if key is not None)
    answer = JsonResponse(
        {
            "label": _chart_label(output, question),
            "days": [
                f"{begin.astimezone(zone):{'%Y-%m-%d' if step == 'day' else '%b %Y'}}"
                for begin in begins
            ],
            **({} if is_month(params) else {"whole": "Range"}),
            **_totals(question, closed, order),
            "series": [
                {
                    "name": labels[key],
                    "url": drill_down_url(params, question.by, key),
                    "paint": OTHER if key is None else paints[painted[key]],
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


def _closed_costs(question: Question) -> tuple[int | None, dict[tuple[str, ...], int]] | None:
    """Return the cost of the whole window and by key where it has a closed month, as its report
    says; None: it has none. By dimensions that reports do not know there is only the total."""
    begins = [question.window.begin]
    if closed_steps(question.pricing, begins, question.window.end) is None:
        return None
    if not question.rolled:
        return total_as_closed(question, begins, Measures(cost=None)).cost, {}
    sums = read_sums(question, begins, COST.amount, _MOST_KEYS)
    return sums.total.cost, {row.key: row.measures.rank(COST.amount) for row in sums.rows}


def _totals(
    question: Question,
    closed: tuple[int | None, dict[tuple[str, ...], int]] | None,
    order: Sequence[Any],
) -> dict[str, Any]:
    """Return what the legend shows of a range with a closed month: the report's cost, in all and of
    each series (none where reports do not know it)."""
    pricing = question.pricing
    if closed is None or pricing is None:
        return {}
    total, by_key = closed
    named = [key for key in order if key is not None]
    costs = {key: by_key.get(key if isinstance(key, tuple) else (key,)) for key in named}
    rest = (total or 0) - sum(cost or 0 for cost in costs.values())

    def amount(cost: int | None) -> float | None:
        money = pricing.money(cost)
        return None if money is None else float(money.amount)

    if not by_key:
        return {"total": amount(total), "totals": [None] * len(order)}
    return {
        "total": amount(total),
        "totals": [amount(rest if key is None else costs.get(key)) for key in order],
    }


def _is_by_job(question: Question) -> bool:
    return names_of(question.by) == ["job"]


def _chart_label(output: Output, question: Question) -> str:
    currency = question.pricing.currency if output is COST and question.pricing else ""
    return f"{output.label}, {currency}" if currency else output.label


def _add_costs(request: HttpRequest, filters: Filters, rows: Sequence[PodLifetime]) -> None:
    # Whole minutes: running pods would otherwise change the page with each poll.
    now = timezone.now().replace(second=0, microsecond=0)
    add_pod_costs(usage_scope_of(request.user), filters.form.cleaned_data, rows, now)


def _record_notes(_request: HttpRequest) -> dict[str, Any]:
    return list_notes(POD_WATCH, timezone.now())


lifetime_list = ListPage(
    title="Pods",
    noun="pod",
    columns=LIFETIME_COLUMNS,
    filters=LifetimeFilters,
    select=visible_lifetimes,
    empty="Pods with a usage annotation appear here when the prober has recorded them.",
    more=_record_notes,
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
fault_list = ListPage(
    title="Faults in the record",
    noun="fault",
    columns=FAULT_COLUMNS,
    filters=FaultFilters,
    select=faults,
    require=require_accountant,
    order=("last_at", "id"),
    empty="The prober recorded everything without errors.",
).view


def _named_apart(plain: Mapping[Any, str], zone: ZoneInfo, *, by_job: bool) -> dict[Any, str]:
    """Return the names to show: keys that share one get the namespace of their job, else also the
    time of its first pod, else a number."""
    labels = dict(plain)
    shared = _shared(labels)
    if by_job and shared:
        places = job_places(sorted(shared))
        for key in shared & places.keys():
            labels[key] = f"{places[key].namespace}/{plain[key]}"
        for key in _shared(labels) & places.keys():
            labels[key] += f"{places[key].created_at.astimezone(zone): %Y-%m-%d %H:%M:%S}"
    for number, key in enumerate(sorted(_shared(labels), key=str), start=1):
        labels[key] += f" ({number})"
    return labels


def _shared(labels: Mapping[Any, str]) -> set[Any]:
    """Return the keys whose names other keys have, too."""
    counted = Counter(labels.values())
    return {key for key, name in labels.items() if key is not None and counted[name] > 1}


def _shown_name(key: str | tuple[str, ...] | None) -> str:
    if key is None:
        return "Other"
    parts = (key,) if isinstance(key, str) else key
    return " · ".join(filter_text(part) for part in parts)
