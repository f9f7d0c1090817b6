"""glue: usage of any range in the API, as one sum or in steps, by any dimensions.

Also the rows behind the sums: pods, gaps and faults. The parameters of a range are declared once
for every path.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from django.utils import timezone
from django.utils.functional import cached_property
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param
from rest_framework.views import APIView

from ipuhub.api.auth import IsAccountant
from ipuhub.api.paging import refuse_cursor
from ipuhub.api.parsing import AnyAccept
from ipuhub.api.views import CSV, FORMS, JSON, FileList, form_of
from ipuhub.models import RecordFault, WatchGap
from ipuhub.web.access import usage_scope_of
from ipuhub.web.exports import export
from ipuhub.web.filters import BadFilter, Mistake
from ipuhub.web.pollcache import note_basis
from usage.api.serializers import (
    FaultSerializer,
    GapSerializer,
    LifetimeSerializer,
    SeriesSerializer,
    SummarySerializer,
)
from usage.models import PodLifetime
from usage.query import (
    given,
    names_of,
    read_output,
    read_question,
    read_total,
    single_value,
    with_prices,
)
from usage.retention.purged import mark_purged
from usage.selectors import add_pod_costs, faults, gaps, visible_lifetimes, with_job_names
from usage.sums.columns import (
    Cursor,
    measures_record,
    read_cursor,
    step_columns,
    step_rows,
    steps_with_total,
    sums_columns,
    write_cursor,
)
from usage.sums.measures import COST, DIMENSIONS, OUTPUTS
from usage.sums.queries import Place, all_sums, read_sums, series_begins, with_total
from usage.sums.series import read_series
from usage.sums.sql import STEP
from usage.tables import (
    FAULT_COLUMNS,
    GAP_COLUMNS,
    LIFETIME_COLUMNS,
    FaultFilters,
    GapFilters,
    LifetimeFilters,
)
from usage.time.months import usage_zone
from usage.time.ranges import NAMED
from usage.time.windows import STEPS, Window, WindowError
from usage.unchanged import sums_poll

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from ipuhub.web.access import Scope
    from usage.rates.pricing import Money, Pricing
    from usage.sums.measures import Measures
    from usage.sums.queries import Question, SumRow, Sums
    from usage.sums.series import SeriesPage

RANGE: Final = (
    OpenApiParameter("month", str, description="YYYY-MM; default: the current month."),
    OpenApiParameter(
        "window",
        str,
        description=f"Instead of month: {', '.join(NAMED)}, a length up to now (12h, 7d, 4w), or "
        "two instants with a comma between them.",
    ),
    OpenApiParameter(
        "from",
        str,
        description="Instead of month: the first day (of the report zone) or instant (RFC 3339).",
    ),
    OpenApiParameter("to", str, description="The last day, or an instant; default: now."),
)
CURSOR: Final = OpenApiParameter("cursor", str, description="Cursor of the page, from `next`.")


def _none_of(name: str) -> str:
    """Every pod has a namespace."""
    return "" if name == "namespace" else "; `(none)`: to what has none"


PAGE_ROWS, MOST_ROWS = 1000, 10_000
_ROWS = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": PAGE_ROWS}
PARAMETERS = [
    *RANGE,
    OpenApiParameter(
        "by",
        str,
        description=f"Any of {', '.join(DIMENSIONS)} and label:<key>, comma-separated.",
    ),
    *(
        OpenApiParameter(
            name,
            str,
            many=True,
            description=f"Restricts the result to this {each.label.lower()}{_none_of(name)}. "
            "Repeat it to select several.",
        )
        for name, each in DIMENSIONS.items()
    ),
    CURSOR,
    OpenApiParameter("page_size", _ROWS, description="Number of rows per page."),
]
_STEP = OpenApiParameter("step", str, enum=list(STEPS), description="Default: day.")
_ORDER = OpenApiParameter(
    "measure",
    str,
    enum=[*OUTPUTS, COST.name],
    description="Measure to sort by, largest first; default: ipu_hours. Cost needs the role "
    "accountant or administrator.",
)
TOTAL = OpenApiParameter(
    "total",
    str,
    enum=["yes", "no"],
    default="yes",
    description="`no` leaves out the line of totals. It is the last line of the CSV: its first "
    "column is `total`, and its sums are exact and rounded once.",
)


class SummaryView(APIView):
    """Usage of a range, in all and by any dimensions."""

    content_negotiation_class = AnyAccept
    formats = FORMS

    @extend_schema(
        operation_id="usage_summary",
        summary="Usage of a month or any range",
        tags=["usage"],
        parameters=[*PARAMETERS, _ORDER, TOTAL],
        responses=SummarySerializer,
    )
    def get(self, request: Request, **_form: str) -> HttpResponseBase:
        """Return the sums, largest first. Raises BadFilter and PermissionDenied."""
        form, params = form_of(request), given(request.query_params)
        question = _question(request, "measure", "total", "cursor", "page_size")
        has_total = read_total(params)
        order, size = read_output(params, question).amount, _size(single_value(params, "page_size"))
        by = names_of(question.by)
        if form != JSON:
            refuse_cursor(single_value(params, "cursor"))
            question, begins = with_prices(question), [question.window.begin]
            rows = with_job_names(by, all_sums(question, begins, order))
            if form == CSV and has_total:
                rows = with_total(question, begins, rows)
            return export(form, sums_columns(by, question.pricing), rows, "usage")
        question, after = _later(question, single_value(params, "cursor"))
        begins = [question.window.begin]
        poll = sums_poll(request._request, question, timezone.now())  # noqa: SLF001  # DRF hides it
        if same := poll.known():
            return same
        question = with_prices(question)
        sums = read_sums(question, begins, order, size + 1, after)
        poll.keep(are_summed=sums.is_summed)
        total = {"key": {}, **measures_record(sums.total, _money(question, sums.total))}
        results = [_record(by, row, _money(question, row.measures)) for row in sums.rows[:size]]
        listed = {"next": _next(request, question, sums, size, order), "count": sums.count}
        return Response({**_range_record(question), **listed, "total": total, "results": results})


class SeriesView(APIView):
    """Usage of a range, step by step."""

    content_negotiation_class = AnyAccept
    formats = FORMS

    @extend_schema(
        operation_id="usage_series",
        summary="Usage by hour, day, week or month",
        tags=["usage"],
        parameters=[*PARAMETERS, _STEP, TOTAL],
        responses=SeriesSerializer,
    )
    def get(self, request: Request, **_form: str) -> HttpResponseBase:
        """Return the steps in order. Raises BadFilter and PermissionDenied."""
        form, params = form_of(request), given(request.query_params)
        question = _question(request, "step", "total", "cursor", "page_size")
        has_total = read_total(params)
        step = single_value(params, "step") or "day"
        try:
            begins = series_begins(question, step)
        except WindowError as error:
            raise BadFilter(Mistake(error.parameter, error.sentence)) from error
        by, end = names_of(question.by), question.window.end
        size = _size(single_value(params, "page_size"))
        if form != JSON:
            refuse_cursor(single_value(params, "cursor"))
            question = with_prices(question)
            rows = step_rows(with_job_names(by, all_sums(question, begins, STEP)), begins, end)
            if form == CSV and has_total:
                rows = steps_with_total(question, begins, rows)
            return export(form, step_columns(by, question.pricing), rows, "usage-series")
        question, after = _later(question, single_value(params, "cursor"))
        poll = sums_poll(request._request, question, timezone.now())  # noqa: SLF001
        if same := poll.known():
            return same
        question = with_prices(question)
        sums = read_series(question, begins, size + 1, after)
        poll.keep(are_summed=sums.is_summed)
        page_rows = sums.rows[:size]
        results = [
            _record(by, row, _money(question, row.measures))
            | {"begin": each.begin, "end": each.end}
            for row, each in zip(page_rows, step_rows(page_rows, begins, end), strict=True)
        ]
        listed = {"next": _next(request, question, sums, size, STEP), "count": sums.count}
        return Response({**_range_record(question), "step": step, **listed, "results": results})


def _question(request: Request, *also: str) -> Question:
    params = given(request.query_params)
    return read_question(params, request.user, timezone.now(), usage_zone(), *also)


def _later(question: Question, text: str) -> tuple[Question, Place | None]:
    """Return the question for a further page, which counts up to the same instant as the first
    page."""
    if not text:
        return question, None
    window = question.window
    cursor = read_cursor(text, len(question.by), window.until)
    then = Window.of(window.begin, window.end, cursor.until)
    return dataclasses.replace(question, window=then), cursor.place


def _next(
    request: Request, question: Question, sums: Sums | SeriesPage, size: int, order: str
) -> str | None:
    if len(sums.rows) <= size:
        return None
    last = sums.rows[size - 1]
    rank = last.step if order == STEP else last.measures.rank(order)
    text = write_cursor(Cursor(question.window.until, Place(rank, last.key)))
    return replace_query_param(request.build_absolute_uri(), "cursor", text)


def _size(text: str) -> int:
    if not text:
        return PAGE_ROWS
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MOST_ROWS):
        raise BadFilter(Mistake("page_size", f"must be a whole number from 1 to {MOST_ROWS}."))
    return int(text)


def _range_record(question: Question) -> dict[str, Any]:
    window = question.window
    by = names_of(question.by)
    times = {"begin": window.begin, "end": window.end, "until": window.until}
    return {**times, "by": by, "pricing": _pricing_record(question.pricing)}


def _pricing_record(pricing: Pricing | None) -> dict[str, Any] | None:
    if pricing is None:
        return None
    return {
        "currencies": pricing.currencies,
        "lost_before": pricing.lost_before,
        "unpriced": [{"begin": begin, "end": end} for begin, end in pricing.unpriced],
    }


def _money(question: Question, measures: Measures) -> Money | None:
    return question.pricing.money(measures.cost) if question.pricing else None


def _record(by: list[str], row: SumRow, money: Money | None) -> dict[str, Any]:
    return {"key": dict(zip(by, row.key, strict=True)), **measures_record(row.measures, money)}


@extend_schema_view(
    get=extend_schema(
        operation_id="usage_lifetimes",
        summary="Pods, newest first",
        tags=["usage"],
    )
)
class LifetimeList(FileList[PodLifetime]):
    """The pods behind the sums."""

    queryset = PodLifetime.objects.none()
    serializer_class = LifetimeSerializer
    filterset_class = LifetimeFilters
    columns = LIFETIME_COLUMNS
    file_name = "pods"
    is_of_rows = True

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Return a page, or the whole file. A header says if rows were purged."""
        answer = super().list(request, *args, **kwargs)
        mark_purged(answer)
        return answer

    @cached_property
    def scope(self) -> Scope:
        """Return the scope of what the caller may see."""
        return usage_scope_of(self.request.user)

    def get_queryset(self) -> QuerySet[PodLifetime]:
        """Return the pods of the caller's namespaces."""
        return visible_lifetimes(self.scope)

    def prepare(self, rows: Sequence[PodLifetime]) -> None:
        """Add what they cost."""
        filters = LifetimeFilters(self.request.query_params, queryset=self.queryset)
        filters.form.is_valid()
        now = timezone.now()
        add_pod_costs(self.scope, filters.form.cleaned_data, rows, now)
        if any(row.finished_at is None or row.finished_at > now for row in rows):
            note_basis(self.request._request, None)  # noqa: SLF001  # it costs more each second


