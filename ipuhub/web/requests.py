"""glue: requests: page or fragment, ETags and client address.

An ETag of a polled fragment saves rendering and transfer while the fragment is unchanged.

The tag is computed from the values that the fragment shows (not from its HTML, in which ages
change), the user and the release. A view reads, tags, and renders only if needed::

    tag = fragment_etag(request, rows, count)
    context |= {"etag": tag}
    return not_modified(request, tag) or tagged(request, render(request, template, context), tag)

The fragment has `data-etag="{{ etag }}"`, alone and in its page; live.js sends it back with each
poll.

The client address of a request takes only configured proxies into account.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib.metadata import version
from ipaddress import IPv6Address, ip_address
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from django.db.models import Model, QuerySet
from django.http import HttpResponseNotModified
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.utils.http import parse_etags

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from ipaddress import IPv4Address, IPv4Network, IPv6Network

    from django.http import HttpRequest, HttpResponse


ADDED_HEADERS: Final = "_ipuhub_headers"
"""The attribute of a request with headers for its answer, a dict."""
BEARER: Final = "_ipuhub_token"
"""The attribute of a request with its API token, also one whose scopes do not suffice."""
_NAMES: Final[dict[type, tuple[str, ...]]] = {}  # of dataclasses, so that a map costs 2 ms less
# What most values are: no rows are in them.
_PLAIN: Final = frozenset({str, int, float, bool, type(None), date, datetime, timedelta})


def wants_fragment(request: HttpRequest) -> bool:
    """Return whether htmx requests the fragment; a boosted link requests the whole page."""
    headers = request.headers
    return headers.get("HX-Request") == "true" and headers.get("HX-Boosted") != "true"


def note_as_of(request: HttpRequest, at: datetime | None) -> None:
    """Note of when the figures of the answer are (None: not known), for its header `X-As-Of`. A 304
    has it, too, without a text to say it."""
    if at is not None:
        add_headers(request, {"X-As-Of": f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"})


def add_headers(request: HttpRequest, headers: Mapping[str, str]) -> None:
    """Note headers for whatever the answer becomes; `KeepPrivate` writes them."""
    setattr(request, ADDED_HEADERS, {**getattr(request, ADDED_HEADERS, {}), **headers})


def fragment_etag(request: HttpRequest, *values: object) -> str:
    """Return the ETag of a fragment that shows these values (by their repr)."""
    return etag_of(request.user.pk, request.get_full_path(), *values)


def etag_of(*values: object) -> str:
    """Return the ETag of these values, by release and user."""
    return f'W/"{fingerprint(release(), *values)[:32]}"'


def fingerprint(*values: object) -> str:
    """Return a digest of values, by their repr, and of all that is stored in rows among them: the
    repr of a row only names it."""
    stored = [_stored(row) for row in _rows_in(values)]
    return hashlib.sha256(repr((values, stored)).encode()).hexdigest()


def _stored(row: Model) -> list[tuple[str, object]]:
    return [(name, value) for name, value in vars(row).items() if not name.startswith("_")]


def _rows_in(value: object) -> Iterator[Model]:
    """The rows among values, however deep."""
    pending = [value]
    while pending:
        each = pending.pop()
        kind = type(each)
        if kind in _PLAIN:
            continue
        if names := _NAMES.get(kind) or _learn_names(kind):
            pending.extend([getattr(each, name) for name in names])
        elif isinstance(each, list | tuple | set | frozenset | QuerySet):
            pending.extend(each)
        elif isinstance(each, dict):
            pending.extend(each.values())
        elif isinstance(each, Model):
            yield each


def _learn_names(kind: type) -> tuple[str, ...]:
    """The fields that the repr of a dataclass shows; none of another type."""
    if is_dataclass(kind):
        _NAMES[kind] = tuple(part.name for part in fields(kind) if part.repr)
    return _NAMES.get(kind, ())


def not_modified(request: HttpRequest, tag: str) -> HttpResponse | None:
    """Return a 304 if the browser already has the fragment, else None."""
    if not wants_fragment(request):
        return None
    if tag not in parse_etags(request.headers.get("If-None-Match", "")):
        return None
    return tagged(request, HttpResponseNotModified(), tag)


def tagged(request: HttpRequest, answer: HttpResponse, tag: str) -> HttpResponse:
    """Return `answer` with its ETag, cacheable only by the browser itself."""
    # Whole pages have messages, forms and their tokens, too, so each has a tag of its own: with the
    # tag of an earlier visit the browser would show that visit's page, without the message.
    answer["ETag"] = tag if wants_fragment(request) else f'W/"{token_hex(16)}"'
    answer["Cache-Control"] = "private, no-cache"
    patch_vary_headers(answer, ("HX-Request", "Cookie"))
    return answer


def live_page(
    request: HttpRequest,
    templates: tuple[str, str],
    facts: Mapping[str, object],
    as_of: datetime | None,
    **unmarked: object,
) -> HttpResponse:
    """Return a page with live figures, its changing part for htmx, or 304 for an unchanged part.

    `templates`: the page's and the part's. The ETag is computed from `facts`; `unmarked` values,
    such as the time, do not affect it. `as_of`: the time of the figures.
    """
    tag = fragment_etag(request, facts)
    note_as_of(request, as_of)
    if same := not_modified(request, tag):
        return same
    page, part = templates
    context = {**facts, **unmarked, "etag": tag, "as_of": as_of}
    return tagged(request, render(request, part if wants_fragment(request) else page, context), tag)


@lru_cache(maxsize=1)
def release() -> str:
    return version("ipuhub")


if TYPE_CHECKING:
    Address = IPv4Address | IPv6Address
    Networks = Iterable[IPv4Network | IPv6Network]


def client_address(request: HttpRequest, proxies: Networks) -> Address | None:
    """Return the client's address, or None if unknown.

    The client is the rightmost address in `X-Forwarded-For` that is not in `proxies`. Clients can
    forge everything to the left of it.
    """
    hops = request.headers.get("X-Forwarded-For", "").split(",")
    address = _parse(request.META.get("REMOTE_ADDR", ""))
    while address is not None and is_within(address, proxies) and any(hops):
        address = _parse(hops.pop())
    return address


def is_within(address: Address, networks: Networks) -> bool:
    """Return whether one of the networks contains the address."""
    return any(address in network for network in networks)


def _parse(text: str) -> Address | None:
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
