"""Lists of the API as files: all rows of the filters, in the order of the pages, and no others."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import jobhistory
from tests.builders.clients import tool

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff(admin: User) -> Client:
    return tool(admin)


@pytest.fixture(autouse=True)
def _history() -> None:
    for number, (namespace, ipus) in enumerate(
        [("team-a", 4), ("team-b", 16), ("team-a", 1), ("team-a", 8)]
    ):
        made = jobhistory.job(f"train-{number}", namespace, ipus=ipus, user=f"=user{number}")
        jobhistory.partition(made)


def text_of(client: Client, address: str, **headers: str) -> str:
    answer = client.get(address, headers=headers)
    assert answer.status_code == 200, answer.content
    return b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]


def lines(client: Client, address: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text_of(client, address).splitlines()]


def table(client: Client, address: str, **headers: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text_of(client, address, **headers).splitlines()))


@pytest.mark.parametrize(
    "asked",
    [
        "jobs{}?sort=ipus",
        "jobs{}?sort=-name&namespace=team-a",
        "jobs{}?status=Failed",
        "partitions{}?namespace=team-a",
        "partitions{}",
    ],
)
def test_json_lines_are_the_rows_of_all_pages(staff: Client, asked: str) -> None:
    address: str | None = f"/api/v1/{asked.format('')}{'&' if '?' in asked else '?'}page_size=1"
    paged = []
    while address:
        page = staff.get(address).json()
        paged += page["results"]
        address = page["next"]
    assert lines(staff, f"/api/v1/{asked.format('.jsonl')}") == paged


def test_csv_has_the_filtered_rows_in_their_order_and_no_formula(staff: Client) -> None:
    found = table(staff, "/api/v1/jobs.csv?namespace=team-a&sort=-ipus")
    assert [row["ipus"] for row in found] == ["8", "4", "1"]
    assert [row["user"] for row in found] == ["'=user3", "'=user0", "'=user2"]
    assert found == table(staff, "/api/v1/jobs?namespace=team-a&sort=-ipus", Accept="text/csv")
    held = table(staff, "/api/v1/partitions.csv?namespace=team-b")
    assert [row["job"] for row in held] == ["train-1"]


def test_a_stranger_gets_no_row_of_other_namespaces(alice: User) -> None:
    caller = tool(alice)
    for form in ("csv", "jsonl"):
        for kind in ("jobs", "partitions"):
            said = text_of(caller, f"/api/v1/{kind}.{form}")
            assert "train-0" in said
            assert "train-1" not in said
    assert caller.get("/api/v1/jobs.csv?namespace=team-b").status_code == 403


def test_files_refuse_what_belongs_to_pages_and_writes(staff: Client) -> None:
    assert staff.get("/api/v1/jobs.csv?cursor=x").status_code == 400
    assert staff.get("/api/v1/jobs.csv?sort=colour").status_code == 400
    assert staff.get("/api/v1/jobs.csv?format=jsonl").status_code == 400
    assert staff.get("/api/v1/jobs.xml").status_code == 404
    assert staff.post("/api/v1/jobs.csv", {}, "application/json").status_code == 405


def test_a_body_that_is_not_json_stays_refused_where_files_are_offered(
    staff: Client, settings: SettingsWrapper
) -> None:
    settings.ACTIONS, settings.ACTIONS_USERS = True, {"root": "root@lab"}
    answer = staff.post("/api/v1/jobs", "kind: IPUJob", "application/yaml")
    assert answer.status_code == 415
    assert answer.json()["type"] == "urn:ipuhub:problem:unsupported-media-type"
