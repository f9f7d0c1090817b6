"""The list of jobs: filters, paging, twins, polling."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from ipuhub.models import WatchCheckpoint
from ipuhub.text import plain_text
from jobs.models import JobRecord
from tests.builders import jobhistory
from tests.builders.clients import browser

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http import HttpResponse
    from django.test import Client

HTMX = {"HX-Request": "true"}


def body(answer: HttpResponse) -> str:
    return b"".join(answer).decode() if answer.streaming else answer.content.decode()


def names(answer: HttpResponse) -> list[str]:
    return re.findall(r'href="/jobs/[^"]+"[^>]*>\s*<span>([^<]+)', answer.content.decode())


def test_without_jobs_the_page_says_how_to_submit_one(staff: Client) -> None:
    text = body(staff.get("/jobs/"))
    assert "No jobs yet" in text
    assert "kubectl apply" in text


def test_the_newest_job_comes_first(staff: Client) -> None:
    now = timezone.now()
    jobhistory.job("old", created_at=now - dt.timedelta(days=1))
    jobhistory.job("new", created_at=now)
    assert names(staff.get("/jobs/")) == ["new", "old"]


def test_paging_shows_each_job_once_also_where_many_share_an_instant(staff: Client) -> None:
    jobhistory.jobs(120)
    seen: list[str] = []
    address = "/jobs/?namespace=team-a"
    while address:
        answer = staff.get(address)
        seen += names(answer)
        link = re.search(r'rel="next" href="([^"]+)"', body(answer))
        address = link[1].replace("&amp;", "&") if link else ""
    assert len(seen) == 120
    assert len(set(seen)) == 120
    assert "namespace=team-a" in answer.request["QUERY_STRING"]


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("namespace=team-b", ["b"]),
        ("status=Failed", ["failed"]),
        ("status=Running", ["b", "named-resnet"]),
        ("status=Deleted", ["gone"]),
        ("group=vision", ["failed"]),
        ("user=ada", ["gone"]),
        ("name=RESNET", ["named-resnet"]),
        ("since=2026-03-02&until=2026-03-02", ["failed"]),
        ("until=2026-03-01T12:00:00Z", ["named-resnet"]),
        ("status=&namespace=&name=", ["b", "gone", "failed", "named-resnet"]),
    ],
)
def test_filters_in_the_address_narrow_the_list(staff: Client, query: str, want: list[str]) -> None:
    day = dt.datetime(2026, 3, 1, 11, tzinfo=dt.UTC)
    jobhistory.job("named-resnet", created_at=day)
    jobhistory.job("failed", status="Failed", group="vision", created_at=day + dt.timedelta(days=1))
    later = day + dt.timedelta(days=2)
    jobhistory.job("gone", user="ada", created_at=later, deleted_at=later)
    jobhistory.job("b", "team-b", created_at=day + dt.timedelta(days=3))
    assert names(staff.get(f"/jobs/?{query}")) == want


def test_a_job_deleted_while_it_ran_is_not_said_to_run(staff: Client) -> None:
    now = timezone.now()
    running = "IPUJob team-a/gone is running."
    jobhistory.job("gone", status="Running", message=running, created_at=now, deleted_at=now)
    jobhistory.job("silent", status="Pending", message="", created_at=now, deleted_at=now)
    jobhistory.job("ended", status="Failed", message="exit code 3", created_at=now, deleted_at=now)
    rows = json.loads(body(staff.get("/jobs/?format=json")))
    messages = {row["name"]: row["message"] for row in rows}
    assert messages == {
        "gone": f"Deleted before it ended. Last message: {running}",
        "silent": "Deleted before it ended.",
        "ended": "exit code 3",
    }
    assert "Deleted before it ended. Last message: Is running." in body(staff.get("/jobs/"))


def test_the_page_says_a_message_without_the_name_beside_it_and_the_twins_say_it_whole(
    staff: Client,
) -> None:
    whole = "IPUJob team-a/gnn has failed: exit code 1."
    jobhistory.job("gnn", status="Failed", message=whole)
    page = body(staff.get("/jobs/"))
    assert "Has failed: exit code 1." in page
    assert whole not in page
    assert [row["message"] for row in json.loads(body(staff.get("/jobs/?format=json")))] == [whole]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("since=yesterday", "is not a date. Use 2026-11-21"),
        ("status=Flying", "status: Select a valid choice"),
        ("stauts=Failed", "stauts: unknown parameter"),
        ("cursor=rubbish", "not a cursor of this list"),
        ("format=xml", "is not one of csv, json"),
    ],
)
@pytest.mark.parametrize("headers", [{}, HTMX])
def test_what_is_not_understood_is_refused_with_a_sentence(
    staff: Client, query: str, sentence: str, headers: dict[str, str]
) -> None:
    answer = staff.get(f"/jobs/?{query}", headers=headers)
    assert answer.status_code == 400
    assert sentence in body(answer)


def test_an_unchanged_part_is_answered_with_304_and_a_changed_one_in_full(staff: Client) -> None:
    job = jobhistory.job()
    WatchCheckpoint.objects.create(name="ipujobs", position_at=timezone.now())
    first = staff.get("/jobs/", headers=HTMX)
    assert "<html" not in body(first)
    known = HTMX | {"If-None-Match": first["ETag"]}
    again = staff.get("/jobs/", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    JobRecord.objects.filter(pk=job.pk).update(status="Completed")
    changed = staff.get("/jobs/", headers=known)
    assert changed.status_code == 200
    assert "Completed" in body(changed)


def test_the_etag_of_one_user_is_of_no_use_to_another(alice: User, admin: User) -> None:
    jobhistory.job()
    tag = browser(alice).get("/jobs/", headers=HTMX)["ETag"]
    answer = browser(admin).get("/jobs/", headers=HTMX | {"If-None-Match": tag})
    assert answer.status_code == 200


def test_a_page_whose_recorder_is_silent_says_how_old_it_is(staff: Client) -> None:
    jobhistory.job()
    heard = timezone.now() - dt.timedelta(minutes=5)
    WatchCheckpoint.objects.create(name="ipujobs", position_at=heard)
    text = body(staff.get("/jobs/"))
    assert "This page shows the state of" in text
    assert heard.strftime("%H:%M:%S") in text
    WatchCheckpoint.objects.update(position_at=timezone.now())
    assert "This page shows the state of" not in body(staff.get("/jobs/"))


NASTY = ["=1+1", "'quoted", 'a,"b"', "two\nlines", "-x", "ünï"]


def test_the_csv_twin_gives_back_what_went_in_and_starts_no_formula(staff: Client) -> None:
    for number, text in enumerate(NASTY):
        jobhistory.job(f"job-{number}", message=text, group=text)
    answer = staff.get("/jobs/?format=csv")
    assert answer["Content-Type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(body(answer), newline="")))
    assert sorted(plain_text(row["message"]) for row in rows) == sorted(NASTY)
    assert not any(row["group"].startswith(("=", "-", "+", "@")) for row in rows)


def test_the_json_twin_has_every_row_of_the_filters(staff: Client) -> None:
    jobhistory.jobs(70)
    jobhistory.job("other", "team-b")
    rows = json.loads(body(staff.get("/jobs/?namespace=team-a&format=json")))
    assert len(rows) == 70
    assert rows[0]["created_at"].endswith("Z")
    assert json.loads(body(staff.get("/jobs/?namespace=none&format=json"))) == []


def test_what_users_wrote_is_escaped(staff: Client) -> None:
    jobhistory.job(message="<script>alert(1)</script>", group="<b>")
    text = body(staff.get("/jobs/?group=%3Cb%3E"))
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert "<b>" not in text


def test_a_duration_is_from_start_to_end_and_grows_while_a_job_runs(staff: Client) -> None:
    began = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
    times = {"created_at": began - dt.timedelta(hours=1), "started_at": began}
    ended = began + dt.timedelta(minutes=90, seconds=5)
    jobhistory.job("done", status="Completed", completed_at=ended, **times)
    jobhistory.job("gone", deleted_at=ended, **times)
    jobhistory.job("runs", **times)
    jobhistory.job("held", status="Suspended", **times)
    jobhistory.job("waits", status="Pending", **times | {"started_at": None})
    rows = json.loads(body(staff.get("/jobs/?format=json")))
    assert {row["name"]: (row["ended_at"], row["duration_seconds"]) for row in rows} == {
        "done": ("2026-03-01T13:30:05Z", 5405),
        "gone": ("2026-03-01T13:30:05Z", 5405),
        **dict.fromkeys(["runs", "held", "waits"], (None, None)),
    }
    cells = re.findall(r'data-label="Duration".*?</td>', body(staff.get("/jobs/")), re.DOTALL)
    assert len(cells) == 5
    assert sum("<span>1 h 30 min</span>" in cell for cell in cells) == 2
    growing = [cell for cell in cells if "data-age" in cell]
    assert len(growing) == 1
    assert 'datetime="2026-03-01T12:00:00+00:00"' in growing[0]
