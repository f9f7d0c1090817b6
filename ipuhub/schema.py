"""glue: the database's schema, which each process brings to its own version, one at a time."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import structlog
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, InterfaceError, OperationalError, connection

from ipuhub.concurrency import Pauses, StoppedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_LOG = structlog.get_logger(__name__)
_PAUSE_SECONDS: Final = 1.0
_LOCK: Final = 0x1B0_0001
"""Number of the advisory lock; any other user of advisory locks takes another."""


def migrate() -> bool:
    """Apply missing migrations and return whether there were any.

    Processes that start together wait for the one that migrates, and then find nothing to do.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        try:
            return _migrate()
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


def _migrate() -> bool:
    # Here, because prober and monitor migrate only where no dashboard does.
    from django.db.migrations.executor import MigrationExecutor

    executor = MigrationExecutor(connection)
    if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return False
    call_command("migrate", interactive=False, verbosity=0)
    return True


def once_it_answers(
    work: Callable[[], None],
    seconds: float,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Do `work` as soon as PostgreSQL takes it, for so long; raises what it raised then."""
    end, told = clock() + seconds, False
    while True:
        try:
            work()
        except OperationalError as error:
            if clock() >= end:
                raise
            if not told:
                why = " ".join(str(error).split())
                _LOG.warning("waiting for the database", problem=why, seconds=seconds)
                told = True
            connection.close()
            pause(_PAUSE_SECONDS)
        else:
            return


@asynccontextmanager
async def migrating() -> AsyncIterator[None]:
    """Apply missing migrations in a thread meanwhile, if the settings ask this process to.

    Nothing waits for them: whoever needs the tables retries until they are there, and serves its
    pages as it does while PostgreSQL is away. The end waits for a migration that has begun.
    """
    if not settings.MIGRATE:
        yield
        return
    pauses = Pauses()
    task = asyncio.create_task(asyncio.to_thread(_migrate_until_done, pauses))
    try:
        yield
    finally:
        pauses.end()
        await asyncio.gather(task, return_exceptions=True)


def _migrate_until_done(pause: Callable[[float], None]) -> None:
    told = ""
    try:
        while True:
            try:
                if migrate():
                    _LOG.info("the database is migrated")
            except (DatabaseError, InterfaceError) as error:
                problem = " ".join(str(error).split())
                if problem != told:
                    _LOG.warning("the database is not migrated yet", problem=problem)
                told = problem
                connection.close()
                pause(_PAUSE_SECONDS)
            else:
                return
    except StoppedError:
        return
    finally:
        connection.close()  # this thread's
