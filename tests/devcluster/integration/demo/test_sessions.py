"""Session options of every database connection, whatever the server's defaults are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from django.db import connection

from ipuhub.database import database_settings
from ipuhub.recording.store import connection_arguments
from usage.reports.downloads import own_connection

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.django_db
_ROOT = Path(__file__).resolve().parents[4]
_IDLE = "idle_in_transaction_session_timeout"
_OPENED = {
    "devcluster/demo/postgres.py": "asks an embedded server whether it is ready, nothing else",
    "devcluster/management/commands/make_demo_history.py": "connection_arguments",
    "ipuhub/patientpostgres/connection.py": "connection_arguments, for all who record or beat",
    "usage/reports/downloads.py": "Django's",
    "usage/legacy/importing.py": "reads another product's database, once, as its address says",
}
"""Where psycopg connects, and whose arguments it takes; the tests below try these."""


def _of_django(name: str) -> Any:
    with connection.cursor() as cursor:
        return cursor.execute(f"SHOW {name}").fetchone()[0]


def _of_a_download(name: str) -> Any:
    with own_connection() as own:
        return (own.execute(f"SHOW {name}").fetchone() or ())[0]


def _of_a_recorder(name: str) -> Any:
    with psycopg.connect(**connection_arguments(connection.settings_dict)) as own:
        return (own.execute(f"SHOW {name}").fetchone() or ())[0]


@pytest.mark.parametrize("setting_of", [_of_django, _of_a_download, _of_a_recorder])
def test_no_connection_lets_the_server_compile_queries(setting_of: Callable[[str], Any]) -> None:
    assert setting_of("jit") == "off"


def test_what_the_url_sets_counts_and_takes_nothing_else_away(database_url: str) -> None:
    url = f"{database_url}?options=-c%20jit%3Don%20-c%20work_mem%3D5MB"
    with psycopg.connect(**connection_arguments(database_settings(url))) as own:
        settings = {
            name: (own.execute(f"SHOW {name}").fetchone() or ())[0]
            for name in ("jit", "work_mem", "statement_timeout", "timezone", _IDLE)
        }
    want = {
        "jit": "on",
        "work_mem": "5MB",
        "statement_timeout": "20s",
        "TimeZone": "UTC",
        _IDLE: "1min",
    }
    assert list(settings.values()) == list(want.values())


def test_nobody_else_connects() -> None:
    folders = ("ipuhub", "jobs", "partitions", "usage", "dashboard", "devcluster")
    found = {
        str(path.relative_to(_ROOT))
        for folder in folders
        for path in (_ROOT / folder).rglob("*.py")
        if re.search(r"(psycopg|Connection)\.connect\(|ConnectionPool\(", path.read_text())
    }
    assert found == set(_OPENED), "take your arguments from ipuhub/database.py, and try them here"
