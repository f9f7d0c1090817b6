"""glue: API lists that are also available as complete CSV or JSON-lines files.

Format of an API response: JSON, CSV or JSON lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from django.db.models import Model
from django.http import HttpResponseNotModified
from django.utils import timezone
from django.utils.http import parse_etags
from rest_framework.generics import ListAPIView
from rest_framework.response import Response
from rest_framework.views import APIView

from ipuhub.api.paging import order_of, page_size, refuse_cursor
from ipuhub.api.parsing import AnyAccept, PageFilterBackend
from ipuhub.web.access import access_of
from ipuhub.web.exports import CHUNK_ROWS, export, in_chunks, lines_download
from ipuhub.web.filters import TOTAL, BadFilter, Mistake, refuse_unknown, wants_total
from ipuhub.web.pollcache import known_by_rows, rows_now
from ipuhub.web.requests import etag_of, note_as_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase
    from rest_framework.request import Request

    from ipuhub.web.columns import Column

JSON, CSV, LINES = "json", "csv", "jsonl"
FORMS = (JSON, CSV, LINES)
MEDIA_TYPES = {JSON: "application/json", CSV: "text/csv", LINES: "application/x-ndjson"}
_TYPES = {
    **{kind: form for form, kind in MEDIA_TYPES.items()},
    "application/jsonl": LINES,
}


def form_of(request: Request) -> str:
    """Return the format given by the URL, by `format` or by `Accept`, in this order; default: json.

    Raises BadFilter.
    """
    requested = [text for text in request.query_params.getlist("format") if text]
    named = str((request.parser_context or {}).get("kwargs", {}).get("form", ""))
    if named and requested and requested != [named]:
        sentence = f"the address already selects {named}. Leave the parameter out."
        raise BadFilter(Mistake("format", sentence))
    requested = [named] if named else requested
    if len(requested) > 1:
        raise BadFilter(Mistake("format", "specify it only once."))
    if requested:
        if requested[0] not in FORMS:
            sentence = f"{requested[0][:50]!r} is not one of {', '.join(FORMS)}."
            raise BadFilter(Mistake("format", sentence))
        return requested[0]
    liked = request._request.get_preferred_type(list(_TYPES))  # noqa: SLF001  # DRF hides Django's
    return _TYPES[liked] if liked else JSON


_M = TypeVar("_M", bound=Model)


class PlainView(APIView):
    """A view without a list. It refuses query parameters other than `parameters`.

    `has_etag`: its file has an ETag; JSON has one in any case."""

    parameters: ClassVar[frozenset[str]] = frozenset()
    has_etag: ClassVar[bool] = False

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check the caller, then the names. Raises BadFilter."""
        super().initial(request, *args, **kwargs)
        method = getattr(self, str(request.method).lower(), None)
        if not getattr(method, "is_idempotent", False):  # such a write refuses them itself
            refuse_unknown(dict(request.query_params.lists()), self.parameters)


def without(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the data without these fields."""
    return {name: value for name, value in data.items() if name not in names}


class LiveView(PlainView):
    """A view of data that each answer reads again. Its ETag ignores the time of reading."""

    def answer(
        self, request: Request, data: Mapping[str, Any], marked: object, as_of: datetime | None
    ) -> Response:
        """Return `data`. The ETag is computed from `marked`: `data` without times of reading.
        `as_of`: the time of the data, for the header `X-As-Of`, also of a 304."""
        note_as_of(request._request, as_of)  # noqa: SLF001  # DRF hides Django's
        return Response(data, headers={"ETag": etag_of(marked)})

    def unchanged(
        self, request: Request, marked: object, as_of: datetime | None
    ) -> HttpResponseBase | None:
        """Return a 304 if the caller has the answer with this `marked`, else None: for an answer
        that costs more than its mark."""
        tag = etag_of(marked)
        if tag not in parse_etags(request.headers.get("If-None-Match", "")):
            return None
        note_as_of(request._request, as_of)  # noqa: SLF001
        return HttpResponseNotModified(headers={"ETag": tag})


class FileList(ListAPIView[_M], Generic[_M]):
    """A list in pages as JSON, or all filtered rows as CSV (`columns`) or JSON lines.

    A JSON line has the same fields as a row of a page. `is_of_rows`: a page depends only on rows
    and `clock`, so that an unchanged page is known without reading it again.
    """

    content_negotiation_class = AnyAccept
    formats = FORMS
    columns: ClassVar[Sequence[Column]] = ()
    file_name: ClassVar[str] = "rows"
    ordering: ClassVar[tuple[str, str]] = ("created_at", "id")
    is_of_rows: ClassVar[bool] = False

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Return a page, or the file. Raises BadFilter, ValidationError and PermissionDenied."""
        form, has_total = form_of(request), wants_total(request.query_params.get(TOTAL, ""))
        if form == JSON:
            same = self._known(request) if self.is_of_rows else None
            return same or super().list(request, *args, **kwargs)
        page_size(request.query_params.get("page_size"))
        refuse_cursor(request.query_params.get("cursor"))
        rows = PageFilterBackend().filter_queryset(request, self.get_queryset(), self)
        ordered = rows.order_by(*order_of(self, request).expressions)
        found = in_chunks(ordered.iterator(chunk_size=CHUNK_ROWS), self.prepare)
        if form == CSV:
            return export("csv", self.columns, found, self.file_name, has_total=has_total)
        return lines_download(self._records(found), self.file_name)

    def paginate_queryset(self, queryset: QuerySet[_M, Any]) -> Any:  # `list` is a method here
        """Return the rows of a page, prepared."""
        page = super().paginate_queryset(queryset)
        self.prepare(page or [])
        return page

    def prepare(self, rows: Sequence[_M]) -> None:
        """Add to the rows of a page, or of a part of a file, before they are written."""

    def clock(self, now: datetime) -> object:
        """Return what the rows of a page know of the time: nothing."""

    def _known(self, request: Request) -> HttpResponseBase | None:
        now = timezone.now()
        own: HttpRequest = request._request  # noqa: SLF001  # DRF hides Django's
        return known_by_rows(own, now, rows_now(), access_of(request.user), self.clock(now))

    def _records(self, rows: Iterator[_M]) -> Iterator[dict[str, Any]]:
        serializer = self.get_serializer()
        for row in rows:
            yield serializer.to_representation(row)
