"""A database emptied after a test that committed: no row is left, small tables keep their file."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import connection

from tests.builders.lifetimes import store_pod
from tests.builders.roles import grant
from tests.fakes.emptytables import empty_tables
from usage.models import PodLifetime

pytestmark = pytest.mark.django_db(transaction=True)
FILLED_BY_MIGRATIONS = {"django_content_type", "auth_permission"}


def files_of(model: type[PodLifetime]) -> str:
    """Return the file of a model's table, which another takes the place of when it is truncated."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_filepath(%s)", [model._meta.db_table])
        return str(cursor.fetchone()[0])


def filled() -> set[str]:
    tables = {model._meta.db_table: model for model in apps.get_models()}
    found = {name for name, model in tables.items() if model._default_manager.exists()}
    return found - FILLED_BY_MIGRATIONS


def store(number: int) -> None:
    """Rows that refer to each other, and those that triggers write, in a table without statistics
    and of which the server makes none meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE usage_podlifetime SET (autovacuum_enabled = off)")
        cursor.execute("TRUNCATE usage_podlifetime CASCADE")
    user = get_user_model().objects.create_user(f"ann-{number}")
    grant(user, "operator", "team-a")
    store_pod("2026-10-10T00:00", "2026-10-10T04:00")


def test_rows_are_deleted_and_triggers_write_none_for_it() -> None:
    store(1)
    file = files_of(PodLifetime)
    assert {"auth_user", "usage_podlifetime", "usage_rollupdirt"} <= filled()
    empty_tables(connection)
    assert filled() == set()
    assert files_of(PodLifetime) == file
    with connection.cursor() as cursor:
        cursor.execute("SHOW session_replication_role")
        assert cursor.fetchone() == ("origin",)


def test_a_table_with_statistics_or_many_rows_is_truncated() -> None:
    for make in (_analyze, _store_more):
        store(2)
        make()
        file = files_of(PodLifetime)
        empty_tables(connection)
        assert filled() == set()
        assert files_of(PodLifetime) != file


def _analyze() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE usage_podlifetime")


def _store_more() -> None:
    long = dict.fromkeys(("namespace", "pod_name", "component_name"), "x" * 250)
    while _pages() < 10:
        store_pod("2026-10-10T00:00", "2026-10-10T04:00", **long)


def _pages() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_size('usage_podlifetime') / 8192")
        return int(cursor.fetchone()[0])
