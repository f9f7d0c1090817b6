"""glue: ETags of what is polled: an unchanged part costs neither rendering nor transfer.

The tag is made of what the part shows (not of its HTML, in which ages tick), the user and the
release. A view reads, then tags, then renders only if it must::

    tag = fragment_etag(request, rows, count)
    return not_modified(request, tag) or tagged(render(request, template, context), tag)

The part's element carries `data-etag="{{ etag }}"`; live.js sends it back with each poll.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from django.http import HttpResponseNotModified
from django.utils.cache import patch_vary_headers
from django.utils.http import parse_etags

from ipuhub.web.requests import wants_fragment

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse


def fragment_etag(request: HttpRequest, *shown: object) -> str:
    """Return the tag of a part that shows these values (their repr decides)."""
    kind = "part" if wants_fragment(request) else "page"
    # Messages, forms and their tokens differ between visits, and only stand in whole pages.
    text = repr((kind, _release(), request.user.pk, request.get_full_path(), shown))
    return f'W/"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def not_modified(request: HttpRequest, tag: str) -> HttpResponse | None:
    """Return a 304 where htmx asks for a part that the browser has; None otherwise."""
    if not wants_fragment(request):
        return None
    if tag not in parse_etags(request.headers.get("If-None-Match", "")):
        return None
    return tagged(HttpResponseNotModified(), tag)


def tagged(answer: HttpResponse, tag: str) -> HttpResponse:
    """Return `answer` with its tag; nobody but the browser itself may keep it."""
    answer["ETag"] = tag
    answer["Cache-Control"] = "private, no-cache"
    patch_vary_headers(answer, ("HX-Request", "Cookie"))
    return answer


@lru_cache(maxsize=1)
def _release() -> str:
    return version("ipuhub")
