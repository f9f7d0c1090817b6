"""glue: what browsers and caches in between may keep of our answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.cache import patch_vary_headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase


class KeepPrivate:
    """Middleware: every answer that says nothing itself is for its reader alone, and is asked for
    again each time.

    What a page shows depends on who asks: without these headers a cache in front may guess how
    long an answer lasts and hand one user's page to another.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer the request."""
        answer = self._get_response(request)
        answer.headers.setdefault("Cache-Control", "private, no-cache")
        patch_vary_headers(answer, ("Cookie", "Authorization", "HX-Request"))
        return answer
