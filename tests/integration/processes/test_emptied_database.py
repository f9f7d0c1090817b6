"""A database that loses its tables, as a trial's without a volume: they are made again."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg
import pytest
from django.db import connection

from dashboard.notify import rounds
from ipuhub import schema
from ipuhub.process.health import Health
from ipuhub.recording.store import connection_arguments
from tests.fakes.waiting import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db(transaction=True)


class Tables:
    """The table by which a database with our tables is known, hidden and shown again."""

    def __init__(self, known: dict[str, object]) -> None:
        self._known = known | {"autocommit": True}
        self.made = threading.Event()

    def hide(self) -> None:
        self._rename("django_migrations", "hidden")

    def make(self, *_: object) -> bool:
        """Instead of migrations, which would find all other tables."""
        self._rename("hidden", "django_migrations")
        self.made.set()
        return True

    def _rename(self, name: str, to: str) -> None:
        with psycopg.connect(**self._known) as other:
            other.execute(f"ALTER TABLE {name} RENAME TO {to}")


@pytest.fixture
def tables() -> Iterator[Tables]:
    tables = Tables(connection_arguments(connection.settings_dict))
    yield tables
    with suppress(psycopg.errors.UndefinedTable):
        tables.make()


def test_only_the_second_look_in_a_row_tells_so(tables: Tables) -> None:
    is_emptied = schema.Emptied()
    assert not is_emptied()
    tables.hide()
    assert [is_emptied(), is_emptied()] == [False, True]
    tables.make()
    assert not is_emptied()
    # A restore drops the tables for a moment.
    tables.hide()
    assert not is_emptied()


def test_the_dashboard_makes_them_again(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "ROUND_SECONDS", 0.05)
    monkeypatch.setattr(rounds, "make_round", lambda *_: None)
    making = rounds.Rounds(tables.make)
    making.start()
    try:
        tables.hide()
        assert tables.made.wait(PATIENCE_SECONDS)
    finally:
        making.stop()


async def test_without_a_dashboard_prober_and_monitor_do(
    tables: Tables, settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.MIGRATE = True
    monkeypatch.setattr(schema, "_LOOK_SECONDS", 0.05)
    health = Health()
    async with schema.migrating(health):
        await eventually(lambda: health.not_ready() == [])
        monkeypatch.setattr(schema, "migrate", tables.make)
        await asyncio.to_thread(tables.hide)
        assert await asyncio.to_thread(tables.made.wait, PATIENCE_SECONDS)
        await eventually(lambda: health.not_ready() == [])
