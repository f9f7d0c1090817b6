"""glue: the rate limit of the API: requests a minute of one token, or of one user with a session.

The counts are in the memory of the web process and shared by its threads. Each further web process
counts for itself, and a restart forgets the counts.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from django.conf import settings
from rest_framework.throttling import BaseThrottle

from ipuhub.models import ApiToken
from ipuhub.web.requests import add_headers

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.views import APIView

WINDOW_SECONDS: Final = 60
_MANY: Final = 1024  # callers, before callers of past windows are dropped


class State(NamedTuple):
    """The rest of a caller's limit, and the seconds until it is whole again."""

    limit: int
    remaining: int
    seconds: int
    is_exceeded: bool


class Counts:
    """Requests of each caller in a window that begins with the first of them."""

    def __init__(self) -> None:
        self._windows: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def take(self, caller: str, limit: int, now: float) -> State:
        """Count a request at `now` (monotonic seconds); a refused request is not counted."""
        with self._lock:
            end, count = self._windows.get(caller, (0.0, 0))
            if now >= end:
                self._forget_past(now)
                end, count = now + WINDOW_SECONDS, 0
            is_exceeded = count >= limit
            if not is_exceeded:
                count += 1
            self._windows[caller] = (end, count)
        return State(limit, max(0, limit - count), math.ceil(end - now), is_exceeded)

    def _forget_past(self, now: float) -> None:
        if len(self._windows) >= _MANY:
            self._windows = {name: each for name, each in self._windows.items() if each[0] > now}


COUNTS: Final = Counts()


class PerCaller(BaseThrottle):
    """Refuse a caller who is beyond IPUHUB_API_REQUESTS_PER_MINUTE (0: no limit)."""

    def allow_request(self, request: Request, _view: APIView) -> bool:
        """Count the request and return whether it is within the limit."""
        limit: int = settings.API_REQUESTS_PER_MINUTE
        caller = _caller(request)
        if not limit or not caller:
            return True
        self._state = state = COUNTS.take(caller, limit, time.monotonic())
        headers = {
            "RateLimit-Policy": f'"minute";q={state.limit};w={WINDOW_SECONDS}',
            "RateLimit": f'"minute";r={state.remaining};t={state.seconds}',
        }
        add_headers(request._request, headers)  # noqa: SLF001  # DRF hides Django's
        return not state.is_exceeded

    def wait(self) -> float:
        """Return the seconds for `Retry-After`."""
        return self._state.seconds


def _caller(request: Request) -> str:
    if isinstance(request.auth, ApiToken):
        return f"token {request.auth.pk}"
    return f"user {request.user.pk}" if request.user.is_authenticated else ""
