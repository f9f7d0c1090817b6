"""glue: runs that make due reports, one at a time, and report their progress."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import psycopg
import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models import Q
from django.utils import timezone

from ipuhub.models import AuditEntry
from ipuhub.models.idempotency import note_sending
from ipuhub.web.audit import ACCEPTED, FAILED, REFUSED, REPORT, SENT
from usage.models import ReportRun, ReportState
from usage.reports.columns import PROFILES
from usage.reports.making import (
    Order,
    ReportRefused,
    closed_months,
    correct_month,
    correctable_months,
    due_months,
    make_month,
    state_of,
)
from usage.reports.ranges import KINDS, RangeFile, delete_expired, range_of, store_range
from usage.time.months import complete_until
from usage.time.ranges import read_instant
from usage.time.windows import Month

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from usage.models import MonthReport

_LOG = structlog.get_logger(__name__)
_LOCK: Final = 0x1B_0A_0A_01  # the advisory lock of report runs, in this database only
_ASKING: Final = 0x1B_0A_0A_02  # the lock of requests for a run
_IS_HELD: Final = """
SELECT EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND classid = 0
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
"""
_WAITS: Final = timedelta(minutes=10)
"""For how long a run waits for a worker before its message is held to be lost."""
BUSY: Final = "Another run is in progress. Try again when it has finished."
_FAULTS: Final = (DatabaseError, psycopg.Error, OSError, ValueError, OverflowError)
"""Errors that can end the making of a file; psycopg's own, because COPY bypasses Django; a full
disk."""
_LOST: Final = "The process that generated the report stopped before the run finished."


def request_run(
    cause: str,
    requested_by: str,
    now: datetime,
    zone: ZoneInfo,
    month: str = "",
    *,
    close: bool = False,
) -> ReportRun:
    """Store a run for a worker to do. Raises MonthError and ReportRefused for a bad month."""
    state = state_of(Month.parse(month), now, zone) if month else None
    if close and state in {None, ReportState.OPEN}:
        raise ReportRefused(
            f"{month} has not ended yet and cannot be closed."
            if month
            else "Name the month to close. It must have ended."
        )
    return ReportRun.objects.create(
        cause=cause, requested_by=requested_by, requested_at=now, month=month, close=close
    )


def request_range(file: RangeFile, cause: str, requested_by: str, now: datetime) -> ReportRun:
    """Store a run that makes the file of a range; it can be downloaded for some hours."""
    return ReportRun.objects.create(
        cause=cause,
        requested_by=requested_by,
        requested_at=now,
        kind=file.kind,
        profile=file.profile,
        begin=file.covers.first,
        end=file.covers.end,
        expires_at=now + timedelta(hours=settings.RANGE_REPORT_HOURS),
    )


def read_range(fields: Mapping[str, str], now: datetime, zone: ZoneInfo) -> RangeFile:
    """Return the file that `from`, `to`, `kind` and `profile` ask for; without `to` until now.

    Raises WindowError and ReportRefused.
    """
    if not fields.get("from"):
        raise ReportRefused("The first day is required, for example 2026-11-01.")
    begin = read_instant(fields["from"], zone)
    end = read_instant(fields["to"], zone, end=True) if fields.get("to") else now
    kind, profile = fields.get("kind") or "summary", fields.get("profile") or "default"
    if kind not in KINDS or profile not in PROFILES:
        raise ReportRefused(
            "The file must be summary or details, and the format default or primehub."
        )
    return RangeFile(range_of(begin, end, now, zone, profile), kind, profile)


def refuse_run(run: ReportRun, reason: str, now: datetime) -> None:
    """End a run before it has done anything."""
    _LOG.warning("a run of reports was refused", run=run.pk, why=reason)
    _end(run, ReportRun.State.REFUSED, reason, now)


def do_range(
    run: ReportRun, zone: ZoneInfo, clock: Callable[[], datetime] = timezone.now
) -> ReportRun:
    """Make the file that `run` is for and record its progress; never raises."""
    now = clock()
    delete_expired(now)
    run.state, run.started_at = ReportRun.State.RUNNING, now
    run.save()
    try:
        if run.begin is None or run.end is None:
            raise ReportRefused("The run has no range.")
        covers = range_of(run.begin, run.end, now, zone, run.profile)
        run.complete_until = complete_until(covers.first, covers.end)
        store_range(run, RangeFile(covers, run.kind, run.profile))
        _end(run, ReportRun.State.DONE, "", clock())
    except (ReportRefused, *_FAULTS) as error:
        _LOG.exception("a range's report failed", run=run.pk)
        if _is_lost(connection.connection):
            connection.close()  # for another
        run.chunks.all().delete()
        _end(run, ReportRun.State.FAILED, f"It failed: {_first_line(error)}", clock())
    return run


def do_run(
    run: ReportRun,
    zone: ZoneInfo,
    clock: Callable[[], datetime] = timezone.now,
    on_step: Callable[[ReportRun], None] = lambda _: None,
) -> list[MonthReport]:
    """Make the reports that `run` is for and record its progress; a month that fails stops no
    other, unless the connection, and the lock with it, is lost.

    `on_step` is called before each month.
    """
    connection.ensure_connection()
    held = connection.connection
    try:
        return _do_alone(run, zone, clock, on_step)
    except _FAULTS as error:
        if not _is_lost(held):
            raise
        _LOG.error("a run of reports lost its connection", run=run.pk, error=_first_line(error))
        if connection.connection is held:
            connection.close()  # for another
        _end(run, ReportRun.State.FAILED, f"It failed: {_first_line(error)}", clock())
        return []


def _do_alone(
    run: ReportRun,
    zone: ZoneInfo,
    clock: Callable[[], datetime],
    on_step: Callable[[ReportRun], None],
) -> list[MonthReport]:
    with _alone() as alone:
        if not alone:
            _end(run, ReportRun.State.REFUSED, BUSY, clock())
            return []
        now = clock()
        lost = ReportRun.objects.filter(state=ReportRun.State.RUNNING, kind="").exclude(pk=run.pk)
        lost.update(state=ReportRun.State.FAILED, message=_LOST, finished_at=now)
        months = [Month.parse(run.month)] if run.month else _due(now, zone)
        run.state, run.started_at = ReportRun.State.RUNNING, now
        # Claimed but not yet alone, it may have been taken for lost by the run before it.
        run.message, run.finished_at = "", None
        run.months = [str(month) for month in months]
        run.save()
        return _make_all(run, months, zone, (clock, on_step))


def _due(now: datetime, zone: ZoneInfo) -> list[Month]:
    """Return the closed months to compare with the records, and those to be made."""
    return correctable_months(settings.CORRECTED_MONTHS) + due_months(now, zone)


def _make_all(
    run: ReportRun,
    months: list[Month],
    zone: ZoneInfo,
    hooks: tuple[Callable[[], datetime], Callable[[ReportRun], None]],
) -> list[MonthReport]:
    clock, on_step = hooks
    made, faults, notes = [], [], []
    closed, held = closed_months(), connection.connection
    order = Order(run.cause, run.requested_by, run.close)
    for month in months:
        _progress(run, f"{'comparing' if str(month) in closed else 'making'} {month}")
        on_step(run)
        try:
            if str(month) not in closed:
                made.append(make_month(month, clock(), zone, order))
            elif correction := correct_month(month, clock(), order):
                made.append(correction)
            elif run.month:
                notes.append(f"{month} is closed, and no differences were found since.")
        except ReportRefused as refusal:
            faults.append(str(refusal))
        except _FAULTS as error:
            if _is_lost(held):
                raise
            _LOG.exception("a month's report failed", month=str(month))
            faults.append(f"{month} failed: {_first_line(error)}")
        run.done += 1
    state = ReportRun.State.FAILED if faults else ReportRun.State.DONE
    _end(run, state, " ".join(faults + notes), clock())
    return made


def _progress(run: ReportRun, message: str) -> None:
    run.message = message
    run.save(update_fields=["message", "done"])


def _end(run: ReportRun, state: ReportRun.State, message: str, now: datetime) -> None:
    run.state, run.message, run.finished_at = state, message, now
    run.save()
    note_outcome(run)


def note_outcome(run: ReportRun) -> None:
    """Add the end of a run to its entries in the audit."""
    outcomes = {ReportRun.State.DONE: ACCEPTED, ReportRun.State.REFUSED: REFUSED}
    entries = AuditEntry.objects.filter(kind=REPORT, uid=str(run.pk), outcome=SENT)
    entries.update(
        outcome=outcomes.get(ReportRun.State(run.state), FAILED),
        message=run.message,
        answered_at=run.finished_at,
    )


def _is_lost(held: Any) -> bool:
    """Return whether this thread's connection is another than `held`, or closed: Django takes
    another at the end of a transaction."""
    return held is None or held.closed or connection.connection is not held


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def _alone() -> Iterator[bool]:
    """Hold the lock of runs if it is free; it ends with the connection, so never outlives us."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
        (taken,) = cursor.fetchone()
    held = connection.connection
    try:
        yield taken
    finally:
        if taken and not _is_lost(held):
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


