"""glue: partitions in the usage API: IPU-hours of each in a range, and how much of it idle. Also
the list of partitions, page and API, with cost and a note about purged partitions.

A composition root: joins partitions, the pods that ran on them, the rates of usage and its
retention.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

import django_filters
from django.db.models import Q
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView

from ipuhub.api.paging import page_size, refuse_cursor
from ipuhub.api.parsing import AnyAccept
from ipuhub.api.views import FORMS, JSON, form_of
from ipuhub.text import Figure
from ipuhub.web.access import may_see_cost, sees_cost, usage_scope_of
from ipuhub.web.columns import SAME, SUM, Column
from ipuhub.web.exports import export
from ipuhub.web.filters import BadFilter, Filters, Mistake, YesNoFilter, apply_filters
from ipuhub.web.pollcache import known_by_rows
from partitions.api import PartitionList, PartitionSerializer
from partitions.models import PartitionLifetime
from partitions.selectors import visible_partitions
from partitions.views import PARTITIONS, WATCH
from usage.api.serializers import COST_FIELDS, LineCostSerializer
from usage.api.sums import RANGE
from usage.query import given, read_range, read_total, single_value
from usage.rates.linecosts import EVER, read_line_costs
from usage.rates.linecosts import PARTITIONS as PARTITION_LINES
from usage.rates.pricing import cost_record
from usage.retention.purged import list_notes, mark_day, mark_purged, rows_and_purged
from usage.sums.measures import hours
from usage.tables import COST, COST_EXPORTS
from usage.time.months import usage_zone
from usage.time.windows import WindowError, clip
from usage.utilization.selectors import partition_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from ipuhub.web.access import Caller
    from usage.rates.pricing import LineCost
    from usage.time.windows import Window

_RANGE = ("month", "from", "to", "window")
_AT_ONCE = 500
_FACTS = (
    "key",
    "partition",
    "controller",
    "namespace",
    "group",
    "user",
    "user_verified",
    "job_uid",
    "job_name",
    "instance",
    "attempt",
    "size",
    "phase",
    "reserved_at",
    "active_at",
    "released_at",
    "estimated",
    "uncertainty_seconds",
)
_HOURS = ("partition_ipu_hours", "held_idle_ipu_hours")
_SUMS = ("partition_ipu_seconds", "held_idle_ipu_seconds", "pod_micro_ipu_seconds")


class PartitionUsageFilters(Filters):
    """Exact values; `held`: not released yet."""

    of_usage = True

    namespace = django_filters.CharFilter(label="Namespace")
    group = django_filters.CharFilter(label="Group")
    user = django_filters.CharFilter(label="User")
    controller = django_filters.CharFilter(label="Controller")
    job = django_filters.CharFilter(field_name="job_uid", label="Job UID")
    job_name = django_filters.CharFilter(label="Job name")
    held = YesNoFilter(field_name="released_at", lookup_expr="isnull", label="Held")
    estimated = YesNoFilter(label="Estimated end")

    class Meta:
        model = PartitionLifetime
        fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldPart:
    """The amount that a partition held in a range, in IPU-seconds; `pod_micro` in
    micro-IPU-seconds."""

    lifetime: PartitionLifetime
    start: datetime
    stop: datetime
    held: int
    idle: int
    pod_micro: int
    cost: LineCost | None

    def record(self) -> dict[str, Any]:
        """Return it as the API prints it."""
        facts = {name: getattr(self.lifetime, name) for name in _FACTS}
        return facts | {
            "start": self.start,
            "stop": self.stop,
            "partition_ipu_hours": Figure(hours(self.held)),
            "held_idle_ipu_hours": Figure(hours(self.idle)),
            **dict(zip(_SUMS, (self.held, self.idle, self.pod_micro), strict=True)),
            **cost_record(self.cost),
        }


class PartitionUsageSerializer(LineCostSerializer, serializers.ModelSerializer[PartitionLifetime]):
    """One allocation of a partition, from reserved to released (null: still held). `start` and
    `stop`: its part of the range; held idle: time in which no pod of the job used it."""

    start = serializers.DateTimeField()
    stop = serializers.DateTimeField()
    partition_ipu_hours = serializers.CharField()
    held_idle_ipu_hours = serializers.CharField()
    partition_ipu_seconds = serializers.IntegerField()
    held_idle_ipu_seconds = serializers.IntegerField()
    pod_micro_ipu_seconds = serializers.IntegerField()

    class Meta:
        model = PartitionLifetime
        fields = (
            *_FACTS,
            "start",
            "stop",
            *_HOURS,
            *_SUMS,
            *COST_FIELDS,
        )


def _currency(row: dict[str, Any]) -> object:
    return row["currency"]


def _column(name: str) -> Column:
    """Return the column of a field of the records."""
    column = Column(name, "", itemgetter(name))
    if name in COST_FIELDS:
        total = SAME if name == "currency" else SUM
        return dataclasses.replace(column, total=total, unit=_currency)
    return dataclasses.replace(column, total=SUM) if name in (*_HOURS, *_SUMS) else column


USAGE_COLUMNS: Final = tuple(map(_column, PartitionUsageSerializer.Meta.fields))


class PartitionUsage(ListAPIView[PartitionLifetime]):
    """Partitions held in a range, newest reservation first; `format=csv`: all in one file."""

    queryset = PartitionLifetime.objects.none()
    serializer_class = PartitionUsageSerializer
    filterset_class = PartitionUsageFilters
    ordering = ("reserved_at", "id")
    content_negotiation_class = AnyAccept
    formats = FORMS
    columns = USAGE_COLUMNS

    @extend_schema(
        operation_id="usage_partitions",
        summary="Partitions held in a range, with the time in which no pod used them",
        tags=["usage"],
        parameters=list(RANGE),
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Return a page, or the whole file. Raises BadFilter and PermissionDenied."""
        return self.list(request, *args, **kwargs)

    def list(self, request: Request, *_args: Any, **_kwargs: Any) -> Any:
        """Return a page, or the whole file. A header says if rows were purged."""
        params = given(request.query_params)
        kind, has_total = form_of(request), read_total(params)
        window = _window({name: params[name] for name in _RANGE if name in params})
        scope = usage_scope_of(request.user)
        costed = sees_cost(scope)
        own: HttpRequest = request._request  # noqa: SLF001  # DRF hides Django's
        # Up to now, the window is another each second.
        snapshot, purged = rows_and_purged()
        same = known_by_rows(own, window.until, snapshot, scope, window) if kind == JSON else None
        if same is not None:
            mark_day(same, purged)
            return same
        rest = {name: single_value(params, name) for name in params if name not in _RANGE}
        rows = apply_filters(
            PartitionUsageFilters,
            rest,
            visible_partitions(scope),
            request.user,
        )
        rows = _overlapping(rows, window)
        if kind != JSON:
            page_size(single_value(params, "page_size"))
            refuse_cursor(single_value(params, "cursor"))
            ordered = rows.order_by("-reserved_at", "-id").iterator(chunk_size=2000)
            records = _records(ordered, window, costed=costed)
            answer: HttpResponseBase = export(
                kind, self.columns, records, "partitions", has_total=has_total
            )
        else:
            page = self.paginate_queryset(rows) or []
            answer = self.get_paginated_response(
                [part.record() for part in held_parts(page, window, costed=costed)]
            )
        mark_day(answer, purged)
        return answer


