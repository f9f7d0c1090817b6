"""io: recomputes stale sums: one process at a time, in one transaction, or in pieces.

Triggers record the hours of every change (usage/migrations/_dirt.py) in the transaction of the
change. So a reader never uses a sum that lacks a committed change: that time is added up from the
rows until it is summed again. Each `Rollup` says what is summed: lifetimes (usage/sums/rollups.py)
or utilization (usage/utilization/rollups.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from django.db import connection, transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    Dirt = tuple[tuple[datetime, datetime | None], ...]
    Tell = Callable[[int, int], None]

T = TypeVar("T")
HASHED: Final = "SET LOCAL work_mem = '64MB'"
"""A month's sums fit in it; with the default of 4 MB its lifetimes are sorted on disk for them,
which takes twice as long."""
PURGED: Final = """
LEFT JOIN (SELECT purged_before, zone FROM usage_purgestate
           ORDER BY purged_before DESC, id DESC LIMIT 1) AS p ON true"""
"""Joins, as `p`, the day before which rows were deleted, and its zone."""


class RefreshBusy(Exception):  # noqa: N818  # it is an answer, with a sentence for people
    """Another process is computing the sums."""


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """The work of a refresh: chunks with their sizes, how to fill a chunk, and how to finish."""

    chunks: Sequence[tuple[T, int]]
    fill: Callable[[T], None]
    finish: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Rollup:
    """Sums of one kind: the number of their lock, the table of their dirt, and the message while
    busy."""

    lock: int
    dirt: str
    busy: str

    def refresh(
        self, plan: Callable[[Any, Dirt], Work[T] | None], tell: Tell = lambda *_: None
    ) -> int:
        """Sum what is new or changed, as `plan` returns it for a cursor and the dirt; return how
        much.

        Cheap if there is little to do. If another refresh is running, this refresh does nothing.
        """
        with transaction.atomic(), connection.cursor() as cursor:
            return self._make(cursor, plan, tell) if self._has_lock(cursor) else 0

    def make_piece(self, make: Callable[[Any], T | None]) -> T | None:
        """Return what `make` returns for a cursor, in a transaction of its own; None: another
        process is computing."""
        with transaction.atomic(), connection.cursor() as cursor:
            if not self._has_lock(cursor):
                return None
            cursor.execute(HASHED)
            return make(cursor)

    def rebuild(
        self, forget: Callable[[Any], None], plan: Callable[[Any, Dirt], Work[T] | None], tell: Tell
    ) -> int:
        """Sum everything again, in one transaction, after `forget`; return how much.

        Readers see the old sums until it commits, writers do not wait. `tell` is called with how
        much is done, of how much. Raises RefreshBusy.
        """
        with transaction.atomic(), connection.cursor() as cursor:
            if not self._has_lock(cursor):
                raise RefreshBusy(self.busy)
            forget(cursor)
            return self._make(cursor, plan, tell)

    def _has_lock(self, cursor: Any) -> bool:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [self.lock])
        return bool(cursor.fetchone()[0])

    def _make(self, cursor: Any, plan: Callable[[Any, Dirt], Work[T] | None], tell: Tell) -> int:
        cursor.execute(HASHED)
        # The dirt first: a change that commits after this statement keeps its own for next time,
        # and whether the sums already have it does not matter then.
        cursor.execute(f"DELETE FROM {self.dirt} RETURNING first_hour, last_hour")  # noqa: S608
        work = plan(cursor, tuple(set(cursor.fetchall())))
        if work is None:
            return 0
        done, total = 0, sum(size for _, size in work.chunks)
        for chunk, size in work.chunks:
            tell(done, total)
            work.fill(chunk)
            done += size
        tell(done, total)
        work.finish()
        return done
