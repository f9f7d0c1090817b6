"""glue: makes a month's report, in one transaction that replaces the previous version.

Also corrections: changes found after a month was closed, as differences to its summary.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import connection
from django.db.models import Min, Sum

from usage.models import MonthReport, PodLifetime, ReportChunk, ReportRow, ReportState
from usage.rates.pricing import Tariff
from usage.reading import one_snapshot, tariff_of
from usage.reports.columns import CORRECTION, PROFILES, header
from usage.reports.csv import CHUNK_BYTES, copy_all, copy_csv
from usage.reports.monthly import Range, details_queries, rows_sql, summary_sql
from usage.retention.purged import PurgedError, refuse_purged
from usage.sums.engine import HASHED
from usage.sums.refill import copy_rows
from usage.time.months import complete_until, month_bounds
from usage.time.windows import Month

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    import psycopg

    from usage.reports.columns import Profile

ROW_KEYS = ("namespace", "group", "user", "user_verified", "component", "instance_type", "running")
ROW_SUMS = (
    *("lifetimes", "pods", "estimated", "seconds", "millicore_seconds", "byte_seconds"),
    *("gpu_seconds", "micro_ipu_seconds", "partition_ipu_seconds", "idle_micro_ipu_seconds"),
    "cost",
)
ROW_COLUMNS = ", ".join(f'"{name}"' for name in ROW_KEYS + ROW_SUMS)


class ReportRefused(Exception):  # noqa: N818  # it is an answer, with a sentence for people
    """A report cannot be made; the message says why."""


@dataclass(frozen=True, slots=True)
class Order:
    """The reason why a report is made, and its reader; `close`: close the month, which must be
    over."""

    cause: str = ""
    by: str = ""
    close: bool = False


def state_of(month: Month, now: datetime, zone: ZoneInfo) -> ReportState:
    """Return how final a report of `month` is that is made now. Raises ReportRefused."""
    this = Month.of(now, zone)
    if month > this:
        raise ReportRefused(f"{month} has not begun yet. The latest possible report is {this}.")
    if month == this:
        return ReportState.OPEN
    return ReportState.PROVISIONAL if month == this.previous() else ReportState.CLOSED


def due_months(now: datetime, zone: ZoneInfo) -> list[Month]:
    """Return the months of a run without a month: this and last month, and older months not yet
    closed.

    Months whose records were deleted before they had a report are left out.
    """
    this = Month.of(now, zone)
    last = this.previous()
    began = PodLifetime.objects.aggregate(first=Min("scheduled_at"))["first"]
    first_report = MonthReport.objects.aggregate(first=Min("month"))["first"]
    candidates = [Month.of(began, zone)] if began else []
    candidates += [Month.parse(first_report)] if first_report else []
    older = min([*candidates, last]).until(last)
    closed = closed_months()
    return [
        month for month in older if str(month) not in closed and not _is_purged(month, zone)
    ] + [this]


def closed_months() -> set[str]:
    """Return the months that are closed."""
    closed = MonthReport.objects.filter(state=ReportState.CLOSED)
    return set(closed.values_list("month", flat=True))


def make_month(
    month: Month, now: datetime, zone: ZoneInfo, order: Order | None = None
) -> MonthReport:
    """Make and store the report of `month` as known at `now`; readers see the old report until
    then.

    Raises ReportRefused for a future month, for a closed month (which never changes), for a month
    whose records were deleted, and if `order` closes a month that is not over.
    """
    order = order or Order()
    now = now.replace(microsecond=0)
    state = _state_to_be(month, now, zone, order)
    covers = month_range(month, now, zone)
    with one_snapshot():
        report = store_report(covers, str(month), _next_version(month), state, order)
        insert_rows(report, rows_sql(covers), covers.parameters)
        finish_report(report)
        if state == ReportState.CLOSED:
            _store_files(report, covers)
        report.save()
        MonthReport.objects.filter(month=str(month)).exclude(pk=report.pk).delete()
    return report


def _state_to_be(month: Month, now: datetime, zone: ZoneInfo, order: Order) -> ReportState:
    state = state_of(month, now, zone)
    if order.close and state == ReportState.OPEN:
        raise ReportRefused(f"{month} has not ended yet and cannot be closed.")
    try:
        refuse_purged(month_bounds(month, zone).first, zone)
    except PurgedError as error:
        _next_version(month)  # says that it is closed, where it is
        raise ReportRefused(str(error)) from error
    return ReportState.CLOSED if order.close else state


def month_range(month: Month, now: datetime, zone: ZoneInfo, tariff: Tariff | None = None) -> Range:
    """Return the range of the report of `month`, with the current prices or those given."""
    span = month_bounds(month, zone)
    label = str(month).replace("-", "")
    prices = tariff or prices_of(span.first, span.end, zone)
    return Range(label, zone.key, span.first, span.end, now, prices)


def prices_of(first: datetime, end: datetime, zone: ZoneInfo) -> Tariff:
    """Return the prices that hold in [first, end)."""
    last = end - timedelta(seconds=1)
    return tariff_of(first.astimezone(zone).date(), last.astimezone(zone).date())


def store_report(
    covers: Range, month: str, version: int, state: ReportState, order: Order
) -> MonthReport:
    """Store a report without rows."""
    return MonthReport.objects.create(
        month=month,
        version=version,
        state=state,
        zone=covers.zone,
        first=covers.first,
        end=covers.end,
        generated_at=covers.generated_at,
        complete_until=complete_until(covers.first, covers.end),
        lifetimes=0,
        cause=order.cause,
        made_by=order.by,
        tariff=covers.tariff.to_record(),
    )


def insert_rows(report: MonthReport, select: str, parameters: dict[str, Any]) -> None:
    """Store the rows that `select` makes."""
    with connection.cursor() as cursor:
        cursor.execute(HASHED)
    copy_rows(
        raw_connection(),
        f"SELECT %(report)s, {ROW_COLUMNS} FROM ({select}) AS sums",  # noqa: S608  # our own text
        {**parameters, "report": report.pk},
        f"{ReportRow._meta.db_table} (report_id, {ROW_COLUMNS})",  # noqa: SLF001
    )


def finish_report(report: MonthReport, profiles: Iterable[Profile] = PROFILES.values()) -> None:
    """Add the facts that follow from its rows: counts, money, digests and lines of the summary
    files."""
    sums = report.rows.aggregate(Sum("lifetimes"), Sum("pods"), Sum("cost"))
    report.lifetimes = sums["lifetimes__sum"] or 0
    # Rows of which none has a cost add up to none; no rows at all cost nothing.
    nothing = report.tariff.get("rates") and sums["lifetimes__sum"] is None
    report.cost = Decimal(0) if nothing else sums["cost__sum"]
    report.lines = {"details": report.lifetimes, "details-primehub": sums["pods__sum"] or 0}
    for profile in profiles:
        query, parameters = summary_sql(profile), summary_parameters(report)
        lines = summary_sql(profile, total=False)
        report.lines[file_key("summary", profile)] = _count(lines, parameters)
        head = [header(profile.summary).encode()]
        digest = _digest(head, copy_csv(raw_connection(), query, parameters))
        report.digests[file_key("summary", profile)] = digest


def summary_parameters(report: MonthReport) -> dict[str, Any]:
    """Return the parameters of `summary_sql`."""
    return {
        "month": report.month.replace("-", ""),
        "report": report.pk,
        "currency": report.tariff.get("currency", settings.REPORT_CURRENCY),
        "decimals": report.tariff.get("decimals", settings.REPORT_COST_DECIMALS),
        "number": report.number,
    }


def _is_purged(month: Month, zone: ZoneInfo) -> bool:
    try:
        refuse_purged(month_bounds(month, zone).first, zone)
    except PurgedError:
        return True
    return False


def _next_version(month: Month) -> int:
    newest = MonthReport.objects.filter(month=str(month)).order_by("version").last()
    if newest is None:
        return 1
    if newest.state in {ReportState.CLOSED, ReportState.CORRECTION}:
        raise ReportRefused(f"{month} is closed. Its report is final.")
    return newest.version + 1


def _store_files(report: MonthReport, covers: Range) -> None:
    """Store both files in every profile, so that nothing that changes later changes them."""
    for profile in PROFILES.values():
        summary = (summary_sql(profile),), summary_parameters(report)
        details = details_queries(profile, covers), covers.parameters
        for kind, (queries, parameters) in (("summary", summary), ("details", details)):
            key = file_key(kind, profile)
            head = header(getattr(profile, kind)).encode()
            place = profile.name if kind == "details" else key
            report.digests[key] = _store_file(report, place, head, (queries, parameters))


def _store_file(
    report: MonthReport, place: str, head: bytes, query: tuple[tuple[str, ...], dict[str, Any]]
) -> str:
    """Store one file; it waits on disk meanwhile: a connection does one thing at a time."""
    with tempfile.TemporaryFile() as spool:
        spool.write(head)
        digest = hashlib.sha256(head)
        for block in copy_all(raw_connection(), *query):
            spool.write(block)
            digest.update(block)
        spool.seek(0)
        for number, data in enumerate(iter(lambda: spool.read(CHUNK_BYTES), b"")):
            ReportChunk.objects.create(report=report, profile=place, number=number, data=data)
    return digest.hexdigest()


def file_key(kind: str, profile: Profile) -> str:
    """Return the name of a file in `digests` and `lines`."""
    return kind if profile.name == "default" else f"{kind}-{profile.name}"


def _count(query: str, parameters: dict[str, Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM ({query}) AS lines", parameters)  # noqa: S608
        return int(cursor.fetchone()[0])


def _digest(*parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        for block in part:
            digest.update(block)
    return digest.hexdigest()


def raw_connection() -> psycopg.Connection[Any]:
    """Return Django's connection as psycopg knows it."""
    connection.ensure_connection()
    return cast("psycopg.Connection[Any]", connection.connection)


