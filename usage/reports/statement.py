"""glue: statements: what each group used in a month, by the month's report and its corrections.

Report, rows and jobs are read of one moment. Accountants of some namespaces see the rows of these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from django.db.models import Sum
from django.http import Http404
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ipuhub.web.access import require_statements, signed_in
from ipuhub.web.filters import BadFilter, filter_value
from ipuhub.web.problems import bad_parameters, takes
from usage.models import MonthReport, ReportRow
from usage.query import given, single_value
from usage.rates.pricing import money_of
from usage.reading import one_snapshot
from usage.reports.review import TOTALS
from usage.selectors import job_names
from usage.sums.measures import DIMENSIONS
from usage.sums.queries import Question, read_sums
from usage.time.months import bounds_of
from usage.time.windows import Month, MonthError, Window

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal
    from typing import Any

    from django.http import HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase

    from ipuhub.web.access import Scope
    from usage.rates.pricing import Money

HOURS: Final = TOTALS[:3]
"""Those of IPUs."""
_HOURS_OF_JOBS: Final = HOURS[:2]  # idle time is of the partition
_AMOUNTS: Final = tuple(each.amount for each in HOURS)
_COUNTS: Final = ("pods", "lifetimes", "estimated")
_JOB_AND_USER: Final = (DIMENSIONS["job"], DIMENSIONS["user"])
_SHOWN_JOBS: Final = 50
GROUP: Final = ("group",)
BY: Final = (
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
class Jobs:
    """The jobs of a group with the most IPU-hours of pods, as the records have them now.

    `refusal`: why they cannot be listed; `hidden`: how many more there are.
    """

    rows: Sequence[Any] = ()
    hidden: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """A month's report with its corrections, and the rows of all its groups or of a single group,
    in the namespaces of `scope`."""

    report: MonthReport
    corrections: list[MonthReport]
    scope: Scope
    group: str | None = None

    @property
    def namespaces(self) -> list[str]:
        """The namespaces that it is limited to; none: it is of all."""
        return sorted(self.scope.namespaces or ())

    def lines(self, keys: tuple[str, ...]) -> list[Line]:
        """Return the sums by `keys`, in their order."""
        rows = ReportRow.objects.filter(report__in=[self.report, *self.corrections])
        if self.scope.namespaces is not None:
            rows = rows.filter(namespace__in=self.namespaces)
        if self.group is not None:
            rows = rows.filter(group=self.group)
        names = (*_AMOUNTS, *_COUNTS, "cost")
        sums = rows.values(*keys).annotate(**{f"sum_{name}": Sum(name) for name in names})
        return [_line(row, keys) for row in sums.order_by(*keys)]

    def jobs(self) -> Jobs:
        """Return the group's jobs."""
        report, spans = self.report, bounds_of(self.report)
        window = Window.of(report.first, report.end, max(report.first, report.generated_at))
        group = (DIMENSIONS["group"], (self.group or "",))
        question = Question(self.scope, window, spans.zone, _JOB_AND_USER, (group,))
        try:
            sums = read_sums(question, [window.begin], "micro_ipu_seconds", _SHOWN_JOBS)
        except BadFilter as refusal:
            return Jobs(refusal=" ".join(refusal.messages))
        names = job_names([row.key[0] for row in sums.rows])
        rows = [
            {
                "uid": row.key[0],
                "name": names.get(row.key[0], row.key[0]),
                "user": row.key[1],
                "pods": row.measures.pods,
                "measures": row.measures,
                "hours": [f"{each.of(row.measures):,.2f}" for each in _HOURS_OF_JOBS],
            }
            for row in sums.rows
        ]
        return Jobs(rows, sums.count - len(rows))

    def table(self, heads: tuple[str, ...], keys: tuple[str, ...]) -> dict[str, Any]:
        """Return the context of a table: heads, columns of hours, rows and the row of totals."""
        return self._table(heads, self.lines(keys))

    def tables(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the tables of a group's statement, by name, of one reading of its rows."""
        every = tuple(key for _, _, keys in BY for key in keys)
        lines = self.lines(every)
        return [
            (name, self._table(heads, _fold(lines, [every.index(key) for key in keys])))
            for name, heads, keys in BY
        ]

    def _table(self, heads: tuple[str, ...], lines: Sequence[Line]) -> dict[str, Any]:
        return {
            "heads": heads,
            "columns": [each.label for each in HOURS],
            "rows": [self._row(line) for line in lines],
            "total": self._row(_total(lines)),
        }

    def _row(self, line: Line) -> dict[str, Any]:
        money: Money | None = money_of(line.cost, self.report.tariff)
        hours = (each.hours(amount) for each, amount in zip(HOURS, line.amounts, strict=True))
        printed = [f"{each:,.2f}" for each in hours]
        return {"line": line, "hours": printed, "cost": money}


def _line(row: dict[str, Any], keys: tuple[str, ...]) -> Line:
    pods, lifetimes, estimated = (int(row[f"sum_{name}"]) for name in _COUNTS)
    amounts = tuple(int(row[f"sum_{name}"]) for name in _AMOUNTS)
    common = tuple(row[key] for key in keys)
    return Line(common, amounts, pods, lifetimes, estimated, row["sum_cost"])


def _fold(lines: Sequence[Line], places: Sequence[int]) -> list[Line]:
    """Return the sums of lines that have the same keys at these places."""
    found: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        found.setdefault(tuple(line.keys[place] for place in places), []).append(line)
    return [replace(_total(own), keys=keys) for keys, own in sorted(found.items())]


def _total(lines: Sequence[Line]) -> Line:
    costs = [line.cost for line in lines if line.cost is not None]
    amounts = [sum(line.amounts[place] for line in lines) for place in range(len(_AMOUNTS))]
    pods, lifetimes, estimated = (sum(getattr(line, name) for line in lines) for name in _COUNTS)
    cost = sum(costs[1:], costs[0]) if costs else None
    return Line((), tuple(amounts), pods, lifetimes, estimated, cost)


def find_statement(month: str, scope: Scope, group: str | None = None) -> Statement:
    """Return the statement of a month. Raises Http404 with the reason if there is no report."""
    try:
        Month.parse(month)
    except MonthError as error:
        raise Http404(str(error)) from error
    found = list(MonthReport.objects.filter(month=month).order_by("version"))
    reports = [each for each in found if not each.number]
    if not reports:
        raise Http404(f"There is no report of {month} yet.")
    return Statement(reports[-1], [each for each in found if each.number], scope, group)


@one_snapshot(read_only=True)
def read_groups(month: str, scope: Scope) -> dict[str, Any]:
    """Return the context of the page of a month's groups. Raises Http404."""
    found = find_statement(month, scope)
    return {"statement": found, "table": found.table(("Group",), GROUP)}


@one_snapshot(read_only=True)
def read_statement(month: str, scope: Scope, group: str) -> dict[str, Any]:
    """Return the context of a group's statement. Raises Http404."""
    found = find_statement(month, scope, group)
    tables = found.tables()
    if not tables[0][1]["rows"]:
        raise Http404(f"This group has no usage in the report of {month}.")
    return {"statement": found, "tables": tables, "jobs": found.jobs()}


@require_safe
@signed_in
@takes()
def groups(request: HttpRequest, month: str) -> HttpResponse:
    """Show the groups of a month's report, each with its statement. Raises PermissionDenied and
    Http404."""
    scope = require_statements(request.user)
    return render(request, "usage/groups.html", read_groups(month, scope))


@require_safe
@signed_in
@takes("group")
def statement(request: HttpRequest, month: str) -> HttpResponseBase:
    """Show what one group used (`group`; empty or `(none)`: without a group). Raises
    PermissionDenied and Http404."""
    scope = require_statements(request.user)
    try:
        group = filter_value(single_value(given(request.GET), "group"))
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    return render(request, "usage/statement.html", read_statement(month, scope, group))
