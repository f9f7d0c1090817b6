"""glue: the page of usage in a month or any range, beside the period before.

Every link keeps the rest of the address: range, filters, measure.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from ipuhub.web.access import may_see_statements, signed_in
from ipuhub.web.exports import FORMATS, export
from ipuhub.web.filters import BadFilter, filter_text
from ipuhub.web.problems import bad_parameters
from usage.query import (
    given,
    names_of,
    read_format,
    read_month,
    read_output,
    read_pair,
    read_total,
    single_value,
)
from usage.rates.pricing import Pricing
from usage.selectors import with_job_names
from usage.sums.columns import JOB, pair_columns, sums_columns
from usage.sums.compare import all_lines, lines_with_total, read_lines
from usage.sums.measures import COST, DIMENSIONS, LABEL, OUTPUTS, dimension, spell_change
from usage.sums.queries import all_sums, with_total
from usage.time.months import MonthBounds, month_completeness, usage_zone
from usage.time.windows import local_day, named_month

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from zoneinfo import ZoneInfo

    from django.http import HttpRequest, QueryDict
    from django.http.response import HttpResponseBase

    from usage.query import Params
    from usage.sums.compare import Line, Lines
    from usage.sums.measures import Dimension, Measures, Output
    from usage.sums.queries import Question
    from usage.time.windows import Month, Window

SHOWN_ROWS: Final = 50  # the files have all
_NAMES: Final = ("CSV", "JSON", "JSON lines")
_RANGE: Final = ("month", "window", "from", "to")
_CARDS: Final = (
    ("ipu_hours", "Pod IPU-hours"),
    ("partition_ipu_hours", "Partition IPU-hours"),
    ("cpu_core_hours", "CPU core-hours"),
    ("memory_gib_hours", "Memory GiB-hours"),
    ("gpu_hours", "GPU-hours"),
)
_WINDOWS: Final = {
    "7d": "Last 7 days",
    "30d": "Last 30 days",
    "quarter": "This quarter",
    "lastquarter": "Last quarter",
    "year": "This year",
}
_NEXT: Final = {"namespace": "user", "group": "user", "user": "job"}
"""The next dimension of each dimension; all others lead to users, then jobs."""
_LONGEST_DAYS: Final = dt.timedelta(days=93)


@require_safe
@signed_in
def month_page(request: HttpRequest) -> HttpResponseBase:
    """Show a month or any range by group, user or the like beside the period before, or hand out
    its twin. Raises PermissionDenied."""
    now, zone = timezone.now(), usage_zone()
    params = params_of(request.GET)
    try:
        question, before = read_pair(
            with_comparison(params), request.user, now, zone, "measure", "total"
        )
        output = read_output(params, question)
        kind, has_total = read_format(params), read_total(params)
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    try:
        if kind:
            return _file(question, before, output, kind, has_total and kind == "csv")
        lines, before = _read(question, before, output)
    except BadFilter as error:  # rows that it needs are gone
        return bad_parameters(request, error.messages)
    period = Period.of(params, question.window, now, zone)
    facts = month_completeness(period.month, question.window, now, zone)
    context = {"facts": facts, "now": now, "period": period, "name": period.first}
    context |= UsagePage(params, question, output, period, before).context(lines)
    if period.month:
        if facts.version and may_see_statements(request.user):
            context["statements"] = reverse("usage:report-groups", args=[period.month])
        context["bounds_note"] = MonthBounds(
            period.month, zone, question.window.begin, question.window.end
        ).note
        context |= _neighbours(params, period.month, question, facts.earliest)
    return render(request, "usage/month.html", context)


def _read(question: Question, before: Window | None, output: Output) -> tuple[Lines, Window | None]:
    """Return the lines, and what they are compared with: nothing where its rows are purged."""
    try:
        return read_lines(question, before, output.amount, SHOWN_ROWS), before
    except BadFilter:
        if before is None:
            raise
        return read_lines(question, None, output.amount, SHOWN_ROWS), None


def _file(
    question: Question, before: Window | None, output: Output, kind: str, has_total: bool
) -> HttpResponseBase:
    begins, by = [question.window.begin], names_of(question.by)
    days = days_of(question.window, question.zone)
    name = f"usage-{days}-by-{_file_part(by)}"
    if before is not None:
        lines = all_lines(question, before, output.amount)
        lines = with_job_names(by, lines)
        lines = lines_with_total(lines, len(by)) if has_total else lines
        return export(kind, pair_columns(by, question.pricing), lines, name)
    rows = with_job_names(by, all_sums(question, begins, output.amount))
    if has_total:
        rows = with_total(question, begins, rows)
    return export(kind, sums_columns(by, question.pricing), rows, name)


def _neighbours(
    params: Params, month: Month, question: Question, earliest: Month
) -> dict[str, Any]:
    ended = question.window.until >= question.window.end
    return {
        "previous": address(params, month=str(month.previous())) if month > earliest else "",
        "next": address(params, month=str(month.next())) if ended else "",
    }


def _file_part(by: Sequence[str]) -> str:
    """Return the dimensions as a part of a file's name."""
    return "-".join(name.removeprefix(LABEL).replace("/", "-") for name in by)


