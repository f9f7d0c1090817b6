"""io: the current queue position of a job that waits for IPUs. A composition root: joins the apps.

The job's message contains only what is stable. Values that depend on other jobs are computed on
each read: the position from the recorded jobs, the free IPUs from the V-IPU Proxy.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

from dashboard.fleetkept import jobs_in
from dashboard.fleetmap import Reader, read_holdings
from dashboard.fleetqueue import current_fits, queue_lines, silent_of
from dashboard.job.diagnosis import Place
from dashboard.live import live_reader
from partitions.stats import stat_table

if TYPE_CHECKING:
    from datetime import datetime

    from ipuhub.web.access import Scope
    from jobs.models import JobRecord
    from partitions.fleetjson import FleetJson


def read_place(job: JobRecord, scope: Scope, now: datetime) -> Place | None:
    """Return it for a job of `find_job`; None where it does not wait for IPUs. Costs no query."""
    before = job.past.asking_before
    if before is None:
        return None
    state = live_reader().read(now)
    reading = state.fleet
    reader = Reader(scope.covers, scope.sees_all, now)
    jobs = jobs_in(state, scope, now)
    holdings = read_holdings(reading.value.get("controllers") or (), jobs, reader)
    lines = queue_lines(reading.value, jobs, holdings)
    asking = reading.value.get("queue") or ()
    line = next(
        (line for each, line in zip(asking, lines, strict=True) if each["uid"] == job.uid), None
    )
    if line is not None and line.is_open and (ran := job.past.typical_seconds):
        line = replace(line, typical=(median(ran), len(ran)))
    fits = {each["size"]: each["count"] for each in current_fits(reading.value)}
    stats = reading.value.get("stats")
    silent = silent_of(reading.value)
    known = bool(fits) and (not silent or (line is not None and line.has_block))
    return Place(
        before=before,
        line=line,
        queue=sum(1 for each in lines if each.position),
        free=stat_table(stats, scope.covers, sees_all=scope.sees_all).available if stats else None,
        largest_free=max((size for size, count in fits.items() if count), default=0)
        if known
        else None,
        largest=max(fits, default=0),
        free_as_of=reading.read_at if reading.problem else _heard(reading.value, now),
        problem=reading.sentence(in_full=scope.sees_all),
        out_of_service=reading.value.get("outOfService") or "",
        fleet=reading.value,
        holdings=holdings,
    )


def _heard(fleet: FleetJson, now: datetime) -> datetime | None:
    """Return when the silent controllers, whose free IPUs are counted, too, last answered: the
    longest ago. None: all of them answer."""
    controllers = fleet.get("controllers") or ()
    ages = [each.get("ageSeconds") for each in controllers if not each["reachable"]]
    return now - timedelta(seconds=max(age or 0 for age in ages)) if ages else None
