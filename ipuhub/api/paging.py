"""glue: pagination of the API's lists, with a link to the next page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from ipuhub.web.filters import SORT, order_named
from ipuhub.web.keyset import CursorError, Order, read_page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from django.db.models import QuerySet
    from rest_framework.request import Request
    from rest_framework.views import APIView

PAGE_SIZE, MAX_PAGE_SIZE = 100, 1000


class KeysetPagination(BasePagination):
    """`{"next": url or null, "results": [...]}` in the order of the view's `ordering`."""

    _next: str | None = None

    def paginate_queryset(
        self, queryset: QuerySet[Any], request: Request, view: APIView | None = None
    ) -> list[Any]:
        """Return one page of rows. Raise ValidationError if cursor or size is invalid."""
        size = page_size(request.query_params.get("page_size"))
        order = order_of(view, request)
        try:
            page = read_page(queryset, order, request.query_params.get("cursor", ""), size)
        except CursorError as error:
            raise ValidationError({"cursor": [str(error).removeprefix("cursor: ")]}) from error
        if page.next_cursor:
            address = request.build_absolute_uri()
            self._next = replace_query_param(address, "cursor", page.next_cursor)
        return list(page.rows)

    def get_paginated_response(self, data: Any) -> Response:
        """Return the page with the link to the next."""
        return Response({"next": self._next, "results": data})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        link = {"type": ["string", "null"], "format": "uri", "description": "Next page."}
        return {
            "type": "object",
            "required": ["next", "results"],
            "properties": {"next": link, "results": schema},
        }

    def get_schema_operation_parameters(self, view: APIView) -> list[dict[str, Any]]:
        names = [sign + name for name in _sorts_of(view) for sign in ("", "-")]
        sort = {"type": "string", "enum": names}
        size = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE, "default": PAGE_SIZE}
        return [
            _parameter("cursor", "Cursor of the page, from `next`.", {"type": "string"}),
            _parameter("page_size", "Number of rows per page.", size),
            *([_parameter(SORT, "Order of the rows; `-`: descending.", sort)] if names else []),
        ]


def order_of(view: APIView | None, request: Request) -> Order:
    """Return the order that `sort` names, or the view's own. `sort` has to be valid."""
    order = Order(getattr(view, "ordering", ("created_at", "id")))
    sorts = _sorts_of(view)
    return order_named(sorts, request.query_params.get(SORT, ""), order) if sorts else order


def _sorts_of(view: APIView | None) -> Mapping[str, Order]:
    sorts: Mapping[str, Order] = getattr(getattr(view, "filterset_class", None), "sorts", {})
    return sorts


def _parameter(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "required": False,
        "in": "query",
        "description": description,
        "schema": schema,
    }


def refuse_cursor(text: str | None) -> None:
    """Raise ValidationError if a request for a file has a cursor."""
    if text:
        raise ValidationError({"cursor": ["files have no pages. Leave this parameter out."]})


def page_size(text: str | None) -> int:
    """Return the rows of a page. Raises ValidationError."""
    if not text:
        return PAGE_SIZE
    if not (
        text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MAX_PAGE_SIZE
    ):
        message = f"must be a whole number from 1 to {MAX_PAGE_SIZE}, not {text!r}."
        raise ValidationError({"page_size": [message]})
    return int(text)
