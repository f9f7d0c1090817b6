"""glue: the queue page: all waiting jobs in order of service, and the sizes that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.core.paginator import Paginator
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboard.fleet import visible_jobs_of
from dashboard.fleetmap import Reader, read_board
from dashboard.live import live_reader
from dashboard.queue.typical import with_typical_runs
from ipuhub.web.access import scope_of, signed_in
from ipuhub.web.requests import live_page

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

A_PAGE: Final = 50
"""Lines of a page."""


@require_safe
@signed_in
def queue_page(request: HttpRequest) -> HttpResponseBase:
    """Show a page of those who wait, and each size; only the changing part for htmx."""
    now, scope = timezone.now(), scope_of(request.user)
    state = live_reader().read(now)
    reader = Reader(scope.covers, scope.sees_all, now)
    board = read_board(state.fleet.value, visible_jobs_of(state, scope, now), reader)
    # A queue shrinks while it is read: a page beyond the end becomes the last page that is
    # left.
    page = Paginator(board.queue, A_PAGE).get_page(request.GET.get("page"))
    context = {
        "map": board,
        "lines": with_typical_runs(page.object_list, scope, now),
        "number": page.number,
        "pages": page.paginator.num_pages,
        "problem": state.fleet.sentence(in_full=scope.sees_all),
        "read_at": state.fleet.read_at if state.fleet.problem else None,
        "sees_all": scope.sees_all,
    }
    return live_page(request, ("queue.html", "_queue.html"), context, state.fleet.read_at, now=now)
