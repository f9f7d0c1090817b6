"""`run_web`, prober and monitor beside a database that starts with them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest
import structlog.testing
from django.db import OperationalError, ProgrammingError, connection

from ipuhub import schema
from ipuhub.backoff import Backoff
from ipuhub.concurrency import Pauses
from ipuhub.process.health import Health
from ipuhub.process.runtime import until_stopped
from ipuhub.recording.store import connection_arguments
from ipuhub.schema import once_it_answers
from tests.fakes.silentline import SilentLine
from tests.fakes.waiting import eventually, wait_until
from tests.integration.web.webprocess import get_text, started, status

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_django.fixtures import SettingsWrapper

WAITS = {"IPUHUB_DATABASE_WAIT_SECONDS": "60"}


class Away:
    """A database that answers from some second on; pauses are what makes time pass."""

    def __init__(self, until: float) -> None:
        self.until, self.now, self.tries = until, 0.0, 0

    def work(self) -> None:
        self.tries += 1
        if self.now < self.until:
            raise OperationalError("connection refused\nIs the server running?")

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now


def test_it_is_waited_for_with_one_line_in_the_log() -> None:
    away = Away(until=3.0)
    with structlog.testing.capture_logs() as lines:
        once_it_answers(away.work, 60.0, away.pause, away.clock)
    assert away.tries == 4
    assert [line["event"] for line in lines] == ["waiting for the database"]
    assert "\n" not in lines[0]["problem"]


@pytest.mark.parametrize(("seconds", "tries"), [(0.0, 1), (5.0, 6)])
def test_it_is_waited_for_so_long_and_no_longer(seconds: float, tries: int) -> None:
    away = Away(until=600.0)
    with pytest.raises(OperationalError):
        once_it_answers(away.work, seconds, away.pause, away.clock)
    assert away.tries == tries


async def test_prober_and_monitor_migrate_as_soon_as_it_lets_them_and_only_if_asked_to(
    settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [
        OperationalError("refused"),
        ProgrammingError("may not"),
        ProgrammingError("may not"),
    ]
    done = threading.Event()

    def migrate(_pause: object) -> bool:
        if failures:
            raise failures.pop(0)
        done.set()
        return True

    monkeypatch.setattr(schema, "migrate", migrate)
    monkeypatch.setattr(schema, "_BACKOFF", Backoff(0.01, 0.01))
    health = Health()
    async with schema.migrating(health):
        assert health.not_ready() == []
    assert len(failures) == 3
    settings.MIGRATE = True
    with structlog.testing.capture_logs() as lines:
        async with schema.migrating(health):
            assert health.not_ready()[0].startswith("migrations: ")
            await asyncio.to_thread(done.wait, 60)
    assert health.not_ready() == []
    events = [line.get("problem", line["event"]) for line in lines]
    assert events == ["refused", "may not", "the database is migrated"]


async def test_one_that_waits_to_migrate_can_be_stopped(
    settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Event()

    def migrate(_pause: object) -> bool:
        tried.set()
        raise OperationalError("refused")

    monkeypatch.setattr(schema, "migrate", migrate)
    monkeypatch.setattr(schema, "_BACKOFF", Backoff(3600.0, 3600.0))
    monkeypatch.setattr(schema, "_LONGEST_UNCONNECTED_SECONDS", 3600.0)
    settings.MIGRATE = True
    async with asyncio.timeout(60), schema.migrating(Health()):
        await asyncio.to_thread(tried.wait, 60)


async def test_an_error_of_a_migration_ends_the_process_that_applies_it(
    settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def migrate(_pause: object) -> bool:
        raise RuntimeError("a row that no migration expects")

    monkeypatch.setattr(schema, "migrate", migrate)
    settings.MIGRATE = True
    for wait in (until_stopped, asyncio.shield):  # one swallows the cancellation, one does not
        async with asyncio.timeout(10) as deadline:
            with pytest.raises(RuntimeError, match="a row that no"):
                async with schema.migrating(Health()):
                    await wait(asyncio.get_running_loop().create_future())
        assert not deadline.expired(), wait
        assert asyncio.current_task().cancelling() == 0


@pytest.mark.django_db(transaction=True)
async def test_what_cannot_succeed_is_tried_more_and_more_rarely_and_shown(
    settings: SettingsWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def migrate() -> bool:
        raise ProgrammingError("permission denied for schema public\nLINE 1: CREATE TABLE")

    waits: list[float] = []
    tried = threading.Event()

    class Noted(Pauses):
        def __call__(self, seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 9:
                tried.set()
                super().__call__(60.0)

    monkeypatch.setattr(schema, "_migrate", migrate)
    monkeypatch.setattr(schema, "Pauses", Noted)
    settings.MIGRATE = True
    health = Health()
    with structlog.testing.capture_logs() as lines:
        async with asyncio.timeout(60), schema.migrating(health):
            await asyncio.to_thread(tried.wait, 50)
            problem = "permission denied for schema public LINE 1: CREATE TABLE"
            assert health.not_ready() == [f"migrations: {problem}"]
    assert [line["problem"] for line in lines] == [problem]
    assert all(1.0 * 2**n <= seconds < 2.0 * 2**n for n, seconds in enumerate(waits[:5]))
    assert all(30.0 <= seconds <= 60.0 for seconds in waits[5:])


@pytest.mark.django_db(transaction=True)
async def test_who_waits_for_another_process_that_migrates_can_be_stopped(
    settings: SettingsWrapper,
) -> None:
    settings.MIGRATE = True
    health = Health()
    known = connection_arguments(connection.settings_dict) | {"autocommit": True}
    other = psycopg.connect(**known)
    try:
        other.execute("SELECT pg_advisory_lock(%s)", [schema._LOCK])
        async with asyncio.timeout(60), schema.migrating(health):
            await eventually(
                lambda: health.not_ready() == ["migrations: another process applies them"]
            )
    finally:
        other.close()  # else the thread of a process that cannot be stopped is waited for


@pytest.mark.django_db(transaction=True)
def test_meanwhile_it_says_what_it_waits_for_and_then_serves_by_itself(tmp_path: Path) -> None:
    known = connection.settings_dict
    line = SilentLine(known["HOST"] or "127.0.0.1", int(known["PORT"]))
    line.refuses.set()
    place = f"127.0.0.1:{line.port}/{known['NAME']}"
    url = f"postgresql://{known['USER']}:{quote(known['PASSWORD'], safe='')}@{place}"
    log = tmp_path / "log"
    with started(log, DATABASE_URL=url, **WAITS) as port:
        assert [status(port, path) for path in ("/healthz", "/readyz", "/login/")] == [
            200,
            503,
            503,
        ]
        assert get_text(port, "/readyz").startswith("postgres: does not answer yet.")
        assert log.read_text().count("waiting for the database") == 1
        line.refuses.clear()
        wait_until(lambda: status(port, "/readyz") == 200, "it serves")
        assert status(port, "/login/") == 200
    line.close()


def test_who_waits_can_be_stopped(tmp_path: Path) -> None:
    url = "postgresql://nobody:x@127.0.0.1:9/nothing"  # the port of "discard", which nobody serves
    with started(tmp_path / "log", DATABASE_URL=url, **WAITS) as port:
        wait_until(lambda: status(port, "/readyz") == 503, "it waits")
    assert "Traceback" not in (tmp_path / "log").read_text()
