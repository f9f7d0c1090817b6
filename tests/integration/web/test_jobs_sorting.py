"""The orders of the list of jobs: every row once in each, on pages, in files and in the API."""

from __future__ import annotations

import base64
import csv
import datetime as dt
import html
import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection

from jobs.models import JobRecord
from jobs.selectors import SORTS
from tests.builders import jobhistory
from tests.builders.clients import api_client, browser
from tests.fakes.emptytables import empty_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.contrib.auth.models import User
    from django.http import HttpResponse
    from django.test import Client
    from pytest_django import DjangoDbBlocker

NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
ROWS = 132
ORDERS = [sign + name for name in SORTS for sign in ("", "-")]
VALUES: dict[str, Callable[[JobRecord], Any]] = {
    "created": lambda job: (job.created_at, job.pk),
    "name": lambda job: (job.name, job.pk),
    "ipus": lambda job: (job.ipus, job.pk),
    "ended": lambda job: (job.completed_at or job.deleted_at, job.created_at, job.pk),
    "user": lambda job: (job.user, job.created_at, job.pk),
    "duration": lambda job: (_seconds(job), job.created_at, job.pk),
}


def _seconds(job: JobRecord) -> int | None:
    ended = job.completed_at or job.deleted_at
    started = job.started_at
    return int((ended - started).total_seconds()) if ended and started else None


