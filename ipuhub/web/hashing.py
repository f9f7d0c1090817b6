"""glue: limit on concurrent password hashing, so that other threads keep serving.

A hash takes half a second of CPU time on purpose. Many passwords sent at once would occupy every
thread and every core.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from django.conf import settings
from django.contrib.auth.hashers import PBKDF2PasswordHasher

if TYPE_CHECKING:
    from collections.abc import Iterator


class TooManyHashes(Exception):  # noqa: N818  # the callers' doing
    """The limits of running and waiting hashes are reached."""


class Places:
    """`running` at a time, and `waiting` behind them; who comes beyond that is refused."""

    def __init__(self, running: int, waiting: int) -> None:
        self._running = threading.BoundedSemaphore(running)
        self._all = threading.BoundedSemaphore(running + waiting)

    @classmethod
    def of(cls, threads: int) -> Places:
        """Return the slots of a process with `threads` threads: at most half of them."""
        running = max(1, threads // 4)
        return cls(running, max(0, threads // 2 - running))

    @contextmanager
    def reserved(self) -> Iterator[None]:
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
    """Django's hasher, limited to PLACES at a time; the hashes are the same."""

    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        """Hash. Raises TooManyHashes."""
        with PLACES.reserved():
            return super().encode(password, salt, iterations)
