"""glue: refuses query strings that are no text, instead of answering another question."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from ipuhub.web.problems import bad_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase


class RefuseUndecodableQueries:
    """Middleware: a query string that is not UTF-8 is a 400.

    Django would put a replacement character where the bytes were, and a filter would quietly ask
    for something else.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer the request."""
        query = request.META.get("QUERY_STRING", "")
        if "%" in query or not query.isascii():
            try:
                unquote_to_bytes(query.encode("latin-1", "surrogateescape")).decode()
            except UnicodeError:
                return bad_request(
                    request, "The query string is not UTF-8. Encode it and ask again."
                )
        return self._get_response(request)
