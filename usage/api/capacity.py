"""glue: utilization of each V-IPU controller in the API, for any range, in steps; and by hour of
the week."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param
from rest_framework.views import APIView

from ipuhub.api.auth import IsAdmin, IsSignedIn
from ipuhub.api.paging import page_size, refuse_cursor
from ipuhub.api.parsing import AnyAccept
from ipuhub.api.views import CSV, FORMS, JSON, form_of
from ipuhub.web.exports import export
from ipuhub.web.filters import TOTAL as TOTAL_NAME
from ipuhub.web.filters import refuse_unknown
from ipuhub.web.keyset import as_cursor, values_of
from usage.api.sums import CURSOR, RANGE, TOTAL
from usage.query import given, read_total, single_value
from usage.time.months import usage_zone
from usage.time.windows import STEPS
from usage.unchanged import capacity_poll
from usage.utilization.answers import (
    OUTPUTS,
    WHOLE,
    CapacityQuestion,
    amounts_record,
    answer_capacity,
    capacity_columns,
    exact_name,
    week_columns,
)
from usage.utilization.selectors import Excerpt
from usage.utilization.weekhours import DAYS, hour_rows

if TYPE_CHECKING:
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from usage.utilization.answers import CapacityAnswer, CapacityRow

_CONTROLLER = OpenApiParameter(
    "controller", str, description="Restricts the result to this V-IPU controller."
)
_PARAMETERS = [
    *RANGE,
    OpenApiParameter("step", str, enum=[*STEPS, WHOLE], description="Default: day."),
    OpenApiParameter("by", str, enum=["controller", "total"], description="Default: controller."),
    _CONTROLLER,
    CURSOR,
    TOTAL,
    OpenApiParameter("page_size", int, description="Number of rows per page; default: 100."),
]


class _Amounts(serializers.Serializer[Any]):
    """capacity = reserved + idle + down + unknown, in hours and as exact whole numbers."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Name the sums."""
        found: dict[str, serializers.Field[Any, Any, Any, Any]] = {
            f"{o.name}_ipu_hours": serializers.CharField() for o in OUTPUTS
        }
        return found | {"exact": UtilizationExactSerializer()}


class UtilizationExactSerializer(serializers.Serializer[Any]):
    """The sums as whole numbers."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Name the sums."""
        return {exact_name(o): serializers.IntegerField() for o in OUTPUTS}


class UtilizationAmountsSerializer(_Amounts):
    """State of the IPUs: capacity = reserved + idle + down + unknown. `by_others` (partitions that
    belong to no job) and `held_idle` (no pod of the job used the IPUs) are parts of reserved;
    `pod`: IPU-hours allocated to pods."""


class UtilizationStepSerializer(_Amounts):
    """One V-IPU controller (empty: all) in one step."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Name them."""
        head: dict[str, serializers.Field[Any, Any, Any, Any]] = {
            "begin": serializers.DateTimeField(),
            "end": serializers.DateTimeField(),
            "controller": serializers.CharField(),
        }
        return head | super().get_fields()


class UtilizationSerializer(serializers.Serializer[Any]):
    """Utilization of a range. `known_until`: last poll of the controllers, null: never;
    `silent_seconds`: time without polls; `total`: sum of the whole range."""

    begin = serializers.DateTimeField()
    end = serializers.DateTimeField()
    until = serializers.DateTimeField()
    step = serializers.CharField()
    known_until = serializers.DateTimeField(allow_null=True)
    silent_seconds = serializers.IntegerField()
    total = UtilizationAmountsSerializer()
    next = serializers.URLField(allow_null=True)
    results = UtilizationStepSerializer(many=True)


