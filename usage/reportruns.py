"""glue: a run makes the reports that are due; one at a time, and it says how far it is."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from django.utils import timezone

from ipuhub.months import Month
from usage.makereports import ReportRefused, due_months, make_month, state_of
from usage.models import ReportRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from usage.models import MonthReport

_LOG = structlog.get_logger(__name__)
_LOCK: Final = 0x1B_0A_0A_01  # the advisory lock of report runs, in this database only
BUSY: Final = "Another run is making the reports: see it above, and try again when it is done."
_LOST: Final = "The process that made it ended before the run did."


def request_run(
    cause: str, requested_by: str, now: datetime, zone: ZoneInfo, month: str = ""
) -> ReportRun:
    """Store a run for a worker to do. Raises MonthError and ReportRefused for a bad month."""
    if month:
        state_of(Month.parse(month), now, zone)
    return ReportRun.objects.create(
        cause=cause, requested_by=requested_by, requested_at=now, month=month
    )


def do_run(
    run: ReportRun, zone: ZoneInfo, clock: Callable[[], datetime] = timezone.now
) -> list[MonthReport]:
    """Make what `run` asks for, writing into it what happens; never raises for one bad month."""
    with _alone() as alone:
        if not alone:
            _end(run, ReportRun.State.REFUSED, BUSY, clock())
            return []
        now = clock()
        lost = ReportRun.objects.filter(state=ReportRun.State.RUNNING).exclude(pk=run.pk)
        lost.update(state=ReportRun.State.FAILED, message=_LOST, finished_at=now)
        months = [Month.parse(run.month)] if run.month else due_months(now, zone)
        run.state, run.started_at = ReportRun.State.RUNNING, now
        # Claimed but not yet alone, it may have been taken for lost by the run before it.
        run.message, run.finished_at = "", None
        run.months = [str(month) for month in months]
        run.save()
        return _make_all(run, months, zone, clock)


def _make_all(
    run: ReportRun, months: list[Month], zone: ZoneInfo, clock: Callable[[], datetime]
) -> list[MonthReport]:
    made, faults = [], []
    for month in months:
        _progress(run, f"making {month}")
        try:
            made.append(make_month(month, clock(), zone))
        except ReportRefused as refusal:
            faults.append(str(refusal))
        except (DatabaseError, ValueError, OverflowError) as error:
            _LOG.exception("a month's report failed", month=str(month))
            faults.append(f"{month} failed: {_first_line(error)}")
        run.done += 1
    state = ReportRun.State.FAILED if faults else ReportRun.State.DONE
    _end(run, state, " ".join(faults), clock())
    return made


def _progress(run: ReportRun, message: str) -> None:
    run.message = message
    run.save(update_fields=["message", "done"])


def _end(run: ReportRun, state: ReportRun.State, message: str, now: datetime) -> None:
    run.state, run.message, run.finished_at = state, message, now
    run.save()


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def _alone() -> Iterator[bool]:
    """Hold the lock of runs if it is free; it ends with the connection, so never outlives us."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
        (taken,) = cursor.fetchone()
    try:
        yield taken
    finally:
        if taken:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


class BrokerAway(Exception):  # noqa: N818  # it is an answer, with a sentence for people
    """No worker can be asked now; the message says what to do."""


def ask_for_run(requested_by: str, now: datetime, month: str = "") -> ReportRun:
    """Ask a worker for a run. Raises MonthError, ReportRefused and BrokerAway."""
    from kombu.exceptions import KombuError, OperationalError

    from ipuhub.celery import app

    run = request_run("demand", requested_by, now, settings.REPORT_ZONE, month)
    try:
        app.send_task("usage.make_reports", [run.pk])
    except (KombuError, OperationalError, OSError) as error:
        _LOG.warning("the broker is away", error=str(error))
        sentence = "The task broker is away: nobody can be asked to make reports. Try again later."
        _end(run, ReportRun.State.FAILED, sentence, now)
        raise BrokerAway(sentence) from error
    return run
