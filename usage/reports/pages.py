"""glue: the page of month reports: list, files, runs on demand, and ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from ipuhub.heartbeats import WORKER
from ipuhub.models import Heartbeat
from ipuhub.times import HEARTBEAT_STALE_SECONDS
from ipuhub.web.access import is_admin, require_accountant, signed_in
from ipuhub.web.audit import author_of
from ipuhub.web.pollcache import cached_until_rows_change
from ipuhub.web.problems import takes
from ipuhub.web.refusals import note_refusal
from ipuhub.web.requests import fragment_etag, not_modified, tagged, wants_fragment
from usage.models import MonthReport, ReportRun, ReportState
from usage.rates.pricing import money_of
from usage.reports.asking import ask_for_file, ask_for_month
from usage.reports.columnmeanings import ONLY_DETAILS, SUMMARY
from usage.reports.making import ReportRefused
from usage.reports.outdated import outdated_reports, outdated_runs
from usage.reports.review import review_month
from usage.reports.runs import BrokerAway, read_range
from usage.time.months import bad_seams, bounds_of
from usage.time.windows import Month, MonthError, WindowError

if TYPE_CHECKING:
    from datetime import datetime

    from django.http import HttpRequest, HttpResponse

    from usage.reports.outdated import Outdated

_SHOWN = 240
_MIDNIGHT = "0 0 * * *"
_SHOWN_RANGES = 5
_COLOURS = {"open": "blue", "provisional": "yellow", "closed": "green", "correction": "orange"}
_TYPE_IT = (
    "Nothing was closed: a closed month never changes. Type the month as the review names it, for "
    "example 2026-10."
)
_REFUSALS = (MonthError, WindowError, ReportRefused, BrokerAway)


@require_safe
@signed_in
@takes()
@cached_until_rows_change
def reports(request: HttpRequest) -> HttpResponse:
    """Show the reports, or only the list for a poll. Raises PermissionDenied."""
    require_accountant(request.user)
    context = _content(request)
    tag = context["etag"]
    unchanged = not_modified(request, tag)
    if unchanged is not None:
        return unchanged
    template = "usage/_reports.html" if wants_fragment(request) else "usage/reports.html"
    return tagged(request, render(request, template, context), tag)


@require_POST
@signed_in
def make_reports(request: HttpRequest) -> HttpResponse:
    """Ask for a run and go back to the page, which shows its progress; closing takes the month's
    name, typed. Raises PermissionDenied."""
    require_accountant(request.user)
    month, close = request.POST.get("month", ""), request.POST.get("close") == "yes"
    try:
        if close and request.POST.get("typed", "").strip() != month:
            raise ReportRefused(_TYPE_IT)
        ask_for_month(author_of(request), month, close=close)
    except _REFUSALS as error:
        note_refusal(request, str(error))
        messages.error(request, str(error))
    return redirect("usage:reports")


@require_safe
@signed_in
@takes()
def review(request: HttpRequest, month: str) -> HttpResponse:
    """Show what to check before a month is closed; redirect to the list if there is nothing to
    close.

    Raises PermissionDenied.
    """
    require_accountant(request.user)
    try:
        reviewed = review_month(Month.parse(month))
    except (MonthError, ReportRefused) as error:
        messages.error(request, str(error))
        return redirect("usage:reports")
    return render(request, "usage/review.html", {"month": month, "review": reviewed})


@require_POST
@signed_in
def make_range(request: HttpRequest) -> HttpResponse:
    """Start a run for the file of a range and return to the page; a refused form is shown again.

    Raises PermissionDenied.
    """
    require_accountant(request.user)
    fields = {name: str(value).strip() for name, value in request.POST.items()}
    now = timezone.now()
    try:
        ask_for_file(author_of(request), read_range(fields, now, settings.REPORT_ZONE))
    except _REFUSALS as error:
        note_refusal(request, str(error))
        context = _content(request) | {"asked": fields, "problem": str(error)}
        return render(request, "usage/reports.html", context, status=400)
    return redirect("usage:reports")


def _content(request: HttpRequest) -> dict[str, Any]:
    """Return the context of the page and of its list, with the `etag` of the list."""
    found = list(MonthReport.objects.order_by("-month", "-version")[:_SHOWN])
    outdated = outdated_reports(found)
    newest = ReportRun.objects.order_by("-requested_at", "-id")
    run = newest.filter(kind="").first()
    ranges = list(newest.exclude(kind="")[:_SHOWN_RANGES])
    outdated_files = outdated_runs(ranges)
    now = timezone.now()
    silent_since = _silent_since(now) if any(map(_is_queued, (run, *ranges))) else None
    return {
        "reports": [_row(each, outdated[each.pk]) for each in found],
        # A month and its corrections have the same bounds.
        "seams": bad_seams(found),
        "notes": list(dict.fromkeys(note for each in found if (note := bounds_of(each).note))),
        "columns": [("Summary", SUMMARY), ("More in details", ONLY_DETAILS)],
        "states": [(state.value, state.label, _COLOURS[state.value]) for state in ReportState],
        "run": run,
        "ranges": [(each, outdated_files.get(each.pk, [])) for each in ranges],
        "zone": settings.REPORT_ZONE.key,
        # Empty: every day at midnight.
        "schedule": settings.REPORT_SCHEDULE.removeprefix(_MIDNIGHT),
        "now": now,
        "silent_since": silent_since,
        "sees_system": is_admin(request.user),
        "etag": fragment_etag(
            request,
            [(each.pk, each.version) for each in found],
            run and _shown(run),
            silent_since,
            [(*_shown(each), each.has_file) for each in ranges],
            [[each.message for each in found] for found in outdated.values()],
            [[each.message for each in found] for found in outdated_files.values()],
        ),
    }


def _is_queued(run: ReportRun | None) -> bool:
    return run is not None and run.state == ReportRun.State.QUEUED


def _silent_since(now: datetime) -> datetime | None:
    """Return the last heartbeat of a worker that is down; None: it is alive, or never was there."""
    last = Heartbeat.objects.filter(name=WORKER).values_list("at", flat=True).first()
    is_silent = last and (now - last).total_seconds() > HEARTBEAT_STALE_SECONDS
    return last if is_silent else None


def _shown(run: ReportRun) -> tuple[Any, ...]:
    return (run.pk, run.state, run.done, run.message)


def _row(report: MonthReport, outdated: list[Outdated]) -> dict[str, Any]:
    return {
        "report": report,
        "outdated": outdated,
        "colour": _COLOURS[report.state],
        "money": money_of(report.cost, report.tariff),
        "digests": sorted(report.digests.items()),
    }
