"""glue: the fleet map as a table: a row for each IPU, a page for each IPU-Link domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.core.paginator import Paginator
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboard.fleetkept import known_of_reading, rows_of
from dashboard.live import live_reader
from dashboard.templatetags.fleet import machine_address
from ipuhub.web.access import is_admin, scope_of, signed_in
from ipuhub.web.cells import make_cells
from ipuhub.web.columns import Column, columns_of
from ipuhub.web.exports import export, known_format
from ipuhub.web.filters import PAGE, BadFilter, read_page_number
from ipuhub.web.pollcache import rows_now
from ipuhub.web.problems import bad_parameters, takes
from ipuhub.web.requests import live_page, wants_fragment

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from dashboard.fleetmap import IpuRow

A_PAGE: Final = 64
"""Lines of a page."""
_SHOWN: Final = {"idle": "held, idle", "outside": "not for jobs"}


def _of(row: IpuRow, name: str) -> object:
    return getattr(row.job, name) if row.job else ""


def _job_page(row: IpuRow) -> str:
    return reverse("jobs:detail", args=[row.job_uid]) if row.job_uid else ""


def _machine_page(row: IpuRow) -> str:
    return machine_address(row.controller, row.machine) if row.machine else ""


COLUMNS: Final = (
    Column("controller", "Controller", lambda row: row.controller),
    Column("cluster", "", lambda row: row.cluster, kind="export"),
    Column("ipulink_domain", "", lambda row: row.ipulink_domain, kind="export"),
    Column("machine", "Machine", lambda row: row.machine, link=_machine_page, phone="2.1"),
    Column("position", "IPU", lambda row: row.position, kind="number", phone="1.3"),
    Column(
        "state",
        "State",
        lambda row: row.state,
        rendered=lambda row: _SHOWN.get(row.state, row.state),
        phone="1.1",
    ),
    Column("job", "Job", lambda row: _of(row, "name"), link=_job_page, phone="1.2"),
    Column("namespace", "Namespace", lambda row: _of(row, "namespace")),
    Column("group", "Group", lambda row: _of(row, "group"), sparse=True),
    Column("user", "User", lambda row: _of(row, "user"), phone="2.2"),
    Column("partition", "Partition", lambda row: row.partition, kind="code"),
    Column("held_since", "Held for", lambda row: row.since, kind="age", phone="2.3"),
    Column("workers_running", "Workers running", lambda row: _of(row, "workers"), kind="number"),
    Column("note", "Note", lambda row: row.note, kind="brief", sparse=True),
    Column("job_uid", "", lambda row: row.job_uid, kind="export"),
)


@require_safe
@signed_in
@takes("format", PAGE)
def fleet_table(request: HttpRequest) -> HttpResponseBase:
    """Show a page of the IPUs with all that the map says of each; `?format=` has all of them."""
    try:
        kind = known_format(request.GET.get("format", ""))
        number = read_page_number(request.GET.get(PAGE, ""))
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    now, scope = timezone.now(), scope_of(request.user)
    state = live_reader().read(now)
    snapshot = rows_now() if wants_fragment(request) and not kind else None
    if snapshot and (same := known_of_reading(request, state, scope, now, snapshot)):
        return same
    rows = rows_of(state, scope, now)
    if kind:
        return export(kind, COLUMNS, rows, "ipus")
    page = Paginator(rows, A_PAGE).get_page(number)
    shown_rows = list(page.object_list)
    columns = columns_of(COLUMNS, shown_rows)
    context = {
        "heads": [(column.label, column.kind) for column in columns],
        "cells": [make_cells(columns, row) for row in shown_rows],
        "total": len(rows),
        "first": page.start_index(),
        "last": page.end_index(),
        "number": page.number,
        "pages": page.paginator.num_pages,
        "problem": state.fleet.sentence(in_full=scope.sees_all),
        "sees_system": is_admin(request.user),
        "stale_since": state.fleet.read_at if state.fleet.problem else None,
    }
    templates = ("fleettable.html", "_fleettable.html")
    return live_page(request, templates, context, state.fleet.read_at, now=now)
