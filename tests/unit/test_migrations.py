"""The previous release serves beside a web process that has migrated, and after a rollback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import migrations
from django.db.migrations.loader import MigrationLoader
from django.db.models import NOT_PROVIDED

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS = ("ipuhub", "jobs", "partitions", "usage")
TAKES_AWAY = (
    migrations.DeleteModel,
    migrations.RemoveField,
    migrations.RenameField,
    migrations.RenameModel,
    migrations.AlterModelTable,
)


def later_operations() -> Iterator[tuple[str, Any]]:
    """Each operation on the database after an app's first migration, with that migration's name."""
    for (app, name), migration in MigrationLoader(None).disk_migrations.items():
        if app in OURS and not name.startswith("0001_"):
            for operation in migration.operations:
                of_database = getattr(operation, "database_operations", [operation])
                yield from ((f"{app}.{name}", each) for each in of_database)


@pytest.mark.parametrize("kind", TAKES_AWAY, ids=lambda kind: kind.__name__)
def test_no_migration_takes_away_what_the_release_before_reads(kind: type) -> None:
    assert [name for name, each in later_operations() if isinstance(each, kind)] == []


def test_a_new_column_may_be_left_out_by_the_release_before() -> None:
    added = [(n, e) for n, e in later_operations() if isinstance(e, migrations.AddField)]
    assert added
    for name, operation in added:
        field = operation.field
        free = field.null or field.many_to_many or field.db_default is not NOT_PROVIDED
        assert free, f"{name}: {operation.name} has neither NULL nor db_default"
