"""glue: values read from other processes, each with its age; the last good value during an outage.

Age of the recorded data of a page.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import structlog
from django.db import Error, connection

from ipuhub.models import WatchCheckpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import datetime

NO_CONFIG: Final = "The web process has no usable kubeconfig"
PATIENCE_SECONDS: Final = 3.0  # a page waits no longer for what another process says
_RETRY_SECONDS: Final = 3.0
_GRACE_SECONDS: Final = PATIENCE_SECONDS  # while one reads the next, others have the last
_AHEAD_SECONDS: Final = 0.25
_LONGEST_AHEAD_SECONDS: Final = 2.0  # less than what a state is kept for
_REST: Final = 20.0  # of the time that a reading takes: large ones must not burden an API server
_KEPT_SECONDS: Final = 2.5  # beyond what is fresh: a keeper that is late has that long
_WANTED_SECONDS: Final = 10.0  # pages poll every three seconds
_LOG = structlog.get_logger(__name__)
_K = TypeVar("_K")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Reading(Generic[_T]):
    """A value, when it was read, and the problem that prevents a newer value (empty: none).

    `detail` contains addresses and paths for administrators.
    """

    value: _T
    read_at: datetime | None = None
    problem: str = ""
    detail: str = ""

    def sentence(self, *, in_full: bool) -> str:
        """The problem as a sentence, with its detail only `in_full`."""
        return problem_sentence(self.problem, self.detail, in_full=in_full) if self.problem else ""


def problem_sentence(problem: str, detail: str, *, in_full: bool) -> str:
    """One sentence of both, or of the problem alone."""
    return f"{problem}: {detail}" if in_full and detail else f"{problem}."


async def attempt(
    pending: Awaitable[_T],
    last: Reading[_T],
    now: datetime,
    who: str,
    expected: tuple[type[Exception], ...],
) -> Reading[_T]:
    """Return the result of `asked`, or `last` with a sentence about `who` on an `expected`
    error."""
    errors: tuple[type[Exception], ...] = (TimeoutError, *expected)
    try:
        return Reading(await asyncio.wait_for(pending, timeout=PATIENCE_SECONDS), now)
    except errors as error:
        reason = str(error) or f"no answer within {PATIENCE_SECONDS:g} s"
        return replace(last, problem=f"{who} does not answer", detail=reason)


class Latest(Generic[_T]):
    """A state shared by all threads, refreshed at most once in `fresh_seconds`.

    `read(last, now)` returns the next state; `is_whole` says whether all sources answered. After an
    incomplete round the next round waits `_RETRY_SECONDS`, so that pages do not queue up behind a
    server that does not answer. One thread reads; the others get the last state meanwhile, for
    at most `_GRACE_SECONDS`.

    While a `LatestKeeper` reads ahead, a state is good for `kept_seconds` longer, so that no
    request reads.
    """

    def __init__(
        self,
        first: _T,
        read: Callable[[_T, datetime], _T],
        is_whole: Callable[[_T], bool],
        *,
        fresh_seconds: float = 1.0,
    ) -> None:
        self._state = first
        self._read = read
        self._is_whole = is_whole
        self._fresh_seconds = fresh_seconds
        self._asked_at: datetime | None = None
        self._lock = threading.Lock()
        self.kept_seconds = 0.0
        self.wanted_at = -math.inf
        """When a request last asked, by the monotonic clock."""

    def at(self, now: datetime) -> _T:
        """Return the state at `now`; concurrent readers share one round of requests."""
        self.wanted_at = time.monotonic()
        return self._at(now, self.kept_seconds)

    def renew(self, now: datetime) -> None:
        """Read the state if it is old, for requests to come."""
        self._at(now, 0.0)

    def _at(self, now: datetime, kept: float) -> _T:
        with _turn(self._lock, lambda: self._is_fresh(now, _GRACE_SECONDS)) as is_mine:
            if is_mine and not self._is_fresh(now, kept):
                self._state = self._read(self._state, now)
                self._asked_at = now
            return self._state

    def _is_fresh(self, now: datetime, grace: float = 0.0) -> bool:
        if self._asked_at is None:
            return False
        limit = self._fresh_seconds if self._is_whole(self._state) else _RETRY_SECONDS
        return abs((now - self._asked_at).total_seconds()) < limit + grace


class LatestKeeper:
    """A thread that keeps a `Latest` current while requests want it, so that they need not wait
    for other processes. `clock` tells the time of a reading.

    Without a request for `_WANTED_SECONDS` it reads nothing; the next request reads by itself.
    """

    def __init__(self, latest: Latest[Any], clock: Callable[[], datetime]) -> None:
        self._latest, self._clock = latest, clock
        self._over = threading.Event()
        # A daemon: a server that is silent must not keep the process from its end.
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._latest.kept_seconds = _KEPT_SECONDS
        self._thread.start()

    def stop(self) -> None:
        """Read nothing more, and wait a moment for the reading that is under way."""
        self._latest.kept_seconds = 0.0
        self._over.set()
        self._thread.join(PATIENCE_SECONDS)

    def _run(self) -> None:
        pause = _AHEAD_SECONDS
        while not self._over.wait(pause):
            began = time.monotonic()
            if began - self._latest.wanted_at < _WANTED_SECONDS:
                try:
                    self._latest.renew(self._clock())
                except Exception:  # noqa: BLE001  # the outermost frame of a thread, which continues
                    _LOG.exception("reading ahead failed")
            pause = rest_after(time.monotonic() - began)


def rest_after(seconds: float) -> float:
    """Return the seconds that a keeper rests after a reading that took so many: of thousands of
    jobs one is listed every two seconds, of a few jobs twice a second."""
    return min(max(_AHEAD_SECONDS, _REST * seconds), _LONGEST_AHEAD_SECONDS)


@contextmanager
def _turn(lock: threading.Lock, has_enough: Callable[[], bool]) -> Iterator[bool]:
    """Hold the lock, or do without it (False) while another thread does and one `has_enough`."""
    if not (is_mine := lock.acquire(blocking=False)) and not has_enough():
        is_mine = lock.acquire()
    try:
        yield is_mine
    finally:
        if is_mine:
            lock.release()


@dataclass(eq=False, slots=True)
class _Slot(Generic[_T]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    built: tuple[datetime, _T] | None = None
    began: float = 0.0
    """When the last build began, by the monotonic clock."""
    failure: Exception | None = None
    """What that build raised."""

    def renew(self, now: datetime, build: Callable[[], _T]) -> _T:
        """Build the value again, and return it; the caller holds the lock."""
        self.began, self.failure = time.monotonic(), None
        try:
            value = build()
        except Exception as error:
            self.failure = error
            raise
        self.built = (now, value)
        return value

    def check(self, asked_at: float) -> None:
        """Raise what a build raised that began after `asked_at`. Threads that waited for it would
        otherwise fail one after the other, each after the time that one build takes."""
        if self.failure is not None and self.began >= asked_at:
            raise self.failure

    def is_younger(self, now: datetime, seconds: float) -> bool:
        built = self.built
        return built is not None and abs((now - built[0]).total_seconds()) < seconds


class Shared(Generic[_K, _T]):
    """Values by key, each built by one thread and shared by all for so many seconds.

    While the next is built the others get the last value, for at most `_GRACE_SECONDS`. At most
    `most` keys are kept.
    """

    def __init__(self, seconds: float = 0.5, most: int = 256) -> None:
        self._seconds, self._most = seconds, most
        self._slots: dict[_K, _Slot[_T]] = {}
        self._lock = threading.Lock()

    def get(self, key: _K, now: datetime, build: Callable[[], _T]) -> _T:
        """Return a recently built value for `key`, or else the result of `build`."""
        slot, asked_at = self._slot(key), time.monotonic()
        with _turn(
            slot.lock, lambda: slot.is_younger(now, self._seconds + _GRACE_SECONDS)
        ) as is_mine:
            # Threads that waited here took `now` before the value was built.
            if slot.built is None or (is_mine and not slot.is_younger(now, self._seconds)):
                slot.check(asked_at)
                return slot.renew(now, build)
            return slot.built[1]

    def get_current(self, key: _K, now: datetime, build: Callable[[], _T]) -> _T:
        """Return a value whose build began after this call. Calls during a build share the next
        build, or its exception, so no call waits for more than two."""
        slot, asked_at = self._slot(key), time.monotonic()
        with slot.lock:
            slot.check(asked_at)
            if slot.built is None or slot.began < asked_at:
                return slot.renew(now, build)
            return slot.built[1]

    def _slot(self, key: _K) -> _Slot[_T]:
        with self._lock:
            if key not in self._slots and len(self._slots) >= self._most:
                self._slots.clear()
            return self._slots.setdefault(key, _Slot())


_BRIEF_SECONDS: Final = 2.0
_UNAVAILABLE_SECONDS: Final = 10.0


@dataclass(slots=True)
class _Silence:
    """The time until which a silent database is not queried again, by the monotonic clock."""

    until: float = 0.0


_SILENCE: Final = _Silence()


def query_briefly(read: Callable[[], _T], otherwise: Callable[[], _T]) -> _T:
    """Return the result of `read` from PostgreSQL, or `otherwise` if that does not answer soon.

    For queries within a scrape's deadline. A silent server is not queried again for a while, so
    that several queries of one scrape do not wait for it one after the other.
    """
    if time.monotonic() < _SILENCE.until:
        return otherwise()
    try:
        connection.close_if_health_check_failed()
        connection.ensure_connection()
        with connection.connection.at_most(_BRIEF_SECONDS):
            return read()
    except Error:
        _SILENCE.until = time.monotonic() + _UNAVAILABLE_SECONDS
        return otherwise()


STALE_SECONDS = 90  # a watch shows at least a bookmark each minute


@dataclass(frozen=True, slots=True)
class Freshness:
    """The time at which the cluster last sent data (None: never, or just now), and whether that is
    too old. `as_of`: when it did, in any case; it changes no ETag."""

    seen_at: datetime | None
    is_stale: bool
    as_of: datetime | None = field(default=None, compare=False, repr=False)


def freshness(watch: str, now: datetime) -> Freshness:
    """Return the freshness of the data recorded under this checkpoint."""
    rows = WatchCheckpoint.objects.filter(name=watch)
    return freshness_of(rows.values_list("position_at", flat=True).first(), now)


def freshness_of(seen: datetime | None, now: datetime) -> Freshness:
    """Return the freshness of a watch whose last sign of life was at `seen`."""
    stale = seen is None or (now - seen).total_seconds() > STALE_SECONDS
    # A fresh time changes with every event: without it an unchanged page keeps its ETag.
    return Freshness(seen if stale else None, stale, seen)
