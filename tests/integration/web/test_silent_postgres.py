"""A PostgreSQL that stops answering with open connections: no request waits without end."""

from __future__ import annotations

import asyncio
import http.client
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock, patch
from urllib.parse import quote

import psycopg
import pytest
from django.contrib.auth import get_user_model
from django.db import ConnectionHandler, OperationalError, connection
from django.test import RequestFactory

from dashboard.notify.metrics import Count, count
from ipuhub import taskqueue
from ipuhub.backoff import Backoff
from ipuhub.database import bounded, database_settings
from ipuhub.heartbeats import HeartbeatWriter
from ipuhub.models import Heartbeat
from ipuhub.partition import TrackerPlace
from ipuhub.patientpostgres import connection as patience
from ipuhub.patientpostgres.connection import PatientConnection
from ipuhub.recording.database import Database
from ipuhub.recording.store import connection_arguments
from ipuhub.times import utc_now
from ipuhub.web.problems import server_error
from jobs.history.events import EventFollower
from partitions.history.recording import PartitionHistory
from tests.fakes.silentline import SilentLine
from tests.fakes.waiting import wait_until
from tests.integration.usage.reading import make
from tests.integration.web.test_live_web import large_record, slow_reader
from tests.integration.web.webprocess import KEY, bearer, served, status
from usage.monitor.store import MonitorStore
from usage.pods.recorder import PodRecorder
from usage.reports.csv import copy_csv
from usage.reports.downloads import own_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def line() -> Iterator[SilentLine]:
    known = connection.settings_dict
    made = SilentLine(str(known["HOST"]), int(known["PORT"]))
    yield made
    made.close()


def url_by(line: SilentLine) -> str:
    known = connection.settings_dict
    password = quote(known["PASSWORD"], safe="")
    return f"postgresql://{known['USER']}:{password}@127.0.0.1:{line.port}/{known['NAME']}"


def test_pages_and_probes_answer_and_recover(
    line: SilentLine, client: Client, settings: SettingsWrapper
) -> None:
    headers = bearer()
    settings.SECRET_KEY = KEY
    client.force_login(get_user_model().objects.get())
    browser = {"Accept": "text/html", "Cookie": f"sessionid={client.cookies['sessionid'].value}"}
    with served(DATABASE_URL=url_by(line), IPUHUB_WEB_THREADS="2") as port:
        assert status(port, "/api/v1/jobs", **headers) == 200
        assert "PostgreSQL" not in page(port, "/jobs/", **browser)
        assert status(port, "/readyz") == 200
        line.passes.clear()
        assert [status(port, "/healthz"), status(port, "/readyz")] == [200, 503]
        assert status(port, "/api/v1/jobs", **headers) == 503
        html = page(port, "/jobs/", 503, **browser)
        assert "PostgreSQL is not available" in html
        assert '<a class="btn btn-primary" href="">Try again</a>' in html
        assert status(port, "/login/") == 200
        line.passes.set()
        assert status(port, "/api/v1/jobs", **headers) == 200
        assert status(port, "/readyz") == 200


def test_metrics_are_answered_from_what_is_known(line: SilentLine) -> None:
    headers = bearer()
    count(Count.SENT, 3)
    with served(DATABASE_URL=url_by(line), IPUHUB_METRICS_TOKEN="for-the-test") as port:
        scraper = {"Authorization": "Bearer for-the-test"}
        sent = 'ipuhub_notification_attempts_total{outcome="sent"} 3.0'
        for each in (headers, scraper):
            assert sent in page(port, "/metrics", **each)
        line.passes.clear()
        for each in (headers, scraper):
            assert sent in page(port, "/metrics", **each)
        strange = {"Authorization": "Bearer ipuhub_unknown"}
        assert "cannot be checked" in page(port, "/metrics", 503, **strange)
        line.passes.set()


def page(port: int, path: str, want: int = 200, **headers: str) -> str:
    caller = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    try:
        caller.request("GET", path, headers=headers)
        answer = caller.getresponse()
        text = answer.read().decode()
        assert answer.status == want, text
        return text
    finally:
        caller.close()


def test_a_silent_connection_is_given_up_and_closed(line: SilentLine) -> None:
    with PatientConnection.connect(url_by(line)) as patient:
        patient.silence_seconds = 0.3
        line.passes.clear()
        with pytest.raises(psycopg.OperationalError, match=r"has said nothing for 0\.3 s"):
            patient.execute("SELECT 1")
        assert patient.closed


def test_a_server_that_is_slow_with_many_rows_is_not_silent() -> None:
    with PatientConnection.connect(**connection_arguments(connection.settings_dict)) as patient:
        patient.silence_seconds = 0.4
        slow = "SELECT repeat('x', 20000), pg_sleep(%s)"
        patient.cursor().executemany(slow, [[0.2]] * 4)  # one wait of psycopg's for all four


def acknowledging(arguments: Mapping[str, Any]) -> Callable[[], Any]:
    place = TrackerPlace("ipuhub-system", "partitions")
    history = PartitionHistory(Mock(), Mock(), arguments, utc_now, place, Mock())
    return lambda: asyncio.run(history._unplaced())


def following_events(arguments: Mapping[str, Any]) -> Callable[[], Any]:
    return lambda: EventFollower(Mock(), arguments, utc_now)._store([])


def monitoring(arguments: Mapping[str, Any]) -> Callable[[], Any]:
    return MonitorStore(arguments, 300).watch


