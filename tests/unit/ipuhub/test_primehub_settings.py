"""The variables of PrimeHub Usage stand in where the product's own are not set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ipuhub.database import database_settings

if TYPE_CHECKING:
    from pathlib import Path

READ = """
import json
from ipuhub import settings
names = ("DATABASE_URL", "USAGE_NAMESPACES", "PRIMEHUB_NAMESPACE")
print(json.dumps({name: getattr(settings, name) for name in names}))
"""
THEIRS = {
    "PRIMEHUB_USAGE_DB_HOST": "primehub-usage-db",
    "PRIMEHUB_USAGE_DB_USER": "postgres",
    "PRIMEHUB_USAGE_DB_PASSWORD": "p@ss:/w?rd#",
    "PRIMEHUB_USAGE_WATCHED_NAMESPACE": "hub",
}
OURS = ("DATABASE_URL", "USAGE_NAMESPACES", "USAGE_NAMESPACE_SELECTOR")


def settings_with(given: dict[str, str]) -> dict[str, Any]:
    environment = {key: text for key, text in os.environ.items() if key not in OURS}
    done = subprocess.run(  # the interpreter of these tests
        [sys.executable, "-c", READ],
        env=environment | given,
        capture_output=True,
        text=True,
        check=True,
    )
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def test_primehubs_environment_is_enough() -> None:
    read = settings_with(THEIRS)
    database = database_settings(read["DATABASE_URL"])
    want = {
        "HOST": "primehub-usage-db",
        "PORT": 5432,
        "NAME": "postgres",
        "USER": "postgres",
        "PASSWORD": "p@ss:/w?rd#",
    }
    assert {key: database[key] for key in want} == want
    assert read["USAGE_NAMESPACES"] == [read["PRIMEHUB_NAMESPACE"]] == ["hub"]


@pytest.mark.parametrize(
    ("own", "want_namespaces"),
    [
        ({"USAGE_NAMESPACES": "labs"}, ["labs"]),
        ({"USAGE_NAMESPACES": ""}, []),
        ({"USAGE_NAMESPACE_SELECTOR": "team"}, []),
        ({"USAGE_NAMESPACE_SELECTOR": " "}, ["hub"]),
    ],
)
def test_the_products_own_settings_go_before(
    own: dict[str, str], want_namespaces: list[str]
) -> None:
    read = settings_with(THEIRS | own | {"DATABASE_URL": "postgresql://db/own"})
    assert (read["DATABASE_URL"], read["USAGE_NAMESPACES"]) == (
        "postgresql://db/own",
        want_namespaces,
    )


def test_a_namespace_of_ones_own_can_come_from_a_file(tmp_path: Path) -> None:
    mounted = tmp_path / "namespaces"
    mounted.write_text("labs")
    read = settings_with(THEIRS | {"USAGE_NAMESPACES_FILE": str(mounted)})
    assert read["USAGE_NAMESPACES"] == ["labs"]


def test_without_a_host_no_database_is_named() -> None:
    read = settings_with({"PRIMEHUB_USAGE_DB_USER": "postgres"})
    assert (read["DATABASE_URL"], read["USAGE_NAMESPACES"]) == ("", [])
