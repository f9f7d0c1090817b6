from __future__ import annotations

import datetime as dt
import os
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock, patch
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import psycopg
import pytest
from celery.beat import SchedulingError
from celery.schedules import crontab
from django.conf import settings as django_settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone

from ipuhub import beat as beats
from ipuhub import heartbeats, taskqueue, workerhealth
from ipuhub.models import Heartbeat
from ipuhub.process.health import Health
from tests.builders.lifetimes import store_pod
from tests.fakes.forked import answer_of, forked
from tests.fakes.freeport import free_port
from tests.fakes.silentline import SilentLine
from tests.fakes.waiting import wait_until
from tests.integration.usage.reading import UTC_ZONE
from usage.models import MonthReport, ReportRun
from usage.reports import runs
from usage.reports.runs import do_range, read_range, request_range, request_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from celery.beat import ScheduleEntry

pytestmark = pytest.mark.django_db(transaction=True)
_ROOT = Path(__file__).parents[3]
_CELERY = ("-m", "celery", "-A", "ipuhub.celery", "--quiet")


def _environment() -> dict[str, str]:
    known = connection.settings_dict
    place = f"{known['HOST']}:{known['PORT']}/{known['NAME']}"
    password = quote(known["PASSWORD"], safe="")
    return os.environ | {
        "DATABASE_URL": f"postgresql://{known['USER']}:{password}@{place}",
        "DJANGO_SETTINGS_MODULE": "ipuhub.settings",
    }


def test_a_worker_makes_the_reports_that_were_asked_for(tmp_path: Path):
    store_pod("2026-01-05T00:00", "2026-01-05T01:00")
    run = request_run("demand", "ada", timezone.now(), UTC_ZONE, "2026-01")
    environment = _environment()
    ask = "import django; django.setup()\nfrom ipuhub.celery import app\n"
    ask += f"app.send_task('usage.make_reports', [{run.pk}])"
    result = answer_of(["-c", ask], _ROOT, environment)
    assert (result.code, result.err) == (0, "")
    command = [*_CELERY, "worker", "-B", "--schedule", str(tmp_path / "schedule")]
    errors = tmp_path / "stderr"
    worker = forked(command, _ROOT, environment, tmp_path / "stdout", errors)
    try:
        wait_until(lambda: ReportRun.objects.get(pk=run.pk).is_over or not worker.is_alive())
    finally:
        worker.terminate()
        worker.join(90)
    run.refresh_from_db()
    assert (run.state, run.done) == ("done", 1), errors.read_text()
    assert MonthReport.objects.get().lifetimes == 1
    lines = errors.read_text().splitlines()
    assert [line for line in lines if "[info" not in line] == []


def test_beat_makes_the_reports_at_midnight():
    from ipuhub.celery import app

    entry = app.conf.beat_schedule["month reports"]
    assert entry["task"] == "usage.make_daily_reports"
    assert entry["schedule"] == crontab(minute="0", hour="0")
    assert app.conf.timezone == "UTC"


def test_beat_makes_the_reports_when_the_settings_say():
    code = (
        "from ipuhub.celery import app; "
        "print(app.conf.beat_schedule['month reports']['schedule'], app.conf.timezone)"
    )
    chosen = {"IPUHUB_REPORT_SCHEDULE": "30 6 * * 1-5", "IPUHUB_REPORT_ZONE": "Europe/Berlin"}
    made = answer_of(["-c", code], _ROOT, _environment() | chosen)
    assert made.out == "<crontab: 30 6 * * 1-5 (m/h/dM/MY/d)> Europe/Berlin\n"


