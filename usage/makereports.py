"""glue: making a month's report, in one transaction that puts it in the old one's place."""

from __future__ import annotations

import hashlib
import tempfile
from typing import TYPE_CHECKING, Any, cast

from django.db import connection, transaction
from django.db.models import Min, Sum

from ipuhub.models import WatchCheckpoint, WatchGap
from ipuhub.months import Month
from usage.csvreport import copy_csv
from usage.models import MonthReport, PodLifetime, ReportChunk, ReportRow, ReportState
from usage.monthly import PROFILES, SUMMARY, Range, details_sql, header, summary_sql

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from zoneinfo import ZoneInfo

    import psycopg

    from usage.monthly import Profile

POD_WATCH = "pods"
"""Checkpoints and gaps of the watch of pods have names that begin so."""
CHUNK_BYTES = 1024 * 1024
HASHED = "SET LOCAL work_mem = '64MB'"
"""Lets PostgreSQL add a month up in memory; with its default of 4 MB it sorts the month on disk,
which takes twice as long even on two processors."""
_COLUMNS = (
    'namespace, "group", "user", user_verified, component, instance_type, running, lifetimes, pods,'
    " estimated, seconds, millicore_seconds, byte_seconds, gpu_seconds, micro_ipu_seconds,"
    " partition_ipu_seconds"
)


class ReportRefused(Exception):  # noqa: N818  # it is an answer, with a sentence for people
    """A report cannot be made; the message says why."""


def state_of(month: Month, now: datetime, zone: ZoneInfo) -> ReportState:
    """Return how final a report of `month` is that is made now. Raises ReportRefused."""
    this = Month.of(now, zone)
    if month > this:
        raise ReportRefused(f"{month} has not begun yet: reports reach from the past to {this}.")
    if month == this:
        return ReportState.OPEN
    return ReportState.PROVISIONAL if month == this.previous() else ReportState.CLOSED


def due_months(now: datetime, zone: ZoneInfo) -> list[Month]:
    """Return what a run without a month makes: this and last month, older ones not yet closed."""
    this = Month.of(now, zone)
    last = this.previous()
    began = PodLifetime.objects.aggregate(first=Min("scheduled_at"))["first"]
    first_report = MonthReport.objects.aggregate(first=Min("month"))["first"]
    candidates = [Month.of(began, zone)] if began else []
    candidates += [Month.parse(first_report)] if first_report else []
    closed = set(
        MonthReport.objects.filter(state=ReportState.CLOSED).values_list("month", flat=True)
    )
    older = min(candidates, default=last).until(last.previous())
    return [month for month in older if str(month) not in closed] + [last, this]


def make_month(month: Month, now: datetime, zone: ZoneInfo) -> MonthReport:
    """Make and store the report of `month` as known at `now`; readers see the old one till then.

    Raises ReportRefused for a month to come and for a closed one, which never changes.
    """
    state = state_of(month, now, zone)
    now = now.replace(microsecond=0)
    first, end = month.first(zone), month.end(zone)
    covers = Range(str(month), zone.key, first, end, now)
    with transaction.atomic():
        _one_snapshot()
        report = MonthReport.objects.create(
            month=str(month),
            version=_next_version(month),
            state=state,
            zone=zone.key,
            first=first,
            end=end,
            generated_at=now,
            complete_until=complete_until(first, end),
            lifetimes=0,
        )
        _store_rows(report, covers)
        report.lifetimes = report.rows.aggregate(n=Sum("lifetimes"))["n"] or 0
        report.digests = _summary_digests(report)
        if state == ReportState.CLOSED:
            report.digests |= _store_details(report, covers)
        report.save(update_fields=["lifetimes", "digests"])
        MonthReport.objects.filter(month=str(month)).exclude(pk=report.pk).delete()
    return report


def complete_until(first: datetime, end: datetime) -> datetime | None:
    """Return until when in [first, end) the watch of pods had seen everything; None: never."""
    watch = WatchCheckpoint.objects.filter(name__startswith=POD_WATCH)
    seen = watch.aggregate(seen=Min("position_at"))["seen"]
    gap = WatchGap.objects.filter(
        watch__startswith=POD_WATCH, began_at__lt=end, ended_at__gt=first
    ).aggregate(began=Min("began_at"))["began"]
    known = [instant for instant in (seen, gap) if instant is not None]
    return None if seen is None else min([*known, end])


def _one_snapshot() -> None:
    """Let all statements of this transaction see the same rows (tests wrap their own around)."""
    with connection.cursor() as cursor:
        if not connection.savepoint_ids:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


def _next_version(month: Month) -> int:
    newest = MonthReport.objects.filter(month=str(month)).order_by("version").last()
    if newest is None:
        return 1
    if newest.state == ReportState.CLOSED:
        raise ReportRefused(f"{month} is closed: its report does not change any more.")
    return newest.version + 1


def _store_rows(report: MonthReport, covers: Range) -> None:
    with connection.cursor() as cursor:
        cursor.execute(HASHED)
        cursor.execute(
            f"INSERT INTO {ReportRow._meta.db_table} (report_id, {_COLUMNS})"  # noqa: S608, SLF001
            f" SELECT %(report)s, {_COLUMNS} FROM ({SUMMARY}) AS sums",
            {**covers.parameters, "report": report.pk},
        )


def _summary_digests(report: MonthReport) -> dict[str, str]:
    parameters = {"month": report.month.replace("-", ""), "report": report.pk}
    return {
        _key("summary", profile): _digest(
            [header(profile.summary).encode()],
            copy_csv(_raw_connection(), summary_sql(profile), parameters),
        )
        for profile in PROFILES.values()
    }


def _store_details(report: MonthReport, covers: Range) -> dict[str, str]:
    """Store the details in every profile; they wait in a file: a connection does one thing."""
    digests = {}
    for profile in PROFILES.values():
        with tempfile.TemporaryFile() as spool:
            head = header(profile.details).encode()
            spool.write(head)
            digest = hashlib.sha256(head)
            query = details_sql(profile)
            for block in copy_csv(_raw_connection(), query, covers.parameters):
                spool.write(block)
                digest.update(block)
            spool.seek(0)
            chunks = iter(lambda: spool.read(CHUNK_BYTES), b"")
            for number, data in enumerate(chunks):
                ReportChunk.objects.create(
                    report=report, profile=profile.name, number=number, data=data
                )
        digests[_key("details", profile)] = digest.hexdigest()
    return digests


def _key(kind: str, profile: Profile) -> str:
    return kind if profile.name == "default" else f"{kind}-{profile.name}"


def _digest(*parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        for block in part:
            digest.update(block)
    return digest.hexdigest()


def _raw_connection() -> psycopg.Connection[Any]:
    connection.ensure_connection()
    return cast("psycopg.Connection[Any]", connection.connection)