class BrokerAway(Exception):  # noqa: N818  # it is an answer, with a sentence for people
    """No worker can be reached now; the message says what to do."""


def ask_for_run(
    requested_by: str, now: datetime, month: str = "", *, close: bool = False
) -> ReportRun:
    """Queue a run, or return the unfinished run for the same months or range.

    Raises MonthError, ReportRefused and BrokerAway.
    """
    if month:
        Month.parse(month)  # PostgreSQL cannot be asked for every text
    with transaction.atomic(), connection.cursor() as cursor:
        # Who asks at the same time waits until this run is stored.
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_ASKING])
        same = ReportRun.objects.filter(kind="", month=month, close=close)
        if found := next((run for run in same.filter(_under_way(now)) if _goes_on(run)), None):
            return found
        note_sending()
        run = request_run("demand", requested_by, now, settings.REPORT_ZONE, month, close=close)
    return _send(run, now)


def _under_way(now: datetime) -> Q:
    """Return the condition of runs that are in progress or, by the database, will begin soon."""
    waits = Q(state=ReportRun.State.QUEUED, requested_at__gt=now - _WAITS)
    return waits | Q(state=ReportRun.State.RUNNING)


def _goes_on(run: ReportRun) -> bool:
    """Return whether the process of this run is alive: a dead process leaves its run behind, but no
    lock."""
    if run.state == ReportRun.State.QUEUED:
        return True
    with connection.cursor() as cursor:
        cursor.execute(_IS_HELD, [_LOCK])
        return bool(cursor.fetchone()[0])


def ask_for_range(file: RangeFile, requested_by: str, now: datetime) -> ReportRun:
    """Ask a worker for the file of a range. Raises BrokerAway."""
    with transaction.atomic():
        note_sending()
        run = request_range(file, "demand", requested_by, now)
    return _send(run, now)


def _send(run: ReportRun, now: datetime) -> ReportRun:
    from kombu.exceptions import KombuError, OperationalError

    from ipuhub.celery import app

    try:
        app.send_task("usage.make_reports", [run.pk])
    except (KombuError, OperationalError, OSError) as error:
        _LOG.warning("the task queue is unavailable", error=str(error))
        sentence = "The task queue is unavailable, so reports cannot be generated. Try again later."
        _end(run, ReportRun.State.FAILED, sentence, now)
        raise BrokerAway(sentence) from error
    return run
