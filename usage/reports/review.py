"""glue: the checks before a month is closed, because it never changes afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from django.db.models import Sum

from ipuhub.models import WatchCheckpoint, WatchGap
from ipuhub.web.filters import BadFilter
from usage.models import MonthReport, ReportState
from usage.rates.pricing import Tariff, money_of, pricing_of
from usage.rates.unpriced import read_unpriced
from usage.reports.making import ReportRefused
from usage.reports.outdated import outdated_reports
from usage.sums.measures import OUTPUTS, Output
from usage.time.months import POD_WATCH

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal

    from usage.rates.pricing import Money, Pricing
    from usage.rates.unpriced import Unpriced
    from usage.reports.outdated import Outdated
    from usage.time.windows import Month

TOTALS: Final = (
    OUTPUTS["ipu_hours"],
    OUTPUTS["partition_ipu_hours"],
    Output("idle_ipu_hours", "Idle IPU-hours", "idle_micro_ipu_seconds", 10**6),
    OUTPUTS["cpu_core_hours"],
    OUTPUTS["memory_gib_hours"],
    OUTPUTS["gpu_hours"],
    OUTPUTS["pod_hours"],
)
_MOST_GAPS: Final = 100
# What a report is made of: pods, the IPUs and owners of their jobs, and the hours of partitions.
# Of a site without jobs nobody watches the last two.
_RECORDS: Final = {POD_WATCH: "pods", "ipujobs": "jobs", "tracker": "partitions"}


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which objects may be missing in the record of `what`, such as pods."""

    what: str
    began_at: datetime
    ended_at: datetime
    cause: str

    @property
    def sentence(self) -> str:
        """Return when it was, and why."""
        when = f"{self.began_at:%F %H:%M} to {self.ended_at:%F %H:%M} UTC"
        return f"Gap in the record of {self.what}: {when} ({self.cause})."


@dataclass(frozen=True, slots=True)
class Review:
    """The newest report of a month, and what makes it doubtful.

    `totals`: name, label and sum; `gaps`: where objects may be missing, of
    all records; `late`: records that end before the month, and when; `estimated`: lifetimes with an
    estimated end; `unpriced`: stretches without any price; `unpriced_hours`: the
    hours of resources without a price while another resource has a price; `problem`: why these are
    not known.
    """

    report: MonthReport
    totals: list[tuple[str, str, Decimal]]
    cost: Money | None
    pods: int
    estimated: int
    gaps: list[Gap] = field(default_factory=list)
    late: list[tuple[str, datetime]] = field(default_factory=list)
    unpriced: list[tuple[datetime, datetime]] = field(default_factory=list)
    unpriced_hours: list[Unpriced] = field(default_factory=list)
    problem: str = ""
    outdated: list[Outdated] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Return whether the watch of pods had seen the whole month."""
        until = self.report.complete_until
        return until is not None and until >= self.report.end

    @property
    def concerns(self) -> list[str]:
        """Return a message for each thing to check; none if all is well."""
        found = [each.message for each in self.outdated]
        if self.report.complete_until is None:
            found.append("The pods of this month were not recorded.")
        elif not self.is_complete:
            found.append(
                f"The record is complete only until {self.report.complete_until:%F %H:%M} UTC."
            )
        found += [
            f"The record of {what} is complete only until {until:%F %H:%M} UTC."
            for what, until in self.late
        ]
        found += [each.sentence for each in self.gaps[:_MOST_GAPS]]
        if more := len(self.gaps[_MOST_GAPS:]):
            found.append(f"And {more} more {'gap' if more == 1 else 'gaps'} in the record.")
        if self.estimated:
            many = self.estimated > 1
            found.append(
                f"{self.estimated} lifetimes have estimated ends."
                if many
                else "1 lifetime has an estimated end."
            )
        found += [
            f"No rates apply from {begin:%F %H:%M} to {end:%F %H:%M} UTC."
            for begin, end in self.unpriced
        ]
        found += [each.sentence for each in self.unpriced_hours]
        if self.problem:
            found.append(f"Whether all hours have a price is unknown. {self.problem}")
        return found


def review_month(month: Month) -> Review:
    """Return the review of a month that is over and not closed. Raises ReportRefused for others,
    and where there is no report yet."""
    report = MonthReport.objects.filter(month=str(month)).order_by("version").last()
    if report is None:
        raise ReportRefused(f"There is no report of {month} yet. Generate it, then review it.")
    if report.state in {ReportState.CLOSED, ReportState.CORRECTION}:
        raise ReportRefused(f"{month} is closed. Its report is final.")
    if report.state == ReportState.OPEN:
        raise ReportRefused(f"{month} has not ended yet and cannot be closed.")
    names = [each.amount for each in TOTALS] + ["pods", "estimated"]
    sums = {
        name.removesuffix("__sum"): int(total or 0)
        for name, total in report.rows.aggregate(*(Sum(name) for name in names)).items()
    }
    pricing = _pricing(report)
    unpriced_hours, problem = _unpriced_hours(pricing, ZoneInfo(report.zone))
    return Review(
        report,
        [(each.name, each.label, each.hours(sums[each.amount])) for each in TOTALS],
        money_of(report.cost, report.tariff),
        sums["pods"],
        sums["estimated"],
        _gaps(report),
        _late(report),
        pricing.unpriced,
        unpriced_hours,
        problem,
        outdated_reports([report])[report.pk],
    )


def _gaps(report: MonthReport) -> list[Gap]:
    found = WatchGap.objects.filter(
        began_at__lt=report.end, ended_at__gt=report.first, shows_loss=True
    ).order_by("began_at")
    return [
        Gap(_RECORDS[record], gap.began_at, gap.ended_at, gap.cause)
        for gap in found
        for record in _RECORDS
        if gap.watch.startswith(record)
    ]


def _late(report: MonthReport) -> list[tuple[str, datetime]]:
    """The records of jobs and partitions that end before the month does, with their ends."""
    found = WatchCheckpoint.objects.filter(position_at__lt=report.end).order_by("name")
    return [
        (_RECORDS[record], checkpoint.position_at)
        for checkpoint in found
        for record in _RECORDS
        if record != POD_WATCH and checkpoint.name.startswith(record) and checkpoint.position_at
    ]


def _pricing(report: MonthReport) -> Pricing:
    tariff = Tariff.from_record(report.tariff)
    return pricing_of(report.first, report.end, ZoneInfo(report.zone), tariff, ())


def _unpriced_hours(pricing: Pricing, zone: ZoneInfo) -> tuple[list[Unpriced], str]:
    try:
        return read_unpriced(pricing.segments, zone), ""
    except BadFilter as error:
        return [], " ".join(error.messages)
