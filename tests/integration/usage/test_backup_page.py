"""The commands of docs/admin/backup.md, run unchanged: every row is restored."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest
from django.db import connection

from devcluster.demo.postgres import find_binaries
from ipuhub.recording.store import connection_arguments
from tests.builders.lifetimes import store_partition, store_pod
from tests.fakes.postgresbinaries import chosen_binaries
from usage.models import PodLifetime, RollupDirt

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.django_db(transaction=True)
PAGE = Path(__file__).resolve().parents[3] / "docs/admin/backup.md"


def command(name: str) -> str:
    """The page's one command that begins with `name`."""
    (found,) = re.findall(rf"(?:^    |`)({name} [^`\n]+)", PAGE.read_text("utf-8"), re.MULTILINE)
    return str(found)


@pytest.fixture
def empty_url() -> Iterator[str]:
    """A new database on the tests' server."""
    server, name = connection_arguments(connection.settings_dict), f"restored_{uuid4().hex[:8]}"
    with psycopg.connect(**{**server, "dbname": "postgres", "autocommit": True}) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        yield url_of(name)
        admin.execute(f"DROP DATABASE {name}")


def url_of(name: str) -> str:
    server = connection_arguments(connection.settings_dict)
    known = {key: server[key] for key in ("user", "password", "host", "port") if key in server}
    return psycopg.conninfo.make_conninfo(**known, dbname=name)


def run(text: str, url: str, folder: Path) -> None:
    path = f"{chosen_binaries() or find_binaries()}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "DATABASE_URL": url, "PATH": path}
    subprocess.run(["sh", "-ec", text], env=environment, cwd=folder, check=True, timeout=120)


def rows(url: str) -> dict[str, list[tuple[str, ...]]]:
    """Every row of every table as text; only those that have any."""
    found = {}
    with psycopg.connect(url) as own:
        tables = own.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in tables.fetchall():
            lines = own.execute(f'SELECT t::text FROM "{table}" AS t ORDER BY 1').fetchall()
            if lines:
                found[table] = lines
    return found


def test_a_restored_database_has_every_row_and_its_triggers(empty_url: str, tmp_path: Path) -> None:
    store_pod("2026-10-05T00:00", "2026-10-05T01:00", ipus=4)
    store_partition("2026-10-05T00:00", "2026-10-05T01:00")
    own = url_of(connection.settings_dict["NAME"])
    before = rows(own)
    assert {PodLifetime._meta.db_table, RollupDirt._meta.db_table} <= set(before)
    run(command("pg_dump"), own, tmp_path)
    for _ in range(2):  # into an empty database, and over what is there
        run(command("pg_restore"), empty_url, tmp_path)
        assert rows(empty_url) == before
    with psycopg.connect(empty_url) as restored:
        dirt = f"SELECT count(*) FROM {RollupDirt._meta.db_table}"
        (marked,) = restored.execute(dirt).fetchone() or (0,)
        later = "scheduled_at = '2026-09-01', finished_at = '2026-09-03'"
        restored.execute(f"UPDATE {PodLifetime._meta.db_table} SET {later}")
        (now,) = restored.execute(dirt).fetchone() or (0,)
    assert now > marked
