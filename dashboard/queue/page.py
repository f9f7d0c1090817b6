"""glue: the queue page: all waiting jobs in order of service, and the sizes that fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.core.paginator import Paginator
from django.utils import timezone
from django.views.decorators.http import require_safe

from dashboard.fleetkept import board_of, known_of_reading
from dashboard.live import live_reader
from dashboard.queue.lines import queue_file
from dashboard.queue.typical import with_typical_runs
from ipuhub.web.access import scope_of, signed_in
from ipuhub.web.exports import known_format
from ipuhub.web.filters import PAGE, BadFilter, read_page_number
from ipuhub.web.problems import bad_parameters, takes
from ipuhub.web.requests import live_page, wants_fragment

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

A_PAGE: Final = 50
"""Lines of a page."""


@require_safe
@signed_in
@takes("format", PAGE)
def queue_page(request: HttpRequest) -> HttpResponseBase:
    """Show a page of those who wait, and each size; only the changing part for htmx. `?format=` has
    all who wait."""
    try:
        kind = known_format(request.GET.get("format", ""))
        number = read_page_number(request.GET.get(PAGE, ""))
    except BadFilter as error:
        return bad_parameters(request, error.messages)
    now, scope = timezone.now(), scope_of(request.user)
    state = live_reader().read(now)
    if kind:
        return queue_file(
            kind, with_typical_runs(board_of(state, scope, now).value.queue, scope, now)
        )
    if wants_fragment(request) and (same := known_of_reading(request, state, scope, now)):
        return same
    reading, marked = state.fleet, board_of(state, scope, now)
    board = marked.value
    # A queue shrinks while it is read: a page beyond the end becomes the last page that is
    # left.
    page = Paginator(board.queue, A_PAGE).get_page(number)
    context = {
        "mark": marked.mark,
        "lines": with_typical_runs(page.object_list, scope, now),
        "number": page.number,
        "pages": page.paginator.num_pages,
        "problem": reading.sentence(in_full=scope.sees_all),
        "read_at": reading.read_at if reading.problem else None,
        "sees_all": scope.sees_all,
    }
    templates = ("queue.html", "_queue.html")
    return live_page(request, templates, context, reading.read_at, now=now, map=board)