def params_of(query: QueryDict) -> Params:
    """Return the parameters with the page's default: by group."""
    return {"by": ["group"], **given(query)}


def with_comparison(params: Params) -> Params:
    """Return the parameters of a page that compares where nothing was said, unless that would read
    every pod of the period before."""
    names = {name for text in params.get("by", ()) for name in text.split(",")}
    names |= {name for name in params if name in DIMENSIONS or name.startswith(LABEL)}
    rolled = all(name in DIMENSIONS and DIMENSIONS[name].rolled for name in names)
    return {"compare": ["before"], **params} if rolled and "format" not in params else params


def is_month(params: Params) -> bool:
    """Return whether the parameters ask for a calendar month."""
    return not {"from", "to"} & set(params) and single_value(params, "window") in {
        "",
        "month",
        "lastmonth",
    }


def address(params: Params, **others: str) -> str:
    """Return the page's address with `others` in place; an empty value leaves one out."""
    params_left = {n: list(t) for n, t in params.items() if n != "format" and n not in others}
    query = params_left | {name: [text] for name, text in others.items() if text}
    return f"{reverse('usage:month')}?{urlencode(query, doseq=True)}"


def drill_down_url(
    params: Params, by: Sequence[Dimension], key: str | tuple[str, ...] | None
) -> str:
    """Return where the line of `key` is divided further; empty where nothing is finer."""
    parts = (key,) if isinstance(key, str) else key or ()
    names = names_of(by)
    if not parts or "job" in names:
        return reverse("jobs:detail", args=parts) if names == ["job"] and any(parts) else ""
    known = {*names, *(name for name in params if name in DIMENSIONS)}
    finer = next((_NEXT[name] for name in names if name in _NEXT), "user")
    finer = "job" if finer in known else finer
    own = {name: filter_text(part) for name, part in zip(names, parts, strict=True)}
    return address(params, **own, by=finer)


def step_of(window: Window) -> str:
    """Return the step of the chart: days up to a quarter, else months."""
    return "day" if window.end - window.begin <= _LONGEST_DAYS else "month"


def days_of(window: Window, zone: ZoneInfo) -> str:
    """Return a range as a part of a file's name: its month, or its first and last day."""
    first, last = _days((window.begin, window.end), zone)
    is_whole_months = first.day == 1 and (last + dt.timedelta(days=1)).day == 1
    if is_whole_months and (first.year, first.month) == (last.year, last.month):
        return f"{first:%Y-%m}"
    return f"{first}-to-{last}"


@dataclass(frozen=True, slots=True)
class Period:
    """The time that is shown: a month, or the days from `first` to `last`, and its title."""

    month: Month | None
    first: dt.date
    last: dt.date
    title: str

    @classmethod
    def of(cls, params: Params, window: Window, now: dt.datetime, zone: ZoneInfo) -> Period:
        """Return the period of a question whose parameters were read."""
        first, last = _days((window.begin, window.end), zone)
        name = single_value(params, "window")
        if is_month(params):
            month = named_month(name, now, zone) or read_month(params, now, zone)
            # A day, not an instant: templates show instants in UTC, perhaps the month before.
            begin = dt.date(month.year, month.number, 1)
            return cls(month, begin, last, f"in {begin:%B %Y}")
        days = f"{_written(first)} to {_written(last)}"
        label = _WINDOWS.get(name, "").lower()
        if name.endswith("d"):
            label = label.replace("last", "in the last")
        return cls(None, first, last, label or f"from {days}")

    @property
    def days(self) -> str:
        """The first and the last day in words."""
        return f"{_written(self.first)} to {_written(self.last)}"


