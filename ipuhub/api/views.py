"""glue: a list of the API that also goes out whole, as CSV or as JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from django.db.models import Model
from rest_framework.generics import ListAPIView

from ipuhub.api.filtering import PageFilterBackend
from ipuhub.api.forms import CSV, FORMS, JSON, form_of
from ipuhub.api.negotiation import AnyAccept
from ipuhub.api.paging import page_size, refuse_cursor
from ipuhub.web.exports import export, lines_download
from ipuhub.web.lists import CHUNK_ROWS, in_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.db.models import QuerySet
    from rest_framework.request import Request

    from ipuhub.web.lists import Column

_M = TypeVar("_M", bound=Model)


class FileList(ListAPIView[_M], Generic[_M]):
    """Pages as JSON; everything that passes the filters as CSV (`columns`) or as JSON lines.

    A line of JSON has the fields of a row of a page.
    """

    content_negotiation_class = AnyAccept
    formats = FORMS
    columns: ClassVar[Sequence[Column]] = ()
    file_name: ClassVar[str] = "rows"
    ordering: ClassVar[tuple[str, str]] = ("created_at", "id")

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        """Return a page, or the file. Raises BadFilter, ValidationError and PermissionDenied."""
        form = form_of(request)
        if form == JSON:
            return super().list(request, *args, **kwargs)
        page_size(request.query_params.get("page_size"))
        refuse_cursor(request.query_params.get("cursor"))
        rows = PageFilterBackend().filter_queryset(request, self.get_queryset(), self)
        ordered = rows.order_by(*(f"-{name}" for name in self.ordering))
        found = in_chunks(ordered.iterator(chunk_size=CHUNK_ROWS), self.prepare)
        if form == CSV:
            return export("csv", self.columns, found, self.file_name)
        return lines_download(self._records(found), self.file_name)

    def paginate_queryset(self, queryset: QuerySet[_M, Any]) -> Any:  # `list` is a method here
        """Return the rows of a page, prepared."""
        page = super().paginate_queryset(queryset)
        self.prepare(page or [])
        return page

    def prepare(self, rows: Sequence[_M]) -> None:
        """Add to the rows of a page, or of a part of a file, before they are written."""

    def _records(self, rows: Iterator[_M]) -> Iterator[dict[str, Any]]:
        serializer = self.get_serializer()
        for row in rows:
            yield serializer.to_representation(row)