@pytest.fixture(scope="module")
def _history(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Jobs of which many share each value; 60 have not ended, 12 of the others were deleted.

    They are committed once for all tests, which only read them.
    """
    with django_db_blocker.unblock():
        _make_history()
        yield
        empty_tables(connection)


def _make_history() -> None:
    for number in range(ROWS):
        created = NOON + dt.timedelta(minutes=number // 3)
        ended = NOON + dt.timedelta(hours=3, seconds=number // 4)
        runs = number % 11 < 5
        early = number % 11 == 6
        jobhistory.job(
            f"job{number % 7}",
            f"team-{'abc'[number % 3]}",
            uid=f"uid-{number}",
            user=("", "ada", "bob")[number // 30 % 3],
            ipus=(1, 4, 4, 16)[number % 4],
            status="Running" if runs or early else "Completed",
            created_at=created,
            started_at=None if number % 13 == 12 else created + dt.timedelta(seconds=number % 5),
            completed_at=None if runs or early else ended,
            deleted_at=ended if early else None,
        )


def wanted(order: str) -> list[str]:
    """All jobs as `order` sorts them; those without a value come last."""
    value = VALUES[order.removeprefix("-")]
    rows = list(JobRecord.objects.all())
    having = [job for job in rows if value(job)[0] is not None]
    missing = [job for job in rows if value(job)[0] is None]
    down = order.startswith("-")
    having.sort(key=value, reverse=down)
    missing.sort(key=lambda job: value(job)[1:], reverse=down)
    return [job.uid for job in having + missing]


def text_of(answer: HttpResponse) -> str:
    assert answer.status_code == 200
    return b"".join(answer).decode() if answer.streaming else answer.content.decode()


def uids(text: str) -> list[str]:
    return re.findall(r'<a href="/jobs/([^/"]+)/"', text)


def link(text: str, rel: str) -> str:
    found = re.search(rf'rel="{rel}" href="([^"]+)"', text)
    return html.unescape(found[1]) if found else ""


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize("order", ORDERS)
def test_paging_there_and_back_shows_each_job_once_in_its_order(staff: Client, order: str) -> None:
    pages, address = [], f"/jobs/?sort={order}"
    while address:
        text = text_of(staff.get(address))
        pages.append(uids(text))
        address = link(text, "next")
    assert [uid for page in pages for uid in page] == wanted(order)
    back = [pages[-1]]
    while address := link(text, "prev"):
        text = text_of(staff.get(address))
        back.append(uids(text))
    assert back == pages[::-1]


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize("order", ORDERS)
def test_files_and_the_api_have_the_order_of_the_page(admin: User, order: str) -> None:
    person, program = browser(admin), api_client(admin)
    rows = csv.DictReader(io.StringIO(text_of(person.get(f"/jobs/?sort={order}&format=csv"))))
    assert [row["uid"] for row in rows] == wanted(order)
    rows = json.loads(text_of(person.get(f"/jobs/?sort={order}&format=json")))
    assert [row["uid"] for row in rows] == wanted(order)
    found, address = [], f"/api/v1/jobs?sort={order}&page_size=50"
    while address:
        page = program.get(address).json()
        found += [row["uid"] for row in page["results"]]
        address = page["next"]
    assert found == wanted(order)


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize("order", ORDERS)
def test_in_no_order_are_other_namespaces_shown(alice: User, order: str) -> None:
    in_order = [
        row["uid"]
        for row in json.loads(text_of(browser(alice).get(f"/jobs/?sort={order}&format=json")))
    ]
    own = set(JobRecord.objects.filter(namespace="team-a").values_list("uid", flat=True))
    assert in_order == [uid for uid in wanted(order) if uid in own]
    assert uids(text_of(browser(alice).get(f"/jobs/?sort={order}"))) == in_order[:50]


def test_a_page_back_at_the_start_has_what_was_added_since(staff: Client) -> None:
    jobhistory.jobs(60)
    second = link(text_of(staff.get("/jobs/")), "next")
    newest = jobhistory.job("newest", created_at=dt.datetime(2100, 1, 1, tzinfo=dt.UTC))
    between = text_of(staff.get(link(text_of(staff.get(second)), "prev")))
    first = text_of(staff.get(link(between, "prev")))
    assert uids(first)[0] == newest.uid
    assert len(uids(first)) == 50
    assert not link(first, "prev")


@pytest.mark.parametrize("sort", ["size", "--ipus", "-", "ipus,name", "created_at", "\0"])
@pytest.mark.parametrize("form", ["page", "csv", "api"])
def test_an_unknown_order_is_refused_with_the_ones_there_are(
    admin: User, sort: str, form: str
) -> None:
    if form == "api":
        answer = api_client(admin).get("/api/v1/jobs", {"sort": sort})
        detail = answer.json()["detail"]
    else:
        answer = browser(admin).get(
            "/jobs/", {"sort": sort, "format": "csv" if form == "csv" else ""}
        )
        detail = html.unescape(answer.content.decode())
    assert answer.status_code == 400
    assert "is not one of created, name, ipus, ended, user, duration. Put - before it" in detail
    assert "sort=-created" in detail


@pytest.mark.parametrize("address", ["/partitions/", "/usage/pods/", "/api/v1/partitions"])
def test_a_list_of_one_order_refuses_to_be_sorted(admin: User, address: str) -> None:
    client = api_client(admin) if "api" in address else browser(admin)
    answer = client.get(f"{address}?sort=name")
    assert answer.status_code == 400
    assert "sort: unknown parameter." in answer.content.decode()


def cursor(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


TIME = "2026-03-01T12:00:00+00:00"
FORGED = [
    ("ipus", ["ipus", "after", "4", 1]),
    ("ipus", ["ipus", "after", None, 1]),
    ("ipus", ["ipus", "after", True, 1]),
    ("ipus", ["ipus", "after", 4.5, 1]),
    ("ipus", ["ipus", "after", 2**63, 1]),
    ("ipus", ["ipus", "after", 4]),
    ("ipus", ["ipus", "after", 4, 1, 1]),
    ("ipus", ["ipus", "beside", 4, 1]),
    ("ipus", ["ipus", [], 4, 1]),
    ("ipus", ["-ipus", "after", 4, 1]),
    ("ipus", [{}, "after", 4, 1]),
    ("ipus", ["name", "after", "job", 1]),
    ("name", ["name", "after", 4, 1]),
    ("name", ["name", "after", "a\0b", 1]),
    ("name", ["name", "after", "\ud800", 1]),
    ("name", ["name", "after", ["a"], 1]),
    ("user", ["user", "after", "ada", "yesterday", 1]),
    ("user", ["user", "after", "ada", None, 1]),
    ("ended", ["ended_at", "after", "2026-03-01T12:00:00", TIME, 1]),
    ("ended", ["ended_at", "after", 4, TIME, 1]),
    ("ended", ["ended_at", "after", None, None, 1]),
    ("ended", ["created_at", "after", TIME, 1]),
    ("duration", ["seconds", "after", "60", TIME, 1]),
    ("duration", ["seconds", "after", None, None, 1]),
]


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize(("sort", "parts"), FORGED)
def test_a_forged_cursor_is_refused_and_starts_no_query_with_it(
    admin: User, sort: str, parts: list[object]
) -> None:
    query = {"sort": sort, "cursor": cursor(*parts)}
    page = browser(admin).get("/jobs/", query)
    answer = api_client(admin).get("/api/v1/jobs", query)
    assert (page.status_code, answer.status_code) == (400, 400)
    assert "cursor: not a cursor of this list" in page.content.decode()
    assert "cursor: not a cursor of this list" in answer.json()["detail"]


@pytest.mark.usefixtures("_history")
@pytest.mark.parametrize(
    ("sort", "parts"),
    [
        ("ipus", ["ipus", "after", 2**63 - 1, 1]),
        ("name", ["name", "after", "'; DROP TABLE jobs_jobrecord; --%s", 1]),
        ("ended", ["ended_at", "after", "9999-12-31T23:59:59+00:00", TIME, 1]),
        ("ended", ["ended_at", "after", None, TIME, -(2**63) + 1]),
    ],
)
def test_a_cursor_beyond_all_rows_is_an_answer(admin: User, sort: str, parts: list[object]) -> None:
    answer = browser(admin).get("/jobs/", {"sort": sort, "cursor": cursor(*parts)})
    assert answer.status_code == 200
    assert JobRecord.objects.count() == ROWS


@pytest.mark.usefixtures("_history")
def test_heads_link_to_their_order_and_say_the_current_one(staff: Client) -> None:
    def heads(address: str) -> dict[str, tuple[str, str]]:
        found = re.findall(
            r'<th scope="col"([^>]*)><a class="sort" href="([^"]+)"[^>]*>([^<]+)',
            text_of(staff.get(address)),
        )
        directions = {label: re.search('aria-sort="(.+?)"', look) for look, _, label in found}
        return {
            label: (html.unescape(href), match[1] if (match := directions[label]) else "")
            for _, href, label in found
        }

    assert heads("/jobs/") == {
        "Job": ("/jobs/?sort=name", ""),
        "User": ("/jobs/?sort=user", ""),
        "IPUs": ("/jobs/?sort=-ipus", ""),
        "Created": ("/jobs/?sort=created", "descending"),
        "Ended": ("/jobs/?sort=-ended", ""),
        "Duration": ("/jobs/?sort=-duration", ""),
    }
    filtered = heads("/jobs/?sort=-ipus&status=Completed&cursor=")
    assert filtered["IPUs"] == ("/jobs/?sort=ipus&status=Completed", "descending")
    assert filtered["Created"] == ("/jobs/?sort=-created&status=Completed", "")
    assert heads("/jobs/?sort=name")["Job"] == ("/jobs/?sort=-name", "ascending")


def test_a_filter_keeps_the_order(staff: Client) -> None:
    jobhistory.job()
    text = text_of(staff.get("/jobs/?sort=-ipus"))
    form = text[text.index('<form class="card filters') :].partition("</form>")[0]
    assert '<option value="-ipus" selected>IPUs, descending</option>' in form
