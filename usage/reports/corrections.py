"""glue: corrections: what was found after a month was closed, as differences of its summary."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from ipuhub.months import Month
from usage.models import MonthReport, ReportState
from usage.rates.tariff import Tariff
from usage.reports.columns import CORRECTION
from usage.reports.making import (
    ROW_KEYS,
    ROW_SUMS,
    Order,
    ReportRefused,
    finish_report,
    insert_rows,
    month_range,
    store_report,
)
from usage.reports.monthly import rows_sql
from usage.retention.purged import PurgedError, refuse_purged
from usage.time.snapshots import one_snapshot

if TYPE_CHECKING:
    from datetime import datetime

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
    return sorted(Month.parse(each.month) for each in closed if not _is_purged(each))


def _is_purged(closed: MonthReport) -> bool:
    try:
        refuse_purged(closed.first, ZoneInfo(closed.zone))
    except PurgedError:
        return True
    return False


def correct_month(month: Month, now: datetime, order: Order | None = None) -> MonthReport | None:
    """Store what differs from the closed report of `month` and its corrections; None: nothing.

    The month is added up anew with the zone and the prices that it was closed with. Raises
    ReportRefused where it is not closed, and where its records were deleted.
    """
    now = now.replace(microsecond=0)
    with one_snapshot():
        closed = MonthReport.objects.filter(month=str(month), state=ReportState.CLOSED).first()
        if closed is None:
            raise ReportRefused(f"{month} is not closed: its report is made anew instead.")
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