@dataclass(frozen=True, slots=True)
class UsagePage:
    """The values that the page's template reads, except the completeness of the record."""

    params: Params
    question: Question
    output: Output
    period: Period
    before: Window | None

    def context(self, lines: Lines) -> dict[str, Any]:
        """Return it for these lines."""
        question, params = self.question, self.params
        window = question.window
        pricing = (question.pricing or Pricing()).within(window.begin, window.until)
        total = lines.total.measures
        labels = (dimension(f"{LABEL}{key}", [key]) for key in settings.USAGE_LABELS)
        by_label = ", ".join(each.label for each in question.by)
        return {
            "month": self.period.month,
            "zone": question.zone.key,
            "is_open": window.until < window.end,
            "by": names_of(question.by),
            "by_label": by_label,
            "filters": self._filters(),
            "output": self.output,
            "step": step_of(window),
            "total": total,
            "cards": [
                (OUTPUTS[n].of(total), label, self._change(lines.total, OUTPUTS[n]))
                for n, label in _CARDS
            ],
            "columns": OUTPUTS.values(),
            "pricing": question.pricing and pricing,
            "cost": self._money(total),
            "cost_change": self._change(lines.total, COST),
            "unpriced": [_days(stretch, question.zone) for stretch in pricing.unpriced],
            "rows": [self._row(line, lines.total) for line in lines.lines],
            "total_row": self._row(lines.total, lines.total),
            "hidden": max(0, lines.count - SHOWN_ROWS),
            "row_count": lines.count,
            "dimensions": [
                (d, address(params, by=d.name)) for d in [*DIMENSIONS.values(), *labels]
            ],
            "outputs": [(o, address(params, measure=o.name)) for o in self._outputs()],
            "chart": f"{reverse('usage:chart')}?{address(params).partition('?')[2]}",
            "files": [(name, self._file(kind)) for kind, name in zip(FORMATS, _NAMES, strict=True)],
            "csv": self._file("csv"),
            "unfiltered": address(_without_filters(params)),
            "presets": self._presets(),
            "kept": [
                (n, t) for n, texts in params.items() if n not in {*_RANGE, "format"} for t in texts
            ],
            "compared": self._compared(),
            "compare": address(params, compare="none" if self.before else "before"),
            "scope": question.scope,
            "seen": sorted(question.scope.namespaces or ()),
            "reports": _reports(self.period.month)
            if question.scope.sees_reports and self.period.month
            else None,
        }

    def _file(self, kind: str) -> str:
        return address(self.params, compare="before" if self.before else "") + f"&format={kind}"

    def _money(self, measures: Measures | None) -> Any:
        pricing = self.question.pricing
        return pricing.money(measures.cost) if pricing and measures else None

    def _outputs(self) -> list[Output]:
        """Return the outputs for chart and order; cost is among them where there is any."""
        pricing = self.question.pricing
        has_cost = bool(pricing and pricing.currency) or self.output is COST
        return [*OUTPUTS.values(), *([COST] if has_cost else [])]

    def _filters(self) -> list[tuple[str, str, str]]:
        """Each filter with the address without it: one step up."""
        found = []
        for each, texts in self.question.equals:
            for text in texts:
                rest = [filter_text(other) for other in texts if other != text]
                others = {n: t for n, t in self.params.items() if n != each.name}
                params = {**others, **({each.name: rest} if rest else {})}
                found.append((each.label, filter_text(text), address(params, by=each.name)))
        return found

    def _presets(self) -> list[tuple[str, str, bool]]:
        params = {n: t for n, t in self.params.items() if n not in _RANGE}
        chosen = single_value(self.params, "window")
        if not set(_RANGE) & set(self.params):
            chosen = "month"
        names = {"month": "This month", "lastmonth": "Last month", **_WINDOWS}
        return [(label, address(params, window=n), chosen == n) for n, label in names.items()]

    def _compared(self) -> str:
        if self.before is None:
            return ""
        first, last = _days((self.before.begin, self.before.until), self.question.zone)
        return f"{_written(first)} to {_written(last)}"

    def _row(self, line: Line, total: Line) -> dict[str, Any]:
        pricing, names = self.question.pricing or Pricing(), names_of(self.question.by)
        amount, total_amount = (each.measures.rank(self.output.amount) for each in (line, total))
        parts = list(line.key)
        if line.name:
            parts[names.index(JOB)] = line.name
        return {
            "key": parts,
            "url": drill_down_url(self.params, self.question.by, line.key) if line.key else "",
            "measures": line.measures,
            "hours": [output.of(line.measures) for output in OUTPUTS.values()],
            "cost": pricing.money(line.measures.cost),
            "share": Decimal(100 * amount) / total_amount if total_amount else Decimal(0),
            "change": self._change(line, self.output),
        }

    def _change(self, line: Line, output: Output) -> Mapping[str, Any] | None:
        """Return the change from the period before."""
        if line.before is None:
            return None
        now, old = (each.rank(output.amount) for each in (line.measures, line.before))
        was = self._money(line.before) if output is COST else output.of(line.before)
        return {"was": was, "text": spell_change(now, old)}


def _without_filters(params: Params) -> Params:
    return {k: v for k, v in params.items() if k not in DIMENSIONS and not k.startswith(LABEL)}


def _reports(month: Month) -> dict[str, str]:
    """Return the addresses of the month's files, and of the page that makes them."""
    kinds = ("summary", "details")
    files = {kind: reverse("usage-api:report-file", args=[month, kind, "csv"]) for kind in kinds}
    return files | {"page": reverse("usage:reports")}


def _days(stretch: tuple[dt.datetime, dt.datetime], zone: ZoneInfo) -> tuple[dt.date, dt.date]:
    """Return the first and the last day of a stretch that ends as a day does, or now."""
    begin, end = stretch
    return local_day(begin, zone), local_day(max(begin, end - dt.timedelta(seconds=1)), zone)


def _written(day: dt.date) -> str:
    return f"{day.day} {day:%B %Y}"
