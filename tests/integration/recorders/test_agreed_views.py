"""The views that jobs and partitions publish to other apps: a changed column fails here."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import DatabaseError, connection, transaction

from jobs.models import JobRecord
from partitions.models import CapacityChange, PartitionLifetime

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 5, 1, tzinfo=UTC)
SHOWN = {
    "jobs_owners": "uid namespace group user user_verified",
    "partitions_capacity": "id controller at total free cordoned faulty reachable",
    "partitions_holdings": "id key job_uid namespace job_name partition controller size group user"
    " user_verified reserved_at released_at estimated uncertainty_seconds",
}
ROWS = {
    "jobs_owners": lambda: JobRecord.objects.create(
        uid="u", namespace="team", name="j", user="ada", created_at=NOW, updated_at=NOW
    ),
    "partitions_capacity": lambda: CapacityChange.objects.create(
        controller="vctl1", at=NOW, total=16, free=4
    ),
    "partitions_holdings": lambda: PartitionLifetime.objects.create(
        key="k", job_uid="u", namespace="team", job_name="j", partition="p", size=4,
        phase="Active", reserved_at=NOW, updated_at=NOW,
    ),
}  # fmt: skip


def _run(sql: str) -> tuple[list[str], list[tuple[object, ...]], int]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        columns = [column.name for column in cursor.description or ()]
        return columns, cursor.fetchall() if columns else [], cursor.rowcount


@pytest.mark.parametrize("view", SHOWN)
def test_a_view_shows_the_agreed_columns_of_each_row(view: str) -> None:
    row = ROWS[view]()
    columns, found, _ = _run(f"SELECT * FROM {view}")
    assert columns == SHOWN[view].split()
    assert found == [tuple(getattr(row, column) for column in columns)]


@pytest.mark.parametrize("view", ["partitions_capacity", "partitions_holdings"])
def test_retention_deletes_through_a_view(view: str) -> None:
    row = ROWS[view]()
    own = f"SELECT id FROM {view} LIMIT 1 FOR UPDATE SKIP LOCKED"
    assert _run(f"DELETE FROM {view} WHERE id IN ({own})")[2] == 1
    assert not type(row).objects.exists()


@pytest.mark.parametrize("column", ["size", '"group"', "released_at"])
def test_postgresql_keeps_a_column_that_a_view_shows(column: str) -> None:
    with pytest.raises(DatabaseError, match="depend"), transaction.atomic():
        _run(f"ALTER TABLE partitions_partitionlifetime DROP COLUMN {column}")
