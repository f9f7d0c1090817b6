"""glue: the pages of one job. They remain after the job is deleted, with a note."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import Http404, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboard.actions.manifests import as_yaml
from dashboard.fleetmap import FILLS
from dashboard.job.diagnosis import diagnose, last_failure
from dashboard.job.events import newest_within
from dashboard.job.happened import SHOWN_EVENTS, read_timeline
from dashboard.job.manifests import VIEWS, difference_of, manifests_of
from dashboard.job.minimap import draw_minimap
from dashboard.job.queue import read_place
from dashboard.job.stepper import draw_stepper
from dashboard.job.tables import job_tables, usage_table
from dashboard.job.tabs import answer_tab, read_view
from dashboard.job.timeline import draw_timeline, timeline_rows
from dashboard.job.usage import read_held
from dashboard.templatetags.fleet import machine_address
from ipuhub.web.access import scope_of, signed_in
from ipuhub.web.cells import colour_of
from ipuhub.web.exports import FORMATS, export
from ipuhub.web.pollcache import cached_until_rows_change, note_live_data
from ipuhub.web.problems import bad_parameters, takes
from jobs.selectors import find_job
from partitions.vipu.topology import agent_order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from dashboard.job.tables import Table
    from jobs.models import JobRecord
    from partitions.models import PartitionLifetime

_SHOWN_MACHINES = 16  # of an IPU-Link domain
_OF_PODS = ("pods", "attempts", "partitions")


@require_safe
@signed_in
@takes("format", "table")
@cached_until_rows_change
def job_page(request: HttpRequest, uid: str) -> HttpResponseBase:
    """Show how far a job has come and what is wrong with it; or the twin of one of its tables."""
    if kind := request.GET.get("format"):
        job = find_job(scope_of(request.user), uid)
        tables = job_tables(job, read_held(job, timezone.now(), limit=None))
        return _export(kind, request.GET.get("table", "pods"), tables, job)
    view = read_view(request, uid)
    place = read_place(view.job, scope_of(request.user), view.now)
    if place:
        note_live_data(request)
    diagnosis = diagnose(view.job, view.state, view.held, place, view.now)
    minimap = place and draw_minimap(place.fleet, view.job.uid, place.holdings, FILLS[0])
    attempts = view.job.past.attempts
    context = {
        "diagnosis": diagnosis,
        "minimap": minimap,
        "is_stale": bool(place and place.problem),
        # The card says it while the job is restarted; it goes, the reason must not.
        "last_failure": None if diagnosis else last_failure(attempts),
        "stepper": draw_stepper(view.job, view.state, view.held, view.now),
        "timeline": draw_timeline(timeline_rows(view.held, attempts), view.now, attempts),
        "machines": _machines(view.held.partitions),
        "runs": [(run, colour_of(run.state)) for run in view.job.past.runs],
    }
    contents = diagnosis, minimap, view.job.past.runs
    return answer_tab(view, "detail", "jobs/_overview.html", context, *contents)


@require_safe
@signed_in
@takes()
@cached_until_rows_change
def pods_page(request: HttpRequest, uid: str) -> HttpResponseBase:
    """Show a job's pods, attempts and partitions."""
    view = read_view(request, uid)
    tables = [table for table in job_tables(view.job, view.held) if table.key in _OF_PODS]
    usage = view.held.usage
    hidden = {
        "pods": usage.pods - len(view.held.pods),
        "partitions": view.held.partition_count - len(view.held.partitions),
    }
    context = {"tables": tables, "hidden": hidden}
    return answer_tab(view, "pods", "jobs/_pods.html", context)


@require_safe
@signed_in
@takes()
@cached_until_rows_change
def events_page(request: HttpRequest, uid: str) -> HttpResponseBase:
    """Show all that happened to a job, in one order."""
    view = read_view(request, uid)
    events = read_timeline(view.job, view.happened, SHOWN_EVENTS)
    coloured = [(event, colour_of(event.state)) for event in newest_within(events, SHOWN_EVENTS)]
    context = {"events": coloured, "hidden_events": len(events) - len(coloured)}
    actions = [(event.at, event.what) for event in events if event.kind == "action"]
    return answer_tab(view, "events", "jobs/_events.html", context, actions)


@require_safe
@signed_in
@takes()
@cached_until_rows_change
def usage_page(request: HttpRequest, uid: str) -> HttpResponseBase:
    """Show what a job's pods and partitions used, and what that cost."""
    view = read_view(request, uid)
    table = usage_table(view.held, view.now)
    return answer_tab(view, "usage", "jobs/_usage.html", {"table": table})


@require_safe
@signed_in
@takes("format", "view")
@cached_until_rows_change
def yaml_page(request: HttpRequest, uid: str) -> HttpResponseBase:
    """Show the applied manifest, the effective manifest, or their difference; `?format=yaml`
    downloads it."""
    chosen = request.GET.get("view", VIEWS[0])
    if chosen not in VIEWS:
        return bad_parameters(request, [f"view: {chosen[:50]!r} is not one of {', '.join(VIEWS)}."])
    if request.GET.get("format"):
        return _download(request, uid, chosen)
    view = read_view(request, uid, manifests=True)
    manifests = manifests_of(view.job)
    context = {
        "chosen": chosen,
        "views": VIEWS,
        "shown": manifests,
        "text": as_yaml(manifests.running if chosen == "running" else manifests.applied),
        "difference": difference_of(manifests) if chosen == "diff" else (),
    }
    return answer_tab(view, "yaml", "jobs/_yaml.html", context)


def _machines(partitions: Sequence[PartitionLifetime]) -> list[tuple[str, str]]:
    """Names and addresses of the IPU-Machines that the job holds; of a job that ended, held
    last."""
    held = [each for each in partitions if not each.released_at] or [*partitions[-1:]]
    places = {(each.controller, name) for each in held for name in each.machines}
    ordered = sorted(places, key=lambda place: (place[0], agent_order(place[1])))
    return [(name, machine_address(address, name)) for address, name in ordered[:_SHOWN_MACHINES]]


def _download(request: HttpRequest, uid: str, chosen: str) -> HttpResponseBase:
    if request.GET["format"] != "yaml":
        raise Http404("A job's manifest has one form: yaml.")
    job = find_job(scope_of(request.user), uid, manifests=True)
    manifests = manifests_of(job)
    text = as_yaml(manifests.running if chosen == "running" else manifests.applied)
    answer = HttpResponse(text, content_type="application/yaml")
    answer["Content-Disposition"] = f'attachment; filename="{job.name}.yaml"'
    return answer


def _export(kind: str, key: str, tables: Sequence[Table], job: JobRecord) -> HttpResponseBase:
    table = next((table for table in tables if table.key == key), None)
    if table is None or kind not in FORMATS:
        known = ", ".join(table.key for table in tables)
        raise Http404(f"Tables of a job are {known}, and their forms {' and '.join(FORMATS)}.")
    return export(kind, table.columns, table.rows, f"{job.name}-{key}")
