"""A PostgreSQL that stops answering with open connections: no request waits without end."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING
from urllib.parse import quote

import psycopg
import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError, connection
from django.test import RequestFactory

from dashboard.notify.metrics import Count, count
from ipuhub.database import bounded, database_settings
from ipuhub.patientpostgres.connection import PatientConnection
from ipuhub.web.problems import server_error
from tests.fakes.silentline import SilentLine
from tests.fakes.waiting import wait_until
from tests.integration.usage.reading import make
from tests.integration.web.test_live_web import large_record, slow_reader
from tests.integration.web.webprocess import KEY, bearer, served, status
from usage.reports.csv import copy_csv

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        said = page(port, "/jobs/", 503, **browser)
        assert "A required service (PostgreSQL) is unavailable." in said
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
    assert "work_mem=9MB" in change["OPTIONS"]["options"]