def held_parts(
    rows: Sequence[PartitionLifetime], window: Window, *, costed: bool
) -> Iterator[HeldPart]:
    """Yield what each of `rows` held in the window so far, in their order, in one query; where
    `costed`, which takes three more, with what that cost."""
    runs = partition_runs([row.pk for row in rows], window.begin, window.until)
    costs: dict[int, LineCost] = {}
    if costed:
        costs = read_line_costs(PARTITION_LINES, rows, window.begin, window.until, usage_zone())
    for row in rows:
        piece = clip(row.reserved_at, row.released_at, window.begin, window.until)
        if piece is None:
            continue
        held = piece.seconds * row.size
        busy, micro = runs.get(row.pk, (0, 0))
        yield HeldPart(row, piece.start, piece.end, held, held - busy, micro, costs.get(row.pk))


def _window(params: dict[str, list[str]]) -> Window:
    try:
        return read_range(params, timezone.now(), usage_zone())
    except WindowError as error:
        raise BadFilter(Mistake(error.parameter, error.sentence)) from error


def _overlapping(rows: QuerySet[PartitionLifetime], window: Window) -> QuerySet[PartitionLifetime]:
    going_on = Q(released_at=None) | Q(released_at__gt=window.begin)
    begins_here = Q(reserved_at__gte=window.begin)
    return rows.filter(going_on | begins_here, reserved_at__lt=window.until)


def _records(
    rows: Iterable[PartitionLifetime], window: Window, *, costed: bool
) -> Iterator[dict[str, Any]]:
    waiting = iter(rows)
    while chunk := list(islice(waiting, _AT_ONCE)):
        for part in held_parts(chunk, window, costed=costed):
            yield part.record()


def _notes(_request: HttpRequest) -> dict[str, Any]:
    return list_notes(WATCH, timezone.now())


def _add_costs(user: Caller, rows: Sequence[Any]) -> None:
    """Set `cost` of rows, for their whole duration, if the user may see it."""
    if not may_see_cost(user):
        return
    now = timezone.now().replace(second=0, microsecond=0)
    costs = read_line_costs(PARTITION_LINES, rows, EVER, now, usage_zone())
    for row in rows:
        row.cost = costs.get(row.pk)


def _prepare(request: HttpRequest, _filters: Filters, rows: Sequence[Any]) -> None:
    _add_costs(request.user, rows)


_COLUMNS: Final = (*PARTITIONS.columns, COST, *COST_EXPORTS)
partition_list = dataclasses.replace(
    PARTITIONS, columns=_COLUMNS, more=_notes, prepare=_prepare
).view


class ListedPartitionSerializer(LineCostSerializer, PartitionSerializer):
    """One allocation of a partition to a job, from reserved to released (null: still held), and its
    cost up to now."""

    class Meta(PartitionSerializer.Meta):
        fields: ClassVar = [*PartitionSerializer.Meta.fields, *COST_FIELDS]


class AllPartitions(PartitionList):
    """Current and past partitions of jobs, newest reservation first."""

    serializer_class = ListedPartitionSerializer
    columns = _COLUMNS

    def prepare(self, rows: Sequence[PartitionLifetime]) -> None:
        """Add what they cost."""
        _add_costs(self.request.user, rows)

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Return a page; older rows that were purged are said in a header."""
        answer = super().list(request, *args, **kwargs)
        mark_purged(answer)
        return answer
