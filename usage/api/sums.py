"""glue: usage of any range in the API: in one sum or in steps, by any dimensions."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param
from rest_framework.views import APIView

from ipuhub.api.forms import CSV, FORMS, JSON, form_of
from ipuhub.api.negotiation import AnyAccept
from ipuhub.api.paging import refuse_cursor
from ipuhub.web.exports import export
from ipuhub.web.filters import BadFilter
from usage.api.parameters import CURSOR, RANGE
from usage.api.serializers import SeriesSerializer, SummarySerializer
from usage.query import given, names_of, one, read_output, read_question, read_total
from usage.sums.columns import measures_record, step_columns, step_rows, sums_columns
from usage.sums.cursors import Cursor, read_cursor, write_cursor
from usage.sums.dimensions import DIMENSIONS
from usage.sums.measures import COST, OUTPUTS
from usage.sums.queries import Place, all_sums, read_sums, series_begins, with_total
from usage.sums.sumsql import STEP
from usage.time.windows import STEPS, Window, WindowError
from usage.time.zones import usage_zone

if TYPE_CHECKING:
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from usage.rates.money import Money
    from usage.rates.pricing import Pricing
    from usage.sums.measures import Measures
    from usage.sums.queries import Question, SumRow, Sums

PAGE_ROWS, MOST_ROWS = 1000, 10_000
_ROWS = {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": PAGE_ROWS}
PARAMETERS = [
    *RANGE,
    OpenApiParameter(
        "by",
        str,
        description=f"Any of {', '.join(DIMENSIONS)} and label:<key>, with commas between them.",
    ),
    *(
        OpenApiParameter(
            name, str, many=True, description=f"Only this {each.label.lower()}; repeated: any."
        )
        for name, each in DIMENSIONS.items()
    ),
    CURSOR,
    OpenApiParameter("page_size", _ROWS, description="Rows of a page."),
]
_STEP = OpenApiParameter("step", str, enum=list(STEPS), description="day by default.")
_ORDER = OpenApiParameter(
    "measure",
    str,
    enum=[*OUTPUTS, COST.name],
    description="Most of it first; ipu_hours by default. Cost: accountants and administrators.",
)


_TOTAL = OpenApiParameter(
    "total",
    str,
    enum=["yes", "no"],
    default="yes",
    description="`no` leaves out the last line of a CSV, the total of all: its first column is "
    "`total`, its sums are exact and rounded once.",
)


class SummaryView(APIView):
    """Usage of a range, in all and by any dimensions."""

    content_negotiation_class = AnyAccept
    formats = FORMS

    @extend_schema(
        operation_id="usage_summary",
        summary="Usage of a month or any range",
        tags=["usage"],
        parameters=[*PARAMETERS, _ORDER, _TOTAL],
        responses=SummarySerializer,
    )
    def get(self, request: Request, **_form: str) -> HttpResponseBase:
        """Return the sums, largest first. Raises BadFilter and PermissionDenied."""
        form, params = form_of(request), given(request.query_params)
        question = _question(request, "measure", "total", "cursor", "page_size")
        has_total = read_total(params)
        order, size = read_output(params, question).amount, _size(one(params, "page_size"))
        by = names_of(question.by)
        if form != JSON:
            refuse_cursor(one(params, "cursor"))
            begins = [question.window.begin]
            rows = all_sums(question, begins, order)
            if form == CSV and has_total:
                rows = with_total(question, begins, rows)
            return export(form, sums_columns(by, question.pricing), rows, "usage")
        question, after = _later(question, one(params, "cursor"))
        sums = read_sums(question, [question.window.begin], order, size + 1, after)
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
        parameters=[*PARAMETERS, _STEP],
        responses=SeriesSerializer,
    )
    def get(self, request: Request, **_form: str) -> HttpResponseBase:
        """Return the steps in order. Raises BadFilter and PermissionDenied."""
        form, params = form_of(request), given(request.query_params)
        question = _question(request, "step", "cursor", "page_size")
        step = one(params, "step") or "day"
        try:
            begins = series_begins(question, step)
        except WindowError as error:
            raise BadFilter([str(error)]) from error
        by, end = names_of(question.by), question.window.end
        size = _size(one(params, "page_size"))
        if form != JSON:
            refuse_cursor(one(params, "cursor"))
            rows = step_rows(all_sums(question, begins, STEP), begins, end)
            columns = step_columns(by, question.pricing)
            return export("csv" if form == CSV else form, columns, rows, "usage-series")
        question, after = _later(question, one(params, "cursor"))
        sums = read_sums(question, begins, STEP, size + 1, after)
        shown = sums.rows[:size]
        results = [
            _record(by, row, _money(question, row.measures))
            | {"begin": each.begin, "end": each.end}
            for row, each in zip(shown, step_rows(shown, begins, end), strict=True)
        ]
        listed = {"next": _next(request, question, sums, size, STEP), "count": sums.count}
        return Response({**_range_record(question), "step": step, **listed, "results": results})


def _question(request: Request, *also: str) -> Question:
    params = given(request.query_params)
    return read_question(params, request.user, timezone.now(), usage_zone(), *also)


def _later(question: Question, text: str) -> tuple[Question, Place | None]:
    """Return the question of a further page, which counts up to when the first one did."""
    if not text:
        return question, None
    window = question.window
    cursor = read_cursor(text, len(question.by), window.until)
    then = Window.of(window.begin, window.end, cursor.until)
    return dataclasses.replace(question, window=then), cursor.place


def _next(request: Request, question: Question, sums: Sums, size: int, order: str) -> str | None:
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
        raise BadFilter([f"page_size: must be a whole number from 1 to {MOST_ROWS}."])
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
