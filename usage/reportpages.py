"""glue: the page of month reports: what there is, both downloads, and a run on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from ipuhub.months import MonthError
from ipuhub.web.access import scope_of
from ipuhub.web.etag import fragment_etag, not_modified, tagged
from ipuhub.web.htmx import signed_in, wants_fragment
from usage.makereports import ReportRefused
from usage.models import MonthReport, ReportRun, ReportState
from usage.reportruns import BrokerAway, ask_for_run

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

_SHOWN_MONTHS = 120
_COLOURS = {"open": "blue", "provisional": "yellow", "closed": "green"}


@require_safe
@signed_in
def reports(request: HttpRequest) -> HttpResponse:
    """Show the reports, or just the list while somebody looks. Raises PermissionDenied."""
    _administrators_only(request)
    found = list(MonthReport.objects.order_by("-month", "-version")[:_SHOWN_MONTHS])
    run = ReportRun.objects.order_by("-requested_at", "-id").first()
    tag = fragment_etag(
        request,
        [(each.pk, each.version) for each in found],
        run and (run.pk, run.state, run.done, run.message),
    )
    unchanged = not_modified(request, tag)
    if unchanged is not None:
        return unchanged
    context = {
        "reports": [(each, _COLOURS[each.state]) for each in found],
        "states": [(state.value, state.label, _COLOURS[state.value]) for state in ReportState],
        "run": run,
        "etag": tag,
        "now": timezone.now(),
    }
    template = "usage/_reports.html" if wants_fragment(request) else "usage/reports.html"
    return tagged(render(request, template, context), tag)


@require_POST
@signed_in
def make_reports(request: HttpRequest) -> HttpResponse:
    """Ask for a run and go back to the page, which shows its progress. Raises PermissionDenied."""
    _administrators_only(request)
    try:
        ask_for_run(request.user.get_username(), timezone.now(), request.POST.get("month", ""))
    except (MonthError, ReportRefused, BrokerAway) as error:
        messages.error(request, str(error))
    return redirect("usage:reports")


def _administrators_only(request: HttpRequest) -> None:
    if not scope_of(request.user).sees_all:
        raise PermissionDenied(
            "Month reports show every namespace and are for administrators. "
            "Your own namespaces are on the usage page."
        )
