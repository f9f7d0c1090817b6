"""glue: the pages of one job, which stay after the job was deleted, and say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml
from django.http import Http404
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboard.job.queue import read_waiting
from dashboard.job.tables import job_tables
from dashboard.job.timeline import draw_timeline, timeline_rows
from dashboard.job.usage import read_held
from ipuhub.web.access import may_see_cost, scope_of
from ipuhub.web.exports import FORMATS, export
from ipuhub.web.lists import colour_of
from ipuhub.web.readings import judge
from ipuhub.web.requests import fragment_etag, not_modified, signed_in, tagged, wants_fragment
from jobs.selectors import NO_JOB, find_job, state_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from dashboard.job.tables import Table
    from dashboard.job.usage import Held
    from jobs.models import JobRecord

GROWS_EACH_SECONDS = 15  # how often bars and sums of a running job are drawn anew


def require_job(request: HttpRequest, uid: str) -> JobRecord:
    """Return the job; a foreign one is as unknown as none. Raises Http404 with a sentence."""
    job = find_job(scope_of(request.user), uid)
    if job is None:
        raise Http404(NO_JOB)
    return job


@require_safe
@signed_in
def job_page(request: HttpRequest, uid: str) -> HttpResponseBase:
    """Show one job, the changing part of its page, or the twin of one of its tables."""
    now = timezone.now()
    job = require_job(request, uid)
    if kind := request.GET.get("format"):
        tables = job_tables(job, read_held(job, now, limit=None))
        return _export(kind, request.GET.get("table", "pods"), tables, job)
    held = read_held(job, now, costed=may_see_cost(request.user))
    tables = job_tables(job, held)
    fresh = judge(job.past.watched_at, now)
    # What grows is not drawn anew with each second; what has ended changes with rates alone.
    grows = int(now.timestamp() // GROWS_EACH_SECONDS) if _goes_on(held) else str(held.usage.costs)
    waiting = read_waiting(job, scope_of(request.user), now)
    cells = [table.cells for table in tables]
    tag = fragment_etag(request, job.updated_at, cells, fresh, grows, waiting)
    if same := not_modified(request, tag):
        return same
    context = _context(request, job, held, now)
    context |= {"tables": tables, "freshness": fresh, "etag": tag, "waiting": waiting}
    template = "jobs/_detail.html" if wants_fragment(request) else "jobs/detail.html"
    return tagged(render(request, template, context), tag)


def _goes_on(held: Held) -> bool:
    return any(pod.scheduled_at and not pod.finished_at for pod in held.pods) or any(
        not partition.released_at for partition in held.partitions
    )


def _context(request: HttpRequest, job: JobRecord, held: Held, now: datetime) -> dict[str, Any]:
    state = state_of(job)
    return {
        "job": job,
        "state": state,
        "colour": colour_of(state),
        "ended_at": job.completed_at or job.deleted_at,
        "held": held,
        "hidden": {
            "pods": held.usage.pods - len(held.pods),
            "partitions": held.partition_count - len(held.partitions),
        },
        "here": request.get_full_path(),
        "timeline": draw_timeline(timeline_rows(held), now),
        "spec": yaml.safe_dump(job.spec, allow_unicode=True, width=100),
        "now": now,
    }


def _export(kind: str, key: str, tables: Sequence[Table], job: JobRecord) -> HttpResponseBase:
    table = next((table for table in tables if table.key == key), None)
    if table is None or kind not in FORMATS:
        known = ", ".join(table.key for table in tables)
        raise Http404(f"Tables of a job are {known}, and their forms {' and '.join(FORMATS)}.")
    return export(kind, table.columns, table.rows, f"{job.name}-{key}")
