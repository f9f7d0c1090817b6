"""glue: the Celery tasks of usage. Their outcome is stored in ReportRun, not in a Celery result."""

from __future__ import annotations

import time
from typing import Final

import structlog
from celery import shared_task
from django.conf import settings
from django.utils import timezone

from usage.models import ReportRun
from usage.reports.ranges import delete_expired
from usage.reports.runs import do_range, do_run, refuse_run, request_run
from usage.retention.purging import PurgeRefused, make_plan, purge, retention
from usage.sums.rollups import refresh
from usage.time.months import clock_problem
from usage.utilization import rollups as utilization

_LOG = structlog.get_logger(__name__)
_HOURS_SECONDS: Final = 20.0
"""How long a task adds up hours of the past: a worker does one task at a time."""


@shared_task(name="usage.make_reports")  # type: ignore[untyped-decorator]
def make_reports(run_id: int) -> None:
    """Run the run with this number, unless another worker did."""
    waiting = ReportRun.objects.filter(pk=run_id, state=ReportRun.State.QUEUED)
    # Claimed by a conditional update: a message that is delivered twice finds nothing to do.
    if not waiting.update(state=ReportRun.State.RUNNING, started_at=timezone.now()):
        _LOG.warning("no such run waits", run=run_id)
        return
    run = ReportRun.objects.get(pk=run_id)
    if run.kind:
        do_range(run, settings.REPORT_ZONE)
    else:
        _make_months(run)


@shared_task(name="usage.make_daily_reports")  # type: ignore[untyped-decorator]
def make_daily_reports() -> None:
    """Make the reports of this and last month, close older months and correct closed months."""
    delete_expired()
    _make_months(request_run("daily", "", timezone.now(), settings.REPORT_ZONE))


def _make_months(run: ReportRun) -> None:
    now = timezone.now()
    if problem := clock_problem(now):
        refuse_run(run, problem, now)
    else:
        do_run(run, settings.REPORT_ZONE)


@shared_task(name="usage.sum_days")  # type: ignore[untyped-decorator]
def sum_days() -> None:
    """Compute daily totals and utilization of finished or changed days. The hours of the past take
    several tasks where there are many."""
    now, last = timezone.now(), time.monotonic() + _HOURS_SECONDS
    days = refresh(
        now,
        settings.REPORT_ZONE,
        lambda done, total: _LOG.info("hours summed", done=done, left=total - done),
        lambda: time.monotonic() < last,
    )
    if days:
        _LOG.info("days summed", days=days)
    utilization.refresh(now)


@shared_task(name="usage.purge")  # type: ignore[untyped-decorator]
def purge_old_rows() -> None:
    """Delete rows older than the retention; by default nothing."""
    now, zone = timezone.now(), settings.REPORT_ZONE
    if problem := clock_problem(now):
        _LOG.warning("nothing was purged", why=problem)
        return
    try:
        state = purge(make_plan(now, zone, retention()), now, zone)
    except PurgeRefused as error:
        _LOG.warning("nothing was purged", why=str(error))
        return
    if state is not None:
        _LOG.info("purged", before=str(state.purged_before), rows=state.counts)
