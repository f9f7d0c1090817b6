"""glue: answers polls of pages that show only database rows without a query while no row has
changed.

A snapshot of PostgreSQL names the transactions whose rows a statement sees. While the snapshot
stays the same, every SELECT returns the same rows, so a fragment keeps its ETag without being read
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Final

from django.db import connection
from django.utils import timezone

from ipuhub.web.requests import not_modified, wants_fragment

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

LATEST_SECONDS: Final = 10
"""Maximum delay of changes by time alone, such as the warning of a silent prober."""
_MOST: Final = 4096
_LIVE: Final = "_ipuhub_shows_live"


@dataclass(frozen=True, slots=True)
class _Seen:
    """The ETag of a fragment, and the snapshot and time from before it was read."""

    tag: str
    snapshot: str
    at: datetime


_seen: Final[dict[tuple[object, str], _Seen]] = {}
_lock: Final = Lock()


def cached_until_rows_change(
    view: Callable[..., HttpResponseBase],
) -> Callable[..., HttpResponseBase]:
    """Answer polls of a view with 304 while the database has not changed since the client's copy
    was read.

    The view must depend only on rows, settings and the time, unless it calls `note_live_data`.
    """

    @wraps(view)
    def answered(request: HttpRequest, *arguments: object, **options: object) -> HttpResponseBase:
        # A transaction around the request has changes of its own, which its snapshot does not name.
        if not wants_fragment(request) or connection.in_atomic_block:
            return view(request, *arguments, **options)
        place, now, snapshot = (request.user.pk, request.get_full_path()), timezone.now(), _read()
        with _lock:
            seen = _seen.get(place)
        if seen and seen.snapshot == snapshot and _is_young(seen, now):
            same = not_modified(request, seen.tag)
            if same is not None:
                return same
        answer = view(request, *arguments, **options)
        tag = answer.headers.get("ETag")
        if tag and not getattr(request, _LIVE, False):
            _remember(place, _Seen(tag, snapshot, now))
        return answer

    return answered


def note_live_data(request: HttpRequest) -> None:
    """Note that the answer contains live data of another process, which no snapshot covers."""
    setattr(request, _LIVE, True)


def _read() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_snapshot()::text")
        return str(cursor.fetchone()[0])


def _is_young(seen: _Seen, now: datetime) -> bool:
    return abs((now - seen.at).total_seconds()) < LATEST_SECONDS


def _remember(place: tuple[object, str], seen: _Seen) -> None:
    with _lock:
        if len(_seen) >= _MOST:
            _seen.clear()
        _seen[place] = seen
