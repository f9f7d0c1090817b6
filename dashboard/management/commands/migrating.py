"""io: brings the database to the schema of this version, one process at a time."""

from __future__ import annotations

from typing import Final

from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

_LOCK: Final = 0x1B0_0001
"""Number of the advisory lock; any other user of advisory locks takes another."""


def migrate() -> bool:
    """Apply what is missing and say whether anything was.

    Processes that start together wait for the one that migrates, and then find nothing to do.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
        try:
            return _migrate()
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])


def _migrate() -> bool:
    executor = MigrationExecutor(connection)
    if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return False
    call_command("migrate", interactive=False, verbosity=0)
    return True