@extend_schema_view(
    get=extend_schema(
        operation_id="usage_faults",
        summary="Faults, newest first",
        tags=["usage"],
    )
)
class FaultList(FileList[RecordFault]):
    """Objects that could not be recorded exactly as they were; administrators only."""

    queryset = RecordFault.objects.none()
    serializer_class = FaultSerializer
    filterset_class = FaultFilters
    permission_classes = (IsAccountant,)
    ordering = ("last_at", "id")
    columns = FAULT_COLUMNS
    file_name = "faults"

    def get_queryset(self) -> QuerySet[RecordFault]:
        """Return all of them."""
        return faults(usage_scope_of(self.request.user))


@extend_schema_view(
    get=extend_schema(
        operation_id="usage_gaps",
        summary="Gaps, newest first",
        tags=["usage"],
    )
)
class GapList(FileList[WatchGap]):
    """Times in which a watch saw nothing, so that the record may be incomplete."""

    queryset = WatchGap.objects.none()
    serializer_class = GapSerializer
    filterset_class = GapFilters
    ordering = ("began_at", "id")
    columns = GAP_COLUMNS
    file_name = "gaps"

    def get_queryset(self) -> QuerySet[WatchGap]:
        """Return all of them."""
        return gaps(usage_scope_of(self.request.user))