@pytest.fixture
def arguments(line: SilentLine, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """By a way on which the first connection falls silent as soon as it is open."""
    connect, opened = PatientConnection.connect, []

    def then_silent(**given: Any) -> PatientConnection:
        opened.append(connect(**given))
        if len(opened) == 1:
            line.leave()
        return opened[-1]

    monkeypatch.setattr(PatientConnection, "connect", then_silent)
    monkeypatch.setattr(patience, "SILENCE_SECONDS", 0.3)
    return connection_arguments(database_settings(url_by(line)))


@pytest.mark.parametrize("way", [acknowledging, following_events, monitoring])
def test_who_records_gives_a_silent_connection_up_and_takes_another(
    way: Callable[[Mapping[str, Any]], Callable[[], Any]], arguments: dict[str, Any]
) -> None:
    work = way(arguments)
    with pytest.raises(psycopg.OperationalError, match=r"has said nothing for 0\.3 s"):
        work()
    work()


def test_a_heart_goes_on_after_a_silent_connection(arguments: dict[str, Any]) -> None:
    heart = HeartbeatWriter("worker", lambda: arguments)
    heart.beat()
    assert not Heartbeat.objects.exists()
    heart.beat()
    assert Heartbeat.objects.get().name == "worker"


async def test_a_recording_says_that_its_connection_is_silent_and_goes_on(
    arguments: dict[str, Any],
) -> None:
    pauses = []
    backoff = Mock(spec=Backoff, delay_seconds=lambda *_: pauses.append(pods.problem) or 0.0)
    pods: Database[Any] = Database(arguments, PodRecorder(), backoff, Mock())
    await pods.take_over()
    await pods.close()
    assert pauses == ["Postgres: PostgreSQL has said nothing for 0.3 s"]
    assert pods.checkpoint.epoch == 1
    assert not pods.problem


def test_the_queue_gives_a_silent_connection_up_and_takes_another(
    line: SilentLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the connection of the worker's main process, which has no limits of its own."""
    own = ConnectionHandler({"default": database_settings(url_by(line))})["default"]
    monkeypatch.setattr(taskqueue, "connection", own)
    monkeypatch.setattr(taskqueue, "SILENCE_SECONDS", 0.3)
    own.ensure_connection()
    line.leave()
    with pytest.raises(OperationalError, match=r"has said nothing for 0\.3 s"):
        taskqueue._find_table()
    assert "said nothing" in taskqueue.CONTACT.problem
    taskqueue._find_table()
    assert not taskqueue.CONTACT.problem
    own.close()


def test_a_server_notices_a_host_of_ours_that_vanished() -> None:
    names = ("tcp_keepalives_idle", "tcp_user_timeout")
    columns = [f"current_setting('{name}')" for name in names]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(columns)}")
        assert cursor.fetchone() == ("10", "25000")


@pytest.mark.parametrize("blocks", [0, 1])
def test_a_file_is_given_up_before_its_first_line_and_between_lines(
    line: SilentLine, blocks: int
) -> None:
    with PatientConnection.connect(url_by(line)) as patient:
        patient.silence_seconds = 0.3
        file = copy_csv(patient, "SELECT repeat('x', 1000) FROM generate_series(1, 200000)", {})
        for _ in range(blocks):
            next(file)
        line.passes.clear()
        with pytest.raises(psycopg.OperationalError, match=r"has said nothing for 0\.3 s"):
            list(file)
        assert patient.closed


def test_a_download_that_falls_silent_ends_and_frees_its_slot(line: SilentLine) -> None:
    headers = bearer()
    large_record()
    make("2026-10", "2026-11-03T00:00")
    path = "/api/v1/usage/reports/2026-10/details.csv"
    settings = {"IPUHUB_WEB_DOWNLOADS": "1", "IPUHUB_WEB_DOWNLOAD_SECONDS": "2"}
    settings["IPUHUB_WEB_AHEAD_MEBIBYTES"] = "0"  # the thread goes at the reader's pace
    with served(DATABASE_URL=url_by(line), **settings) as port, slow_reader(port, path, headers):
        line.leave()
        wait_until(lambda: status(port, path, **headers) == 200, "a free download")


def test_a_slow_query_is_ended_by_the_server_and_told_as_such() -> None:
    request = RequestFactory().get("/api/v1/jobs")
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = 20; SELECT pg_sleep(60)")
    except OperationalError:
        answer = server_error(request)
    assert answer.status_code == 503
    assert b"did not finish this query" in answer.content


def test_what_a_process_with_waiting_users_changes() -> None:
    entry = database_settings("postgresql://a:b@c/d?connect_timeout=9&options=-c%20work_mem%3D9MB")
    assert entry["OPTIONS"]["connect_timeout"] == "9"
    assert entry["OPTIONS"]["tcp_user_timeout"] == "25000"
    change = bounded(entry, 30, 35)
    assert change["SILENCE_SECONDS"] == 35
    assert "statement_timeout=30000" in change["OPTIONS"]["options"]
    assert "idle_in_transaction_session_timeout=60000" in change["OPTIONS"]["options"]
    assert "work_mem=9MB" in change["OPTIONS"]["options"]
    patient = bounded(entry, 90, 95)["OPTIONS"]["options"]
    assert "idle_in_transaction_session_timeout=90000" in patient


def test_a_download_may_rest_longer_than_a_page(settings: SettingsWrapper) -> None:
    settings.WEB_DOWNLOAD_SECONDS = 90
    change = bounded(connection.settings_dict, 30, 35)
    with patch.dict(connection.settings_dict, change), own_connection() as own:
        rests = own.execute("SHOW idle_in_transaction_session_timeout").fetchone()
    assert rests == ("90s",)
