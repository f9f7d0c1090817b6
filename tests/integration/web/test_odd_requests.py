"""Invalid requests get an error message and never cause a server error."""

from __future__ import annotations

import base64
import datetime as dt
from typing import TYPE_CHECKING
from urllib.parse import quote
from zoneinfo import ZoneInfo

import psycopg
import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from ipuhub.models import WatchCheckpoint
from tests.builders import jobhistory
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_pod

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 3000,
        '["0001-01-01T00:00:00+23:59",1]',
        '["2026-11-21T00:00:00Z",true]',
        '["2026-11-21T00:00:00",1]',
        '{"a":1,"b":2}',
    ],
)
def test_a_forged_cursor_is_refused_in_words(admin: User, text: str) -> None:
    answer = api_client(admin).get(f"/api/v1/jobs?cursor={cursor(text)}")
    assert answer.status_code == 400
    assert "not a cursor of this list" in answer.json()["detail"]
    page = browser(admin).get(f"/jobs/?cursor={cursor(text)}")
    assert page.status_code == 400
    assert "not a cursor of this list" in page.content.decode()


@pytest.mark.parametrize("part", ["", "/pods", "/usage"])
def test_a_uid_that_no_job_can_have_is_unknown(admin: User, part: str) -> None:
    answer = api_client(admin).get(f"/api/v1/jobs/a%00b{part}")
    assert answer.status_code == 404
    assert "Job not found" in answer.json()["detail"]
    assert browser(admin).get("/jobs/a%00b/").status_code == 404


LISTS = ["jobs", "partitions", "usage/lifetimes", "usage/gaps"]
PAGES = ["/jobs/", "/partitions/", "/usage/pods/", "/usage/gaps/"]


@pytest.mark.parametrize("address", [*(f"/api/v1/{name}" for name in LISTS), *PAGES])
def test_a_range_that_ends_before_it_begins_is_refused(admin: User, address: str) -> None:
    client = api_client(admin) if "api" in address else browser(admin)
    answer = client.get(f"{address}?since=2026-11-20&until=2026-11-01")
    assert answer.status_code == 400
    assert "until: the range must end after it begins." in answer.content.decode()
    assert client.get(f"{address}?since=2026-11-20&until=2026-11-20").status_code == 200


@pytest.mark.parametrize("name", ["running", "estimated"])
def test_neither_yes_nor_no_is_refused(admin: User, name: str) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T01:00", estimated=True)
    for client, address in (
        (api_client(admin), "/api/v1/usage/lifetimes"),
        (browser(admin), "/usage/pods/"),
    ):
        answer = client.get(f"{address}?{name}=maybe")
        assert answer.status_code == 400
        assert "must be true or false." in answer.content.decode().replace("&#x27;", "'")
    found = {
        text: len(api_client(admin).get(f"/api/v1/usage/lifetimes?{name}={text}").json()["results"])
        for text in ("true", "false", "")
    }
    ended = {"true": 0, "false": 1, "": 1}
    assert found == (ended if name == "running" else {"true": 1, "false": 0, "": 1})


@pytest.mark.parametrize("name", ["usage/rates", "subscriptions", "jobs/uid-team-a-train/pods"])
def test_a_form_that_a_list_does_not_have_is_refused(admin: User, name: str) -> None:
    jobhistory.job()
    unknown = api_client(admin).get(f"/api/v1/{name}?pagesize=5")
    assert unknown.status_code == 400
    assert unknown.json()["detail"] == (
        "pagesize: unknown parameter. Valid parameters: cursor, format, page_size, total."
    )
    answer = api_client(admin).get(f"/api/v1/{name}?format=xml")
    assert answer.status_code == 400
    assert answer.json()["detail"] == "format: 'xml' is not one of json, csv, jsonl."
    assert api_client(admin).get(f"/api/v1/{name}?format=json").status_code == 200


@pytest.mark.parametrize("name", ["summary", "series", "lifetimes"])
def test_a_tool_that_accepts_csv_only_gets_it(admin: User, name: str) -> None:
    answer = api_client(admin).get(
        f"/api/v1/usage/{name}?format=csv", headers={"Accept": "text/csv"}
    )
    assert (answer.status_code, answer["Content-Type"]) == (200, "text/csv")
    assert b"".join(answer).count(b"\r\n") == 1  # nothing but the header


@pytest.mark.parametrize("address", ["/api/v1/jobs", "/api/v1/usage/summary", "/report/monthly"])
def test_who_sends_no_token_is_told_how(db: None, address: str) -> None:
    answer = Client().get(address)
    assert answer.status_code == 401
    assert "Authorization: Bearer <token>" in answer.json()["detail"]


AWAY = ("A required service (PostgreSQL) is unavailable.", "PostgreSQL is not available</h1>")
UNFINISHED = ("PostgreSQL did not finish this query",) * 2
FAILED = ("Internal error",) * 2


def fail(cause: Exception) -> None:
    raise OperationalError(str(cause)) from cause