def _page(port: int, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


@contextmanager
def _running(command: str, folder: Path, **more: str) -> Iterator[int]:
    """A worker, or beat; yields the port of its health."""
    port = free_port()
    environment = _environment() | {"IPUHUB_WORKER_HEALTH_PORT": str(port)} | more
    environment |= {"IPUHUB_BEAT_SCHEDULE_PATH": str(folder / "schedule")}
    process = forked([*_CELERY, command], _ROOT, environment, folder / "log")
    try:
        yield port
    finally:
        process.terminate()
        process.join(90)
        assert process.exitcode == 0, (folder / "log").read_text()


@pytest.mark.parametrize("command", ["worker", "beat"])
def test_worker_and_beat_say_that_they_work(command: str, tmp_path: Path):
    with _running(command, tmp_path) as port:
        wait_until(lambda: _page(port, "/readyz") == (200, "ok"))
        assert _page(port, "/healthz") == (200, "ok")
        wait_until(lambda: {command} <= {each.name for each in Heartbeat.objects.all()})


@pytest.mark.parametrize("command", ["worker", "beat"])
def test_without_the_database_they_live_and_are_not_ready(command: str, tmp_path: Path):
    away = f"postgresql://ada@127.0.0.1:{free_port()}/none"
    with _running(command, tmp_path, DATABASE_URL=away) as port:
        wait_until(lambda: _page(port, "/readyz")[0] == 503)
        wait_until(lambda: "onnection refused" in _page(port, "/readyz")[1])
        (line,) = _page(port, "/readyz")[1].splitlines()
        assert line.startswith("PostgreSQL: ")
        assert _page(port, "/healthz") == (200, "ok")


@pytest.mark.parametrize("command", ["worker", "beat"])
def test_they_wait_for_the_migrations_of_a_new_database(command: str, tmp_path: Path):
    with _table_away(), _running(command, tmp_path) as port:
        wait_until(lambda: "waiting for migrations" in _page(port, "/readyz")[1])
        assert _page(port, "/readyz")[0] == 503
        _rename("away", "ipuhub_taskmessage")
        wait_until(lambda: _page(port, "/readyz")[0] == 200)


def test_a_worker_waits_for_the_last_migration(tmp_path: Path):
    applied = MigrationRecorder(connection).migration_qs
    last = applied.filter(app="usage").order_by("-name")[0]
    row = (last.app, last.name)
    last.delete()
    try:
        with _running("worker", tmp_path) as port:
            wait_until(lambda: "migrations: 1 to apply" in _page(port, "/readyz")[1])
            assert _page(port, "/readyz")[0] == 503
            MigrationRecorder(connection).record_applied(*row)
            wait_until(lambda: _page(port, "/readyz")[0] == 200)
    finally:
        if not applied.filter(app=row[0], name=row[1]):
            MigrationRecorder(connection).record_applied(*row)


@contextmanager
def _table_away() -> Iterator[None]:
    _rename("ipuhub_taskmessage", "away")
    try:
        yield
    finally:
        if "away" in connection.introspection.table_names():
            _rename("away", "ipuhub_taskmessage")


def _rename(old: str, new: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {old} RENAME TO {new}")


def test_beat_looks_for_an_absent_database_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from ipuhub.celery import app as celery_app

    contact = taskqueue.Contact()
    monkeypatch.setattr(taskqueue, "CONTACT", contact)
    monkeypatch.setattr(beats, "heartbeat_of", Mock())
    monkeypatch.setattr(taskqueue, "try_database", lambda: None)  # it is still away
    beat = beats.BeatScheduler(celery_app, schedule_filename=str(tmp_path / "schedule"))
    monkeypatch.setattr(type(beat), "schedule", {})
    contact.problem = "waiting for migrations"
    assert beat.tick() == beats.LOOK_AGAIN_SECONDS
    contact.problem = ""
    assert beat.tick() == workerhealth.TICK_SECONDS
    beat.close()


@pytest.fixture
def scheduled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of queued tasks. PostgreSQL takes none while "away" is among them."""
    queued: list[str] = []
    monkeypatch.setattr(taskqueue, "CONTACT", taskqueue.Contact())
    monkeypatch.setattr(taskqueue, "try_database", lambda: None)
    monkeypatch.setattr(beats, "heartbeat_of", Mock())

    def apply(_: beats.BeatScheduler, entry: ScheduleEntry, **__: Any) -> None:
        if "away" in queued:
            taskqueue.CONTACT.problem = "PostgreSQL has said nothing for 25 s"
            raise SchedulingError(taskqueue.CONTACT.problem)
        queued.append(entry.name)

    monkeypatch.setattr(beats.BeatScheduler, "apply_async", apply)
    return queued


def begin_beat(schedule: Path) -> beats.BeatScheduler:
    from ipuhub.celery import app

    return beats.BeatScheduler(app, schedule_filename=str(schedule))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_was_set_back_stops_no_task(
    scheduled: list[str], restarts: bool, tmp_path: Path
):
    beat = begin_beat(tmp_path / "schedule")
    beat.tick()
    for entry in beat.schedule.values():
        entry.last_run_at += dt.timedelta(days=400)
    beat._heap = None
    if restarts:
        beat.close()
        beat = begin_beat(tmp_path / "schedule")
    beat.tick()
    soon = timezone.now() + dt.timedelta(seconds=heartbeats.HEARTBEAT_SECONDS)
    assert beat._heap[0].time <= soon.timestamp() + 1
    beat.close()
    assert not scheduled


def test_a_corrected_clock_runs_no_task_twice(scheduled: list[str], tmp_path: Path):
    beat = begin_beat(tmp_path / "schedule")
    last_runs = {}
    for name, entry in beat.schedule.items():
        last_runs[name] = entry.last_run_at = timezone.now() + dt.timedelta(seconds=30)
    beat.tick()
    assert {name: entry.last_run_at for name, entry in beat.schedule.items()} == last_runs
    beat.close()
    assert not scheduled


def test_a_task_that_postgres_did_not_take_is_queued_once_it_does(
    scheduled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(beats, "_LOG", log := Mock())
    beat = begin_beat(tmp_path / "schedule")
    for entry in beat.schedule.values():
        entry.last_run_at -= dt.timedelta(days=2)  # all are due
    scheduled.append("away")
    for _ in range(20):
        assert beat.tick() == beats.LOOK_AGAIN_SECONDS
    assert scheduled == ["away"]
    assert {name for name, _, _ in log.method_calls} == {"warning"}  # a line, no traceback
    scheduled.clear()
    taskqueue.CONTACT.problem = ""
    while beat.tick() == 0:
        pass
    assert sorted(scheduled) == sorted(beat.schedule)  # each once
    beat.close()


def test_beat_goes_on_without_a_place_for_its_file(scheduled: list[str], tmp_path: Path):
    (tmp_path / "file").touch()
    beat = begin_beat(tmp_path / "file" / "schedule")
    for entry in beat.schedule.values():
        entry.last_run_at -= dt.timedelta(days=2)
    while beat.tick() == 0:
        pass
    assert sorted(scheduled) == sorted(beat.schedule)
    beat.sync()
    beat.close()


def test_beat_goes_on_on_a_full_disk(
    scheduled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    beat = begin_beat(tmp_path / "schedule")
    monkeypatch.setattr(beat._store, "sync", Mock(side_effect=OSError(ENOSPC, "disk full")))
    beat.sync()
    beat.tick()
    monkeypatch.undo()
    beat.close()
    assert not scheduled


def test_who_looks_no_more_is_not_alive(monkeypatch: pytest.MonkeyPatch):
    from ipuhub.celery import app as celery_app

    now = 0.0
    health = Health(lambda: now)
    monkeypatch.setattr(workerhealth, "Health", lambda: health)
    monkeypatch.setattr(taskqueue, "CONTACT", taskqueue.Contact())
    monkeypatch.setattr(django_settings, "WORKER_HEALTH_PORT", free_port())
    workerhealth.serve("worker")
    now = workerhealth.SILENCE_SECONDS + 1
    assert "worker: no sign of life" in health.not_alive()[0]
    transport = celery_app.connection_for_read().transport
    with pytest.raises(TimeoutError):  # nothing to do is a sign of life
        transport.drain_events(transport.establish_connection(), timeout=0.01)
    assert health.not_alive() == []


def test_a_task_of_a_silent_postgres_fails_and_the_worker_goes_on(tmp_path: Path):
    """The server also ends the lost session, and with it the lock of runs."""
    from ipuhub.celery import app

    store_pod("2026-01-05T00:00", "2026-01-05T01:00")
    known = connection.settings_dict
    line = SilentLine(known["HOST"], int(known["PORT"]), at=b'INSERT INTO "usage_monthreport"')
    url = _environment()["DATABASE_URL"].replace(f":{known['PORT']}/", f":{line.port}/")
    limit = {"DATABASE_URL": url, "IPUHUB_TASK_QUERY_SECONDS": "3"}
    waiting = [request_run("demand", "ada", timezone.now(), UTC_ZONE, "2026-01") for _ in range(2)]
    try:
        with _running("worker", tmp_path, **limit):
            for run in waiting:
                app.send_task("usage.make_reports", [run.pk])
                wait_until(lambda pk=run.pk: ReportRun.objects.get(pk=pk).is_over)
    finally:
        line.close()
    first, second = ReportRun.objects.order_by("pk")
    message = "It failed: PostgreSQL has said nothing for 6 s"
    assert [first.state, first.message] == ["failed", message]
    assert [second.state, second.message] == ["done", ""]


def test_a_range_of_a_silent_postgres_fails_with_a_sentence():
    """The connection is closed while a file is made: its run is stored on another."""
    file = read_range({"from": "2026-01-01", "to": "2026-01-03"}, timezone.now(), UTC_ZONE)
    run = request_range(file, "demand", "ada", timezone.now())

    def falls_silent(*_: object) -> None:
        connection.connection.close()
        raise psycopg.OperationalError("PostgreSQL has said nothing for 6 s")

    with patch.object(runs, "store_range", falls_silent):
        do_range(run, UTC_ZONE)
    run.refresh_from_db()
    message = "It failed: PostgreSQL has said nothing for 6 s"
    assert [run.state, run.message] == ["failed", message]
