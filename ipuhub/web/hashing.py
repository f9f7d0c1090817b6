"""glue: passwords are hashed by a few threads at a time, so that the others serve.

A hash is half a second of a processor on purpose. Whoever sends many passwords at once would take
every thread and every processor with them.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher

from ipuhub.web.problems import busy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

RETRY_SECONDS: Final = 5
_SENTENCE: Final = f"Too many users are signing in. Try again in {RETRY_SECONDS} seconds."


class TooManyHashes(Exception):  # noqa: N818  # the callers' doing
    """As many passwords as may be are hashed or wait for it."""


class Places:
    """`running` at a time, and `waiting` behind them; who comes beyond that is refused."""

    def __init__(self, running: int, waiting: int) -> None:
        self._running = threading.BoundedSemaphore(running)
        self._all = threading.BoundedSemaphore(running + waiting)

    @classmethod
    def of(cls, threads: int) -> Places:
        """Return those of a process with so many threads: half of them at most."""
        running = max(1, threads // 4)
        return cls(running, max(0, threads // 2 - running))

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold a place. Raises TooManyHashes."""
        if not self._all.acquire(blocking=False):
            raise TooManyHashes
        try:
            with self._running:
                yield
        finally:
            self._all.release()


PLACES: Final = Places.of(settings.WEB_THREADS)


class BoundedHasher(PBKDF2PasswordHasher):
    """Django's own, PLACES at a time; its hashes are the same."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        """Hash. Raises TooManyHashes."""
        with PLACES.one():
            return super().encode(password, salt, iterations)


class RefuseTooManyHashes:
    """Middleware: says when to come again."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self._get_response(request)

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponseBase | None:
        """Answer 503 with `Retry-After` instead of the page that hashes a password."""
        if not isinstance(exception, TooManyHashes):
            return None
        refusal = busy(request, _SENTENCE, "Too many sign-ins now")
        refusal["Retry-After"] = str(RETRY_SECONDS)
        return refusal
