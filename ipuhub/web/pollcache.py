"""glue: answers with 304 without computing an answer again while its inputs are unchanged.

A view reads the `Basis` of its answer before the answer, and the middleware keeps the answer's ETag
with it. An answer to the same reader at the same address with the same basis is the same answer, so
its ETag is known.

A snapshot of PostgreSQL names the transactions whose rows a statement sees. While the snapshot
stays the same, every SELECT returns the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Final

from django.db import connection
from django.http import HttpResponseNotModified
from django.utils import timezone
from django.utils.http import parse_etags

from ipuhub.web.requests import wants_fragment

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

LATEST_SECONDS: Final = 10
"""Maximum delay of changes by time alone, such as the warning of a silent prober."""
_MOST: Final = 4096
BASIS: Final = "_ipuhub_basis"
"""The attribute of a request with the basis of its answer."""


@dataclass(frozen=True, slots=True)
class Basis:
    """The `values` that determine an answer to a reader at an address, read at `since`. From
    `until` on, time alone may change the answer (None: never)."""

    values: tuple[object, ...]
    since: datetime
    until: datetime | None = None

    def holds(self, other: Basis) -> bool:
        """Return whether an answer of this basis is still current if `other` is the basis now."""
        is_in_time = self.until is None or self.since <= other.since < self.until
        return self.values == other.values and is_in_time


_seen: Final[dict[tuple[object, ...], tuple[str, Basis]]] = {}
_lock: Final = Lock()


def known_unchanged(request: HttpRequest, *bases: Basis) -> HttpResponseBase | None:
    """Return a 304 if the reader has the answer and one of these is still its basis, else None."""
    sent = {_opaque(tag) for tag in parse_etags(request.headers.get("If-None-Match", ""))}
    if not sent:
        return None
    with _lock:
        tag, known = _seen.get(_place(request), ("", None))
    if known is None or _opaque(tag) not in sent or not any(map(known.holds, bases)):
        return None
    return HttpResponseNotModified(headers={"ETag": tag, "Cache-Control": "private, no-cache"})


def note_basis(request: HttpRequest, basis: Basis | None) -> None:
    """Note the basis of the answer; None: unknown, so the next request computes it again."""
    setattr(request, BASIS, basis)


def keep_tag(request: HttpRequest, answer: HttpResponseBase) -> None:
    """Keep the ETag of an answer whose basis is noted."""
    basis, tag = getattr(request, BASIS, None), answer.headers.get("ETag")
    if basis is None or not tag or answer.status_code not in {200, 304}:
        return
    with _lock:
        if len(_seen) >= _MOST:
            _seen.clear()
        _seen[_place(request)] = (tag, basis)


def rows_now() -> str | None:
    """Return the snapshot of PostgreSQL; None in a transaction, which has changes of its own that
    its snapshot does not name."""
    if connection.in_atomic_block:
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_snapshot()::text")
        return str(cursor.fetchone()[0])


def known_by_rows(
    request: HttpRequest, now: datetime, rows: str | None, *values: object
) -> HttpResponseBase | None:
    """Return a 304 if the reader has the answer, and neither `rows_now` nor these values differ;
    else None, and the answer's ETag is kept unless the view calls `note_live_data`."""
    if rows is None:
        return None
    basis = Basis((rows, *values), now)
    note_basis(request, basis)
    return known_unchanged(request, basis)


def for_seconds(now: datetime, *values: object) -> Basis:
    """Return the basis of an answer in which a change by time alone may be a little late."""
    return Basis(values, now, now + timedelta(seconds=LATEST_SECONDS))


def cached_until_rows_change(
    view: Callable[..., HttpResponseBase],
) -> Callable[..., HttpResponseBase]:
    """Answer polls of a view with 304 while the database has not changed since the client's copy
    was read.

    The view must depend only on rows, settings and the time, unless it calls `note_live_data`.
    """

    @wraps(view)
    def answered(request: HttpRequest, *arguments: object, **options: object) -> HttpResponseBase:
        if not wants_fragment(request) or (rows := rows_now()) is None:
            return view(request, *arguments, **options)
        basis = for_seconds(timezone.now(), rows)
        if same := known_unchanged(request, basis):
            return same
        note_basis(request, basis)
        return view(request, *arguments, **options)

    return answered


def note_live_data(request: HttpRequest) -> None:
    """Note that the answer contains what no snapshot covers, such as live data of another process
    or a sum that grows by the second."""
    note_basis(request, None)


def _opaque(tag: str) -> str:
    """A compressed answer's tag is the weak one."""
    return tag.removeprefix("W/")


def _place(request: HttpRequest) -> tuple[object, ...]:
    return (
        request.user.pk,
        wants_fragment(request),
        request.headers.get("Accept", ""),
        request.build_absolute_uri(),
    )
