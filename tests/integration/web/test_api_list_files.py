"""Lists of the API as files: all rows of the filters, in the order of the pages, and no others."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from jobs.models import JobEvent, JobRecord
from tests.builders import jobhistory
from tests.builders.clients import api_client
from tests.builders.lifetimes import at
from tests.builders.notifications import subscribe
from tests.builders.questions import count_queries
from tests.builders.rates import store_rate
from tests.integration.usage.reading import make
from usage.models import Rate, ReportRun

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(admin: User) -> Client:
    return api_client(admin)


@pytest.fixture(autouse=True)
def _history() -> None:
    for number, (namespace, ipus) in enumerate(
        [("team-a", 4), ("team-b", 16), ("team-a", 1), ("team-a", 8)]
    ):
        made = jobhistory.job(f"train-{number}", namespace, ipus=ipus, user=f"=user{number}")
        jobhistory.partition(made)


@pytest.fixture
def _accounts(admin: User) -> None:
    """Rates, reports that are older than one of them, runs, subscriptions, and pods of a job."""
    store_rate("cpu", "1.25", ends="2026-03-01")
    for month in ("2026-01", "2026-02"):
        make(month, "2026-04-01T00:00")
    store_rate("instance", "0.000001", name="=evil()")
    for number in range(2):
        kept = {"kind": "summary", "state": "done", "expires_at": None, "months": ["2026-01"]}
        began = timezone.now() if number else at("2025-12-31T00:00")
        window = {"begin": at("2026-01-10T00:00"), "end": timezone.now(), "started_at": began}
        ReportRun.objects.create(
            requested_by="=root", requested_at=timezone.now(), **kept, **window
        )
        subscribe(admin, "job-waiting", target="https://chat.example/hook", minutes=30)
    job = JobRecord.objects.get(name="train-1")
    for number in range(3):
        jobhistory.pod(job, pod_name=f"train-1-worker-{number}")
        JobEvent.objects.create(
            job=job, uid=f"e-{number}", message="=Pulled", first_at=began, last_at=began
        )


def text_of(client: Client, address: str, **headers: str) -> str:
    answer = client.get(address, headers=headers)
    assert answer.status_code == 200, answer.content
    return b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]


def lines(client: Client, address: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text_of(client, address).splitlines()]


def table(client: Client, address: str, **headers: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text_of(client, address, **headers).splitlines()))


@pytest.mark.parametrize(
    "query",
    [
        "jobs{}?sort=ipus",
        "jobs{}?sort=-name&namespace=team-a",
        "jobs{}?status=Running",
        "partitions{}?namespace=team-a",
        "partitions{}",
        "jobs/uid-team-b-train-1/pods{}",
        "jobs/uid-team-b-train-1/events{}",
        "subscriptions{}",
        "usage/rates{}",
        "usage/reports{}",
        "usage/reports/runs{}",
    ],
)
@pytest.mark.usefixtures("_accounts")
def test_json_lines_are_the_rows_of_all_pages(staff: Client, query: str) -> None:
    address: str | None = f"/api/v1/{query.format('')}{'&' if '?' in query else '?'}page_size=1"
    paged = []
    while address:
        page = staff.get(address).json()
        paged += page["results"]
        address = page["next"]
    assert len(paged) > 0
    assert lines(staff, f"/api/v1/{query.format('.jsonl')}") == paged


def test_csv_has_the_filtered_rows_in_their_order_and_no_formula(staff: Client) -> None:
    found = table(staff, "/api/v1/jobs.csv?namespace=team-a&sort=-ipus")
    assert [row["ipus"] for row in found] == ["8", "4", "1"]
    assert [row["user"] for row in found] == ["'=user3", "'=user0", "'=user2"]
    assert found == table(staff, "/api/v1/jobs?namespace=team-a&sort=-ipus", Accept="text/csv")
    held = table(staff, "/api/v1/partitions.csv?namespace=team-b")
    assert [row["job"] for row in held] == ["train-1"]


@pytest.mark.usefixtures("_accounts")
def test_each_list_has_a_csv_with_its_columns_and_no_formula_or_secret(staff: Client) -> None:
    rates = table(staff, "/api/v1/usage/rates.csv")
    assert {row["name"] for row in rates} == {"", "'=evil()"}
    assert {row["price"] for row in rates} == {"1.250000", "0.000001"}
    assert {row["valid_until"] for row in rates} == {"2026-03-01", ""}
    reports = table(staff, "/api/v1/usage/reports.csv")
    assert [(row["month"], row["state"]) for row in reports] == [
        ("'2026-02", "closed"),
        ("'2026-01", "closed"),
    ]
    assert {row["outdated"] for row in reports} == {"rates"}
    runs = table(staff, "/api/v1/usage/reports/runs.csv")
    assert [(row["requested_by"], row["outdated"]) for row in runs] == [
        ("'=root", ""),
        ("'=root", "rates"),
    ]
    pods = table(staff, "/api/v1/jobs/uid-team-b-train-1/pods.csv")
    assert {row["pod_name"] for row in pods} == {f"train-1-worker-{n}" for n in range(3)}
    events = table(staff, "/api/v1/jobs/uid-team-b-train-1/events.csv")
    assert {row["message"] for row in events} == {"'=Pulled"}
    assert table(staff, "/api/v1/jobs/uid-team-a-train-0/events.csv") == []
    text = text_of(staff, "/api/v1/subscriptions.csv")
    assert text.count("https://chat.example/hook,") == 2
    assert "s3cret" not in text + text_of(staff, "/api/v1/subscriptions.jsonl")
    times = [row[name] for row in (*rates, *runs) for name in row if name.endswith("_at")]
    assert {text[-1:] for text in times} == {"Z", ""}


@pytest.mark.usefixtures("_accounts")
@pytest.mark.parametrize("kind", ["usage/reports", "usage/reports/runs"])
def test_what_rows_are_older_than_is_asked_once(staff: Client, kind: str) -> None:
    staff.get("/api/v1/jobs")  # notes the use of the token
    with CaptureQueriesContext(connection) as queries:
        assert staff.get(f"/api/v1/{kind}").status_code == 200
    assert count_queries(queries) == 4  # the token, the rows, rates and corrections


def test_a_stranger_gets_no_row_of_other_namespaces(alice: User) -> None:
    caller = api_client(alice)
    for form in ("csv", "jsonl"):
        assert caller.get(f"/api/v1/jobs/uid-team-b-train-1/pods.{form}").status_code == 404
        assert caller.get(f"/api/v1/usage/rates.{form}").status_code == 403
        for kind in ("jobs", "partitions"):
            text = text_of(caller, f"/api/v1/{kind}.{form}")
            assert "train-0" in text
            assert "train-1" not in text
    assert caller.get("/api/v1/jobs.csv?namespace=team-b").status_code == 403


def test_files_refuse_what_belongs_to_pages_and_writes(staff: Client) -> None:
    assert staff.get("/api/v1/jobs.csv?cursor=x").status_code == 400
    assert staff.get("/api/v1/jobs.csv?sort=colour").status_code == 400
    assert staff.get("/api/v1/jobs.csv?format=jsonl").status_code == 400
    assert staff.get("/api/v1/jobs.xml").status_code == 404
    price = {"resource": "cpu", "price": "1", "valid_from": "2026-01-01"}
    for kind in ("jobs", "subscriptions", "usage/rates", "usage/reports/runs"):
        assert staff.post(f"/api/v1/{kind}.csv", price, "application/json").status_code == 405
    assert not Rate.objects.exists()


def test_a_body_that_is_not_json_stays_refused_where_files_are_offered(
    staff: Client, settings: SettingsWrapper
) -> None:
    settings.ACTIONS, settings.ACTIONS_USERS = True, {"root": "root@lab"}
    answer = staff.post("/api/v1/jobs", "kind: IPUJob", "application/yaml")
    assert answer.status_code == 415
    assert answer.json()["type"] == "urn:ipuhub:problem:unsupported-media-type"