_KEYS = ", ".join(f'"{name}"' for name in ROW_KEYS)
_ORDER = ", ".join(
    f'"{name}"' if name in {"user_verified", "running"} else f'"{name}" COLLATE "C"'
    for name in ROW_KEYS
)
_STORED = ", ".join(f"-{name} AS {name}" for name in ROW_SUMS)
_FOUND = ", ".join(ROW_SUMS)
_DIFFERENCES = ", ".join(f"sum({name}) AS {name}" for name in ROW_SUMS)
_CHANGED = " OR ".join(f"sum({name}) <> 0" for name in ROW_SUMS)


def correctable_months(limit: int) -> list[Month]:
    """Return the newest closed months whose records are there, at most `limit`, oldest first."""
    closed = MonthReport.objects.filter(state=ReportState.CLOSED).order_by("-month")[:limit]
    return sorted(Month.parse(each.month) for each in closed if not _is_report_purged(each))


def _is_report_purged(closed: MonthReport) -> bool:
    try:
        refuse_purged(closed.first, ZoneInfo(closed.zone))
    except PurgedError:
        return True
    return False


def correct_month(month: Month, now: datetime, order: Order | None = None) -> MonthReport | None:
    """Store the differences to the closed report of `month` and its corrections; None: no
    difference.

    The month is added up again with the zone and prices that it was closed with. Raises
    ReportRefused if it is not closed, or if its records were deleted.
    """
    now = now.replace(microsecond=0)
    with one_snapshot():
        closed = MonthReport.objects.filter(month=str(month), state=ReportState.CLOSED).first()
        if closed is None:
            raise ReportRefused(f"{month} is not closed. Its report is generated again instead.")
        zone = ZoneInfo(closed.zone)
        try:
            refuse_purged(closed.first, zone)
        except PurgedError as error:
            raise ReportRefused(str(error)) from error
        return _store_differences(closed, month, now, order or Order())


def _store_differences(
    closed: MonthReport, month: Month, now: datetime, order: Order
) -> MonthReport | None:
    covers = month_range(month, now, ZoneInfo(closed.zone), Tariff.from_record(closed.tariff))
    versions = MonthReport.objects.filter(month=str(month))
    stored = list(versions.values_list("pk", flat=True))
    newest = versions.order_by("version").last() or closed
    report = store_report(covers, str(month), newest.version + 1, ReportState.CORRECTION, order)
    differences = (
        f"SELECT {_KEYS}, {_DIFFERENCES} FROM ("  # noqa: S608
        f"SELECT {_KEYS}, {_FOUND} FROM ({rows_sql(covers)}) AS found UNION ALL"
        f" SELECT {_KEYS}, {_STORED} FROM usage_reportrow WHERE report_id = ANY(%(stored)s)"
        f") AS both_sides GROUP BY {_KEYS} HAVING {_CHANGED}"
        f" ORDER BY {_ORDER}"
    )
    insert_rows(report, differences, {**covers.parameters, "stored": stored})
    if not report.rows.exists():
        report.delete()
        return None
    report.number = newest.number + 1
    finish_report(report, [CORRECTION])
    report.save()
    return report
