"""glue: the queue in the API: page by page, and whole as a file."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.utils.urls import replace_query_param

from dashboard.fleetkept import board_of, known_of_reading
from dashboard.live import live_reader
from dashboard.queue.lines import COLUMNS, WaitingJobSerializer, queue_file, record_of
from dashboard.queue.typical import with_typical_runs
from ipuhub.api.auth import IsSignedIn
from ipuhub.api.paging import MAX_PAGE_SIZE, PAGE_SIZE, page_size, refuse_cursor
from ipuhub.api.parsing import AnyAccept
from ipuhub.api.views import FORMS, JSON, LiveView, form_of, without
from ipuhub.web.access import scope_of
from ipuhub.web.keyset import as_cursor, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from dashboard.fleetqueue import Waiting

_PAGES = [
    OpenApiParameter("cursor", str, description="Cursor of the page, from `next`."),
    OpenApiParameter(
        "page_size",
        {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": PAGE_SIZE},
        description="Number of rows per page.",
    ),
]


class QueueSerializer(serializers.Serializer[Any]):
    """A page of the queue as of `read_at`; `problem` says why it is not current, `policy` is the
    order of service."""

    read_at = serializers.DateTimeField(allow_null=True)
    problem = serializers.CharField(allow_blank=True)
    policy = serializers.CharField(allow_blank=True)
    next = serializers.URLField(allow_null=True)
    results = WaitingJobSerializer(many=True)


class QueueView(LiveView):
    """The jobs that wait for IPUs, in the order of service, then those that can never be served."""

    permission_classes = (IsSignedIn,)
    content_negotiation_class = AnyAccept
    formats = FORMS
    columns = COLUMNS
    parameters = frozenset({"cursor", "page_size", "format"})

    @extend_schema(
        operation_id="queue",
        summary="The queue",
        tags=["fleet"],
        parameters=_PAGES,
        responses=QueueSerializer,
    )
    def get(self, request: Request, **_form: str) -> HttpResponseBase:
        """Return a page, or all as a file. Raises BadFilter and ValidationError."""
        form, now, scope = form_of(request), timezone.now(), scope_of(request.user)
        size, cursor = page_size(request.query_params.get("page_size")), _cursor_of(request)
        state = live_reader().read(now)
        if form != JSON:
            refuse_cursor(cursor)
            lines = board_of(state, scope, now).value.queue
            return queue_file(form, with_typical_runs(lines, scope, now))
        own = request._request  # noqa: SLF001  # DRF hides Django's
        if same := known_of_reading(own, state, scope, now):
            return same
        reading, board = state.fleet, board_of(state, scope, now).value
        remaining = _after(board.queue, cursor)
        page = with_typical_runs(remaining[:size], scope, now)
        address = request.build_absolute_uri()
        given = board.queue[: len(board.queue) - len(remaining) + size]
        following = _cursor(given) if len(remaining) > size else ""
        data = QueueSerializer(
            {
                "read_at": reading.read_at,
                "problem": reading.sentence(in_full=scope.sees_all),
                "policy": board.policy,
                "next": replace_query_param(address, "cursor", following) if following else None,
                "results": [record_of(line) for line in page],
            }
        ).data
        return self.answer(request, data, without(data, "read_at"), reading.read_at)


def _cursor_of(request: Request) -> str:
    return str(request.query_params.get("cursor", ""))


def _place(line: Waiting) -> tuple[bool, str]:
    """The place of a line: the queue is in the order of these, and may shrink between two pages."""
    return line.position == 0, line.since.astimezone(dt.UTC).isoformat() if line.since else ""


def _cursor(given: Sequence[Waiting]) -> str:
    """Return the cursor after these lines: the place of the last, and how many have this place."""
    place = _place(given[-1])
    return as_cursor([*place, sum(_place(each) == place for each in given)])


def _after(lines: Sequence[Waiting], cursor: str) -> list[Waiting]:
    """Return the lines after the cursor, all without one. Raises ValidationError."""
    if not cursor:
        return list(lines)
    try:
        is_never, since, given = values_of(cursor)
        if (type(is_never), type(since), type(given)) != (bool, str, int) or given < 0:
            raise TypeError(cursor)
    except (ValueError, TypeError, RecursionError):
        reason = "not a cursor of this list. Start again without it."
        raise ValidationError({"cursor": [reason]}) from None
    place = (is_never, since)
    same = [line for line in lines if _place(line) == place]
    return [*same[given:], *(line for line in lines if _place(line) > place)]
