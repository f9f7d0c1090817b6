"""glue: brings the database's schema to this version; one process at a time migrates."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, InterfaceError, OperationalError, connection

from ipuhub.backoff import Backoff, jitter
from ipuhub.concurrency import Pauses, StoppedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from django.db.backends.utils import CursorWrapper
    from django.db.migrations.executor import MigrationExecutor

    from ipuhub.process.health import Health

_LOG = structlog.get_logger(__name__)
_PAUSE_SECONDS: Final = 1.0
# What cannot succeed (no right to create a table) takes its locks in each try.
_BACKOFF: Final = Backoff(first_seconds=_PAUSE_SECONDS, max_seconds=60.0)
_LONGEST_UNCONNECTED_SECONDS: Final = 5.0
"""A database that starts with this process is migrated soon after."""
_LOOK_SECONDS: Final = 30.0
_LOCK: Final = 0x1B0_0001
"""Number of the advisory lock; any other user of advisory locks takes another."""


def migrate(pause: Callable[[float], None] = time.sleep) -> bool:
    """Apply missing migrations and return whether there were any.

    Processes that start together wait for the process that migrates, and then find nothing to do.
    They wait in pauses, which can raise, and not in PostgreSQL, where a thread cannot be stopped.
    """
    with connection.cursor() as cursor:
        while not _is_locked_here(cursor):
            pause(_PAUSE_SECONDS)
        try:
            return _migrate()
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


def _is_locked_here(cursor: CursorWrapper) -> bool:
    cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK])
    return bool(cursor.fetchone()[0])


def _migrate() -> bool:
    if newer := unknown_migrations():
        what = "a newer version migrated this database; if this version fails, restore a backup"
        _LOG.warning(what, migrations=newer)
    if not count_missing():
        return False
    call_command("migrate", interactive=False, verbosity=0)
    return True


def count_missing() -> int:
    """Return how many migrations of this version are not applied."""
    executor = _executor()
    return len(executor.migration_plan(executor.loader.graph.leaf_nodes()))


class Emptied:
    """Tells that the database has lost all its tables.

    The trial's database may have no volume: another pod of it begins with nothing. Two looks in a
    row have to find nothing, since a restore drops tables for a moment.
    """

    def __init__(self) -> None:
        self._was_empty = False

    def __call__(self) -> bool:
        """Look; raises Django's DatabaseError."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass('django_migrations') IS NULL")
            is_empty = bool(cursor.fetchone()[0])
        is_lost, self._was_empty = is_empty and self._was_empty, is_empty
        if is_lost:
            _LOG.warning("the database has no tables any more: they are made again")
        return is_lost


def unknown_migrations() -> list[str]:
    """Return the applied migrations that this version of its apps does not have."""
    loader = _executor().loader
    unknown = set(loader.applied_migrations) - set(loader.disk_migrations or ())
    return sorted(f"{app}.{name}" for app, name in unknown if app in loader.migrated_apps)


def _executor() -> MigrationExecutor:
    # Here, because prober and monitor migrate only where no dashboard does.
    from django.db.migrations.executor import MigrationExecutor

    return MigrationExecutor(connection)


def once_it_answers(
    work: Callable[[], None],
    seconds: float,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Do `work` as soon as PostgreSQL takes it, for so long; raises what it raised then."""
    end, is_logged = clock() + seconds, False
    while True:
        try:
            work()
        except OperationalError as error:
            if clock() >= end:
                raise
            if not is_logged:
                problem = " ".join(str(error).split())
                _LOG.warning("waiting for the database", problem=problem, seconds=seconds)
                is_logged = True
            connection.close()
            pause(_PAUSE_SECONDS)
        else:
            return


@dataclass
class _Progress:
    """The reason that the schema is not current yet; empty: it is."""

    problem: str = "being applied"


@asynccontextmanager
async def migrating(health: Health) -> AsyncIterator[None]:
    """Apply missing migrations in a thread meanwhile, if the settings ask this process to; again if
    the database loses its tables.

    Nothing waits for them: code that needs the tables retries until they exist, and serves its
    pages as it does while PostgreSQL is unavailable. Until the schema is current `health` is not
    ready. The end waits for a migration that has begun here. An error that PostgreSQL did not raise
    cancels the block, and is raised.
    """
    body = asyncio.current_task()
    if not settings.MIGRATE or body is None:
        yield
        return
    progress, pauses = _Progress(), Pauses()
    health.ask("migrations", lambda: progress.problem)
    task = asyncio.create_task(asyncio.to_thread(_keep_migrated, progress, pauses))
    ended = cancelled = False

    def end_body(done: asyncio.Task[None]) -> None:
        nonlocal cancelled
        if not ended and not done.cancelled() and done.exception():
            cancelled = body.cancel()

    task.add_done_callback(end_body)
    try:
        yield
    finally:
        ended = True
        pauses.end()
        await asyncio.gather(task, return_exceptions=True)
        if cancelled:
            body.uncancel()
        task.result()


def _keep_migrated(progress: _Progress, pause: Callable[[float], None]) -> None:
    is_emptied = Emptied()
    try:
        while True:
            _migrate_until_done(progress, pause)
            connection.close()  # none is kept for the next look
            pause(_LOOK_SECONDS)
            with suppress(DatabaseError, InterfaceError):
                if is_emptied():
                    progress.problem = "being applied again"
    except StoppedError:
        return
    finally:
        connection.close()  # this thread's


def _migrate_until_done(progress: _Progress, pause: Callable[[float], None]) -> None:
    def wait(seconds: float) -> None:
        progress.problem = "another process applies them"
        pause(seconds)

    logged, failures = "", 0
    while progress.problem:
        try:
            if migrate(wait):
                _LOG.info("the database is migrated")
            progress.problem = ""
        except (DatabaseError, InterfaceError) as error:
            problem = " ".join(str(error).split()) or type(error).__name__
            if problem != logged:
                _LOG.warning("the database is not migrated yet", problem=problem)
            progress.problem = logged = problem
            seconds = _BACKOFF.delay_seconds(failures, jitter())
            if connection.connection is None:  # not connected: nothing was locked
                seconds = min(seconds, _LONGEST_UNCONNECTED_SECONDS)
            connection.close()
            failures += 1
            pause(seconds)
