"""glue: statements: what each group used in a month, by the month's report and its corrections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from django.db.models import Sum
from django.http import Http404
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ipuhub.months import Month, MonthError
from ipuhub.web.access import require_accountant
from ipuhub.web.filters import BadFilter
from ipuhub.web.problems import not_as_asked
from ipuhub.web.requests import signed_in
from usage.models import MonthReport, ReportRow
from usage.query import given, one
from usage.rates.tariff import money_of
from usage.reports.review import TOTALS
from usage.sums.measures import hours

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal
    from typing import Any

    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase

    from usage.rates.tariff import Money

_HOURS: Final = TOTALS[:3]  # those of IPUs
_AMOUNTS: Final = tuple(amount for _, _, amount, _ in _HOURS)
_COUNTS: Final = ("pods", "lifetimes", "estimated")
_BY: Final = (
    ("Users", ("User", "Namespace"), ("user", "namespace")),
    ("Components", ("Component", "Instance type"), ("component", "instance_type")),
)


@dataclass(frozen=True, slots=True)
class Line:
    """Sums of some rows: `keys` are what they have in common, `amounts` whole unit-seconds."""

    keys: tuple[str, ...]
    amounts: tuple[int, ...]
    pods: int
    lifetimes: int
    estimated: int
    cost: Decimal | None

    @property
    def estimated_percent(self) -> str:
        """The share of lifetimes with an estimated end; empty if there are none."""
        if self.estimated <= 0 or self.lifetimes <= 0:
            return ""
        return f"{100 * self.estimated / self.lifetimes:.1f}"


@dataclass(frozen=True, slots=True)
class Statement:
    """A month's report with its corrections, and the rows of all groups or of one in it."""

    report: MonthReport
    corrections: list[MonthReport]
    group: str | None = None

    def lines(self, keys: tuple[str, ...]) -> list[Line]:
        """Return the sums by `keys`, in their order."""
        rows = ReportRow.objects.filter(report__in=[self.report, *self.corrections])
        if self.group is not None:
            rows = rows.filter(group=self.group)
        names = (*_AMOUNTS, *_COUNTS, "cost")
        sums = rows.values(*keys).annotate(**{f"sum_{name}": Sum(name) for name in names})
        return [_line(row, keys) for row in sums.order_by(*keys)]

    def table(self, heads: tuple[str, ...], keys: tuple[str, ...]) -> dict[str, Any]:
        """Return the context of a table: heads, columns of hours, rows and the row of totals."""
        lines = self.lines(keys)
        total = _total(lines)
        return {
            "heads": heads,
            "columns": [label for _, label, _, _ in _HOURS],
            "rows": [self._row(line) for line in lines],
            "total": self._row(total),
        }

    def _row(self, line: Line) -> dict[str, Any]:
        money: Money | None = money_of(line.cost, self.report.tariff)
        units = (unit for _, _, _, unit in _HOURS)
        printed = [
            f"{hours(amount, unit):,.2f}" for amount, unit in zip(line.amounts, units, strict=True)
        ]
        return {"line": line, "hours": printed, "cost": money}


def _line(row: dict[str, Any], keys: tuple[str, ...]) -> Line:
    pods, lifetimes, estimated = (int(row[f"sum_{name}"]) for name in _COUNTS)
    amounts = tuple(int(row[f"sum_{name}"]) for name in _AMOUNTS)
    common = tuple(row[key] for key in keys)
    return Line(common, amounts, pods, lifetimes, estimated, row["sum_cost"])


def _total(lines: Sequence[Line]) -> Line:
    costs = [line.cost for line in lines if line.cost is not None]
    amounts = [sum(line.amounts[place] for line in lines) for place in range(len(_AMOUNTS))]
    pods, lifetimes, estimated = (sum(getattr(line, name) for line in lines) for name in _COUNTS)
    cost = sum(costs[1:], costs[0]) if costs else None
    return Line((), tuple(amounts), pods, lifetimes, estimated, cost)


def find_statement(month: str, group: str | None = None) -> Statement:
    """Return the statement of a month. Raises Http404 with the reason if there is no report."""
    try:
        Month.parse(month)
    except MonthError as error:
        raise Http404(str(error)) from error
    found = list(MonthReport.objects.filter(month=month).order_by("version"))
    reports = [each for each in found if not each.number]
    if not reports:
        raise Http404(f"There is no report of {month} yet.")
    return Statement(reports[-1], [each for each in found if each.number], group)


@require_safe
@signed_in
def groups(request: HttpRequest, month: str) -> HttpResponse:
    """Show the groups of a month's report, each with its statement. Raises PermissionDenied and
    Http404."""
    require_accountant(request.user)
    found = find_statement(month)
    context = {"statement": found, "table": found.table(("Group",), ("group",))}
    return render(request, "usage/groups.html", context)


def _group_of(request: HttpRequest) -> str:
    group = one(given(request.GET), "group")
    if "\0" in group:
        raise BadFilter(["group: Null characters are not allowed."])
    return group


@require_safe
@signed_in
def statement(request: HttpRequest, month: str) -> HttpResponseBase:
    """Show what one group used (`group`; empty: without a group). Raises PermissionDenied and
    Http404."""
    require_accountant(request.user)
    try:
        group = _group_of(request)
    except BadFilter as error:
        return not_as_asked(request, error.messages)
    found = find_statement(month, group)
    tables = [(name, found.table(heads, keys)) for name, heads, keys in _BY]
    if not tables[0][1]["rows"]:
        raise Http404(f"This group has no usage in the report of {month}.")
    context = {"statement": found, "tables": tables}
    return render(request, "usage/statement.html", context)