class CapacityView(APIView):
    """The use of the IPUs of each V-IPU controller."""

    permission_classes = (IsSignedIn, IsAdmin)
    content_negotiation_class = AnyAccept
    formats = FORMS

    @extend_schema(
        operation_id="usage_capacity",
        summary="Utilization: capacity, reserved, held idle, idle, down, unknown",
        tags=["usage"],
        parameters=_PARAMETERS,
        responses=UtilizationSerializer,
    )
    def get(self, request: Request, **_form: str) -> HttpResponseBase:
        """The steps in order; administrators only. Raises BadFilter."""
        params = given(request.query_params)
        kind, has_total = form_of(request), read_total(params)
        now, more = timezone.now(), ("total", "cursor", "page_size")
        question = CapacityQuestion.of(params, now, usage_zone(), *more)
        size = page_size(single_value(params, "page_size") or None)
        cursor = single_value(params, "cursor")
        if kind != JSON:
            refuse_cursor(cursor)
            answer = answer_capacity(question)
            lines = answer.lines(has_total=has_total and kind == CSV)
            return export(kind, capacity_columns(), lines, "utilization")
        after = _read_cursor(cursor)
        begin = datetime.fromtimestamp(int(after[:12]), UTC) if after else None
        # A step has a row or more, but for the step of the cursor.
        excerpt = Excerpt(begin, size + 2)
        poll = capacity_poll(request._request, question.window, now)  # noqa: SLF001  # DRF hides it
        if same := poll.known():
            return same
        answer = answer_capacity(question, excerpt=excerpt)
        poll.keep(are_summed=answer.record.is_summed)
        rows = [row for row in answer.rows if _position(row) > after]
        following = None
        if len(rows) > size:
            address = request.build_absolute_uri()
            following = replace_query_param(address, "cursor", _cursor(rows[size - 1]))
        return Response(
            {
                **_range_record(answer),
                "step": answer.step,
                "silent_seconds": answer.record.silent_seconds,
                "next": following,
                "results": [
                    {"begin": row.begin, "end": row.end, "controller": row.controller}
                    | amounts_record(row.amounts)
                    for row in rows[:size]
                ],
            }
        )


class WeekHourSerializer(_Amounts):
    """An hour of the week, by the clocks of `zone`. `reserved_percent`: the share of the capacity
    that partitions held; null: nothing is known."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Name them."""
        head: dict[str, serializers.Field[Any, Any, Any, Any]] = {
            "weekday": serializers.ChoiceField(choices=DAYS),
            "hour": serializers.IntegerField(),
            "reserved_percent": serializers.CharField(allow_null=True),
        }
        return head | super().get_fields()


class WeekSerializer(serializers.Serializer[Any]):
    """The 168 hours of the week from Monday 00:00 on, each summed over the range, and `total`, the
    sum of the range. `known_until`: last poll of the controllers, null: never."""

    begin = serializers.DateTimeField()
    end = serializers.DateTimeField()
    until = serializers.DateTimeField()
    zone = serializers.CharField()
    known_until = serializers.DateTimeField(allow_null=True)
    total = UtilizationAmountsSerializer()
    results = WeekHourSerializer(many=True)


class WeekView(APIView):
    """The use of the IPUs by hour of the week: the heat map."""

    permission_classes = (IsSignedIn, IsAdmin)
    content_negotiation_class = AnyAccept
    formats = FORMS

    @extend_schema(
        operation_id="usage_capacity_week",
        summary="Utilization by hour of the week",
        tags=["usage"],
        parameters=[*RANGE, _CONTROLLER, TOTAL],
        responses=WeekSerializer,
    )
    def get(self, request: Request, **_form: str) -> HttpResponseBase:
        """The hours of the week; administrators only. Raises BadFilter."""
        params, zone = given(request.query_params), usage_zone()
        refuse_unknown(params, {each.name for each in (*RANGE, _CONTROLLER, TOTAL)} | {"format"})
        kind, has_total = form_of(request), read_total(params)
        question = CapacityQuestion.of(params, timezone.now(), zone, TOTAL_NAME)
        answer = answer_capacity(question, with_week=True)
        if kind != JSON:
            lines = hour_rows(answer.record.week, has_total=has_total and kind == CSV)
            return export(kind, week_columns(), lines, "utilization-week")
        return Response(
            {
                **_range_record(answer),
                "zone": zone.key,
                "results": [
                    {
                        "weekday": row.weekday,
                        "hour": row.hour,
                        "reserved_percent": row.reserved_percent,
                    }
                    | amounts_record(row.amounts)
                    for row in hour_rows(answer.record.week, has_total=False)
                ],
            }
        )


def _range_record(answer: CapacityAnswer) -> dict[str, Any]:
    window = answer.window
    return {
        "begin": window.begin,
        "end": window.end,
        "until": window.until,
        "known_until": answer.record.known_until,
        "total": amounts_record(answer.total),
    }


def _position(row: CapacityRow) -> str:
    return f"{int(row.begin.timestamp()):012} {row.controller}"


def _cursor(row: CapacityRow) -> str:
    return as_cursor([_position(row)])


def _read_cursor(cursor: str) -> str:
    """Return the position of the last row of the page before; empty: none."""
    if not cursor:
        return ""
    try:
        (position,) = values_of(cursor)
        if not isinstance(position, str):
            raise TypeError(cursor)
        datetime.fromtimestamp(int(position[:12]), UTC)
    except (ValueError, TypeError, RecursionError, OverflowError, OSError):
        reason = "not a cursor of this list. Start again without it."
        raise ValidationError({"cursor": [reason]}) from None
    return position
