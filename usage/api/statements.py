"""glue: statements in the API: the usage of each group in a month, as the pages have it."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from ipuhub.api.auth import IsSignedIn
from ipuhub.api.parsing import AnyAccept
from ipuhub.api.scopes import REPORTS
from ipuhub.api.views import FORMS, JSON, PlainView, form_of
from ipuhub.text import Figure
from ipuhub.web.access import require_statements
from ipuhub.web.columns import Column
from ipuhub.web.exports import export
from ipuhub.web.filters import filter_value
from usage.api.reports import MONTH
from usage.query import given, single_value
from usage.reports.statement import BY, GROUP, HOURS, read_groups, read_statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from usage.reports.statement import Jobs, Statement

_SUMS: Final = (*(each.name for each in HOURS), "pods", "lifetimes", "estimated_percent")
_MONEY: Final = ("cost", "currency")
GROUP_COLUMNS: Final = tuple(
    Column(name, "", itemgetter(name), kind="export") for name in (*GROUP, *_SUMS, *_MONEY)
)


class StatementSumsSerializer(serializers.Serializer[Any]):
    """Sums of rows of a report. Partition hours include the hours of their pods; idle: held by a
    partition, unused by pods. `estimated_percent`: share of lifetimes with an estimated end."""

    ipu_hours = serializers.CharField()
    partition_ipu_hours = serializers.CharField()
    idle_ipu_hours = serializers.CharField()
    pods = serializers.IntegerField()
    lifetimes = serializers.IntegerField()
    estimated_percent = serializers.CharField(help_text="Empty: there are no lifetimes.")
    cost = serializers.CharField(allow_null=True, help_text="Null: nothing had a price.")
    currency = serializers.CharField(allow_null=True)


class GroupSumsSerializer(StatementSumsSerializer):
    """The sums of a group; empty: of usage without a group."""

    group = serializers.CharField()


class UserSumsSerializer(StatementSumsSerializer):
    """The sums of a user in a namespace."""

    user = serializers.CharField()
    namespace = serializers.CharField()


class ComponentSumsSerializer(StatementSumsSerializer):
    """The sums of a component and instance type."""

    component = serializers.CharField()
    instance_type = serializers.CharField()


class StatementJobSerializer(serializers.Serializer[Any]):
    """A job of the group, as the records have it now."""

    uid = serializers.CharField()
    name = serializers.CharField()
    user = serializers.CharField()
    pods = serializers.IntegerField()
    ipu_hours = serializers.CharField()
    partition_ipu_hours = serializers.CharField()


class StatementReportSerializer(serializers.Serializer[Any]):
    """The report of a month [first, end), and the numbers of its corrections, which the sums
    include. `namespaces`: the namespaces that the sums cover; empty: all."""

    month = serializers.CharField()
    version = serializers.IntegerField()
    state = serializers.CharField()
    zone = serializers.CharField()
    first = serializers.DateTimeField()
    end = serializers.DateTimeField()
    generated_at = serializers.DateTimeField()
    corrections = serializers.ListField(child=serializers.IntegerField())
    namespaces = serializers.ListField(child=serializers.CharField())


class GroupsSerializer(serializers.Serializer[Any]):
    """The usage of each group in a month."""

    report = StatementReportSerializer()
    total = StatementSumsSerializer()
    results = GroupSumsSerializer(many=True)


class StatementSerializer(serializers.Serializer[Any]):
    """The usage of a group in a month, by user and by component. `jobs`: the jobs with the most
    IPU-hours of pods, `hidden_jobs`: the number of others, `jobs_refused`: why none is listed."""

    report = StatementReportSerializer()
    group = serializers.CharField()
    total = StatementSumsSerializer()
    users = UserSumsSerializer(many=True)
    components = ComponentSumsSerializer(many=True)
    jobs = StatementJobSerializer(many=True)
    hidden_jobs = serializers.IntegerField()
    jobs_refused = serializers.CharField()


class _StatementView(PlainView):
    """Base of the statements, which accountants of some namespaces may read, too."""

    permission_classes = (IsSignedIn,)
    token_scope = REPORTS


class GroupsView(_StatementView):
    """The groups of a month's report."""

    content_negotiation_class = AnyAccept
    formats = FORMS
    parameters = frozenset({"format"})
    columns = GROUP_COLUMNS

    @extend_schema(
        operation_id="usage_report_groups",
        summary="What each group used in a month",
        tags=["usage"],
        parameters=[MONTH],
        responses=GroupsSerializer,
    )
    def get(self, request: Request, month: str, **_form: str) -> HttpResponseBase:
        """The groups, by name; for accountants. Raises BadFilter, Http404 and PermissionDenied."""
        form, scope = form_of(request), require_statements(request.user)
        found = read_groups(month, scope)
        rows = _records(found["table"], GROUP)
        if form != JSON:
            return export(form, GROUP_COLUMNS, rows, f"groups-{month}")
        body: dict[str, Any] = {
            "report": _report(found["statement"]),
            "total": _record(found["table"]["total"], ()),
            "results": rows,
        }
        return Response(GroupsSerializer(body).data)


class StatementView(_StatementView):
    """The statement of a group."""

    parameters = frozenset(GROUP)

    @extend_schema(
        operation_id="usage_report_statement",
        summary="The statement of a group in a month",
        tags=["usage"],
        parameters=[
            MONTH,
            OpenApiParameter(
                "group", str, description="The group; empty or `(none)`: usage without a group."
            ),
        ],
        responses=StatementSerializer,
    )
    def get(self, request: Request, month: str) -> Response:
        """The usage of a group; for accountants. Raises BadFilter, Http404 and PermissionDenied."""
        scope = require_statements(request.user)
        group = filter_value(single_value(given(request.query_params), "group"))
        found = read_statement(month, scope, group)
        users, components = (
            _records(table, keys)
            for (_, table), (*_, keys) in zip(found["tables"], BY, strict=True)
        )
        jobs: Jobs = found["jobs"]
        body: dict[str, Any] = {
            "report": _report(found["statement"]),
            "group": group,
            "total": _record(found["tables"][0][1]["total"], ()),
            "users": users,
            "components": components,
            "jobs": [row | _hours_of(row["measures"]) for row in jobs.rows],
            "hidden_jobs": jobs.hidden,
            "jobs_refused": jobs.refusal,
        }
        return Response(StatementSerializer(body).data)


def _hours_of(measures: object) -> dict[str, str]:
    return {each.name: str(each.of(measures)) for each in HOURS[:2]}  # type: ignore[arg-type]


def _report(found: Statement) -> dict[str, Any]:
    report = found.report
    names = ("month", "version", "state", "zone", "first", "end", "generated_at")
    return {name: getattr(report, name) for name in names} | {
        "corrections": [each.number for each in found.corrections],
        "namespaces": found.namespaces,
    }


def _records(table: Mapping[str, Any], keys: Sequence[str]) -> list[dict[str, Any]]:
    return [_record(row, keys) for row in table["rows"]]


def _record(row: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """Return a row of a table of the page, with its hours and money as numbers."""
    line, money = row["line"], row["cost"]
    hours = zip(HOURS, line.amounts, strict=True)
    return {
        **dict(zip(keys, line.keys, strict=True)),
        **{each.name: Figure(each.hours(amount)) for each, amount in hours},
        "pods": line.pods,
        "lifetimes": line.lifetimes,
        "estimated_percent": line.estimated_percent,
        "cost": Figure(money.amount) if money else None,
        "currency": money.currency if money else None,
    }
