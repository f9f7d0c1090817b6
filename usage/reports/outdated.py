"""glue: reports and files of ranges that are older than rates and corrections that affect them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from django.conf import settings

from usage.models import MonthReport, Rate, ReportState
from usage.rates.pages import price_of
from usage.rates.pricing import Tariff
from usage.time.windows import local_day

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date, datetime

    from usage.models import ReportRun
    from usage.rates.pricing import Price

_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Outdated:
    """The reason that figures differ from a new report: rates or corrections.

    `again`: making the file again corrects them. A closed month is not made again.
    """

    reason: str
    message: str
    again: bool = True


def outdated_reports(reports: Sequence[MonthReport]) -> dict[int, list[Outdated]]:
    """Return, by primary key, why each report is outdated. Two queries; one if none is closed."""
    if not reports:
        return {}
    rates = list(Rate.objects.order_by("resource", "name", "valid_from"))
    months = {each.month for each in reports if each.state == ReportState.CLOSED}
    later = MonthReport.objects.filter(month__in=months, number__gt=0)
    corrections: dict[str, int] = {}
    for month in later.values_list("month", flat=True):
        corrections[month] = corrections.get(month, 0) + 1
    return {each.pk: _of_report(each, rates, corrections.get(each.month, 0)) for each in reports}


def add_outdated(reports: Sequence[Any]) -> None:
    """Set `outdated` of reports that the API is about to write."""
    found = outdated_reports(reports)
    for report in reports:
        report.outdated = found[report.pk]


def add_outdated_runs(runs: Sequence[Any]) -> None:
    """Set `outdated` of runs that the API is about to write."""
    found = outdated_runs(runs)
    for run in runs:
        run.outdated = found.get(run.pk, [])


def _of_report(report: MonthReport, rates: Iterable[Rate], corrections: int) -> list[Outdated]:
    if report.number:
        return []
    zone = ZoneInfo(report.zone)
    first, last = local_day(report.first, zone), local_day(report.end - _SECOND, zone)
    prices = tuple(p for p in map(price_of, rates) if _holds(p, first, last))
    tariff = Tariff(settings.REPORT_CURRENCY, settings.REPORT_COST_DECIMALS, prices)
    is_closed = report.state == ReportState.CLOSED
    found = []
    if tariff.to_record() != report.tariff and (prices or report.tariff.get("rates")):
        message = (
            "Rates of this month were changed after it was closed. The report keeps the rates at "
            "closing time."
            if is_closed
            else "Rates changed after this report was generated. Generate it again."
        )
        found.append(Outdated("rates", message, again=not is_closed))
    if corrections:
        many = "A correction was" if corrections == 1 else f"{corrections} corrections were"
        message = f"{many} found after the month was closed. Add the differences to this report."
        found.append(Outdated("corrections", message, again=False))
    return found


def _holds(price: Price, first: date, last: date) -> bool:
    until = price.valid_until
    begins = price.valid_from <= last
    return begins and (until is None or (until > first and until > price.valid_from))


def outdated_runs(runs: Sequence[ReportRun]) -> dict[int, list[Outdated]]:
    """Return the same for files of ranges. Two queries; none without files."""
    files = [each for each in runs if each.has_file and each.begin and each.end]
    if not files:
        return {}
    rates = list(Rate.objects.all())
    corrections = list(MonthReport.objects.filter(number__gt=0))
    return {each.pk: _of_run(each, rates, corrections) for each in files}


def _of_run(
    run: ReportRun, rates: Iterable[Rate], corrections: Iterable[MonthReport]
) -> list[Outdated]:
    begin, end, made = run.begin, run.end, run.started_at
    if begin is None or end is None or made is None:
        return []
    zone = settings.REPORT_ZONE
    first, last = local_day(begin, zone), local_day(end - _SECOND, zone)
    found = []
    if any(_changed(rate, made) and _touches(rate, first, last) for rate in rates):
        message = "Rates changed after this report was generated. Generate it again."
        found.append(Outdated("rates", message))
    if any(c.generated_at > made and c.first < end and begin < c.end for c in corrections):
        message = "A correction was found after this report was generated. Generate it again."
        found.append(Outdated("corrections", message))
    return found


def _changed(rate: Rate, since: datetime) -> bool:
    return rate.created_at > since or (rate.ended_at is not None and rate.ended_at > since)


def _touches(rate: Rate, first: date, last: date) -> bool:
    """Return whether days of the range have another price since the rate was set, or was ended."""
    ends = rate.valid_until
    if rate.ended_at is not None:
        return rate.valid_from <= last and (ends is None or ends <= last)
    return rate.valid_from <= last and (ends is None or ends > first)
