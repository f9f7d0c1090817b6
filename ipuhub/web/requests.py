"""glue: which answer a request wants: the page or its changing part; and who may ask at all.

ETags of what is polled: an unchanged part costs neither rendering nor transfer.

The tag is made of what the part shows (not of its HTML, in which ages tick), the user and the
release. A view reads, then tags, then renders only if it must::

    tag = fragment_etag(request, rows, count)
    return not_modified(request, tag) or tagged(render(request, template, context), tag)

The part's element carries `data-etag="{{ etag }}"`; live.js sends it back with each poll.

From which address a request comes; of proxies in front only our own are believed.

What browsers and caches in between may keep of our answers.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache, wraps
from importlib.metadata import version
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from django.contrib.auth.views import redirect_to_login
from django.http import HttpResponse, HttpResponseNotModified
from django.shortcuts import resolve_url
from django.utils.cache import patch_vary_headers
from django.utils.http import parse_etags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from ipaddress import IPv4Address, IPv4Network, IPv6Network

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase


def wants_fragment(request: HttpRequest) -> bool:
    """Whether htmx asks for the changing part; a boosted link wants the whole page."""
    headers = request.headers
    return headers.get("HX-Request") == "true" and headers.get("HX-Boosted") != "true"


def signed_in(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Let only signed-in users pass; send others to the sign-in page, from a fragment too.

    A fragment that was redirected would show the sign-in page inside the old page.
    """

    @wraps(view)
    def guarded(request: HttpRequest, *arguments: object, **options: object) -> HttpResponseBase:
        if request.user.is_authenticated:
            return view(request, *arguments, **options)
        if wants_fragment(request):
            there = f"{resolve_url('login')}?{urlencode({'next': request.get_full_path()})}"
            return HttpResponse(status=401, headers={"HX-Redirect": there})
        return redirect_to_login(request.get_full_path())

    return guarded


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


if TYPE_CHECKING:
    Address = IPv4Address | IPv6Address
    Networks = Iterable[IPv4Network | IPv6Network]


def client_address(request: HttpRequest, proxies: Networks) -> Address | None:
    """Return the client's address; None where it cannot be told.

    `X-Forwarded-For` is heeded only as far as each hop before it lies in `proxies`: its rightmost
    address that does not is the client. Anybody can write the rest.
    """
    hops = request.headers.get("X-Forwarded-For", "").split(",")
    address = _parse(request.META.get("REMOTE_ADDR", ""))
    while address is not None and lies_in(address, proxies) and any(hops):
        address = _parse(hops.pop())
    return address


def lies_in(address: Address, networks: Networks) -> bool:
    """Whether one of the networks has the address."""
    return any(address in network for network in networks)


def _parse(text: str) -> Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


class KeepPrivate:
    """Middleware: every answer that says nothing itself is for its reader alone, and is asked for
    again each time.

    What a page shows depends on who asks: without these headers a cache in front may guess how
    long an answer lasts and hand one user's page to another.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        answer = self._get_response(request)
        answer.headers.setdefault("Cache-Control", "private, no-cache")
        patch_vary_headers(answer, ("Cookie", "Authorization", "HX-Request"))
        return answer