@pytest.mark.parametrize(
    ("cause", "status", "messages"),
    [
        (psycopg.OperationalError("connection refused"), 503, AWAY),
        (psycopg.errors.AdminShutdown("terminating"), 503, AWAY),
        (psycopg.errors.QueryCanceled("statement timeout"), 503, UNFINISHED),
        (psycopg.errors.DiskFull("no space"), 500, FAILED),
    ],
)
def test_a_database_that_is_away_is_said_on_page_and_api(
    admin: User,
    monkeypatch: pytest.MonkeyPatch,
    cause: Exception,
    status: int,
    messages: tuple[str, str],
) -> None:
    program, person = api_client(admin), browser(admin)
    monkeypatch.setattr("ipuhub.web.lists.read_page", lambda *_: fail(cause))
    monkeypatch.setattr("ipuhub.api.paging.read_page", lambda *_: fail(cause))
    for client in (program, person):
        client.raise_request_exception = False
    answer = program.get("/api/v1/jobs")
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert messages[0] in answer.json()["detail"]
    page = person.get("/jobs/")
    assert page.status_code == status
    assert messages[1] in page.content.decode()
    part = person.get("/jobs/", headers={"HX-Request": "true"})
    assert part.status_code == status
    assert part["Content-Type"].startswith("text/plain")
    assert ("PostgreSQL" in part.content.decode()) == (status == 503)


@pytest.mark.parametrize("zone", ["Asia/Taipei", "America/Los_Angeles"])
def test_a_month_has_its_own_name_in_every_zone(
    admin: User, settings: SettingsWrapper, zone: str
) -> None:
    settings.REPORT_ZONE = ZoneInfo(zone)
    html = browser(admin).get("/usage/?month=2026-10").content.decode()
    assert "Usage in October 2026" in html
    assert "Report of October 2026" in html
    assert f"Time zone: {zone}." in html


@pytest.mark.parametrize(
    ("address", "watch_name"),
    [("/usage/", "pods"), ("/usage/pods/", "pods"), ("/partitions/", "tracker")],
)
def test_what_nobody_records_any_more_says_its_age(
    admin: User, monkeypatch: pytest.MonkeyPatch, address: str, watch_name: str
) -> None:
    now = at("2026-11-21T12:00")
    monkeypatch.setattr(timezone, "now", lambda: now)
    watch = WatchCheckpoint.objects.create(
        name=watch_name, position_at=now - dt.timedelta(seconds=30)
    )
    assert (
        "has received nothing from the cluster" not in browser(admin).get(address).content.decode()
    )
    watch.position_at = now - dt.timedelta(minutes=5)
    watch.save()
    html = browser(admin).get(address).content.decode()
    assert "5 min</time> ago" in html
    assert "has received nothing from the cluster" in html
    past = browser(admin).get("/usage/?month=2026-10").content.decode()
    assert "has received nothing from the cluster" not in past


def test_a_worker_that_was_stopped_after_its_launcher_is_no_failure(admin: User) -> None:
    job = jobhistory.job(status="Completed")
    life = {"phase": "Failed", "reason": "DeadlineExceeded", "exit_code": 143}
    begin = job.created_at
    times = {
        "scheduled_at": begin,
        "started_at": begin,
        "finished_at": begin + dt.timedelta(seconds=60),
    }
    jobhistory.pod(job, "worker", **life, **times)
    html = browser(admin).get(f"/jobs/{job.uid}/").content.decode()
    assert "bar-stopped" in html
    assert "bar-failed" not in html
    assert "ran until it was stopped" in html
    pods = browser(admin).get(f"/jobs/{job.uid}/pods/").content.decode()
    assert '<code title="DeadlineExceeded">DeadlineExceeded</code>' in pods
    assert 'data-state="Stopped"' in pods
    assert 'data-state="Failed"' not in pods
    events = browser(admin).get(f"/jobs/{job.uid}/events/").content.decode()
    assert "-worker-0: stopped</span>" in events
    assert "text-red" not in events


@pytest.mark.parametrize("text", ["%ff", "a%c3", "%ed%a0%80", "%80"])
def test_bytes_that_are_no_text_are_refused(admin: User, text: str) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T01:00", group="\ufffd")
    for address in ("/api/v1/usage/summary", "/api/v1/usage/lifetimes", "/api/v1/jobs"):
        answer = api_client(admin).get(f"{address}?user={text}")
        assert answer.status_code == 400
        assert answer["Content-Type"] == "application/problem+json"
        assert "not valid UTF-8" in answer.json()["detail"]
    assert browser(admin).get(f"/usage/pods/?group={text}").status_code == 400
    found = api_client(admin).get(f"/api/v1/usage/lifetimes?group={quote(chr(0xFFFD))}").json()
    assert len(found["results"]) == 1  # written out it is a character like any other


@pytest.mark.parametrize(
    ("query", "host", "sentence"),
    [
        ("", "evil.example", "This host name is not allowed."),
        ("?" + "&".join(f"f{n}=1" for n in range(1100)), "testserver", "too many fields"),
    ],
)
def test_what_django_will_not_take_is_refused_in_words(
    admin: User, query: str, host: str, sentence: str
) -> None:
    page = browser(admin).get(f"/jobs/{query}", headers={"Host": host})
    assert (page.status_code, sentence in page.content.decode()) == (400, True)
    answer = api_client(admin).get(f"/api/v1/jobs{query}", headers={"Host": host})
    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert sentence in answer.json()["detail"]
