"""A job's time line in the API as its page has it, and the jobs of its name before and after it."""

from __future__ import annotations

import csv
import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from ipuhub.models import AuditEntry
from jobs.models import JobEvent
from tests.builders.clients import api_client, browser
from tests.builders.jobhistory import job

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client

    from jobs.models import JobRecord


def timeline(client: Client, of: JobRecord) -> Any:
    answer = client.get(f"/api/v1/jobs/{of.uid}/timeline")
    assert answer.status_code == 200, answer.content
    return answer.json()


def store_event(of: JobRecord, number: int, message: str, **fields: Any) -> JobEvent:
    at = of.created_at + dt.timedelta(seconds=number)
    times = {"first_at": at, "last_at": at}
    return JobEvent.objects.create(job=of, uid=f"e-{number}", message=message, **times, **fields)


def test_the_time_line_of_the_api_is_that_of_the_page(
    alice: User, ended: JobRecord, staff: Client
) -> None:
    store_event(ended, 3, "<b>Pulled</b> the image", reason="Pulled")
    for at in (ended.created_at, timezone.now()):
        AuditEntry.objects.create(
            at=at, user_name="ann", action="run-again", uid=ended.uid, change={}, outcome="accepted"
        )
    ended.attempts.update(ended_at=ended.completed_at)
    found = timeline(api_client(alice), ended)
    assert found["hidden"] == 0
    assert {each["kind"] for each in found["results"]} == {
        "job", "attempt", "partition", "pod", "action", "event",
    }  # fmt: skip
    times = [each["at"][:19] for each in found["results"]]
    assert times == sorted(times, reverse=True)
    page = staff.get(f"/jobs/{ended.uid}/events/").content.decode()
    assert page.count("<tr>") - 1 == len(found["results"])
    places = [page.find(each["what"]) for each in found["results"] if each["kind"] != "event"]
    assert -1 not in places
    messages = [(each["at"][:19], each["message"]) for each in found["results"] if each["message"]]
    assert len(messages) == len(set(messages))


def test_files_have_the_events_that_the_answer_hides(alice: User, db: None) -> None:
    made = job()
    for number in range(320):
        store_event(made, number, f"={number}")
    client = api_client(alice)
    found = timeline(client, made)
    assert (len(found["results"]), found["hidden"]) == (300, 21)
    assert "Created" in [each["what"] for each in found["results"]]
    table = b"".join(client.get(f"/api/v1/jobs/{made.uid}/timeline.csv")).decode()
    rows = list(csv.DictReader(table.splitlines()))
    assert (len(rows), rows[0]["what"]) == (321, "'=319")
    lines = b"".join(client.get(f"/api/v1/jobs/{made.uid}/timeline.jsonl")).splitlines()
    assert [json.loads(line)["what"] for line in lines[:300]] == [
        f"={number}" for number in range(319, 19, -1)
    ]


@pytest.mark.parametrize("query", ["limit=3", "format=xml"])
def test_a_parameter_that_the_time_line_does_not_know_is_refused(
    alice: User, ended: JobRecord, query: str
) -> None:
    assert api_client(alice).get(f"/api/v1/jobs/{ended.uid}/timeline?{query}").status_code == 400


def test_a_job_names_the_nearest_jobs_of_its_name_before_and_after_it(alice: User) -> None:
    begin = timezone.now() - dt.timedelta(days=9)
    runs = []
    for number in range(9):
        created = begin + dt.timedelta(days=number)
        is_failed = number % 2
        times = {"created_at": created, "started_at": created + dt.timedelta(minutes=1)}
        ends = created + dt.timedelta(minutes=1 + number)
        status = "Failed" if is_failed else "Running"
        over = {"completed_at" if is_failed else "deleted_at": ends}
        uid = f"uid-run-{number}"
        runs.append(job("train", uid=uid, status=status, **times, **over))
        job("train", "team-b", uid=f"uid-other-{number}", **times, **over)
        job("train-2", uid=f"uid-2-{number}", **times, **over)
    found = api_client(alice).get(f"/api/v1/jobs/{runs[4].uid}").json()["runs"]
    assert [each["uid"] for each in found] == [f"uid-run-{n}" for n in (7, 6, 5, 3, 2, 1)]
    assert [each["is_later"] for each in found] == [True] * 3 + [False] * 3
    assert [each["state"] for each in found] == [
        "Failed" if n % 2 else "Deleted" for n in (7, 6, 5, 3, 2, 1)
    ]
    assert [each["duration_seconds"] for each in found] == [60 * n for n in (7, 6, 5, 3, 2, 1)]
    page = browser(alice).get(f"/jobs/{runs[4].uid}/").content.decode()
    part = page[page.index('<div class="runs') :].partition("</ul>")[0]
    assert [part.count(f"/jobs/uid-run-{n}/") for n in range(9)] == [0, 1, 1, 1, 0, 1, 1, 1, 0]
    assert part.count("Later:") == part.count("Earlier:") == 3
    assert "ran 7 min" in part


def test_a_later_run_changes_an_open_page_and_a_job_of_its_own_name_has_no_list(
    alice: User,
) -> None:
    first, client = job(uid="uid-first"), browser(alice)
    address = f"/jobs/{first.uid}/"
    before = client.get(address)
    assert b'class="runs' not in before.content
    job(uid="uid-second")
    again = client.get(address, headers={"If-None-Match": before["ETag"], "HX-Request": "true"})
    assert again.status_code == 200
    assert b"/jobs/uid-second/" in again.content
