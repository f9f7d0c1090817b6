"""The list of partitions: who sees what, filters, twins, paging, its API."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from django.urls import reverse

from tests.builders.fleetrows import NOON, checkpoint, partition_row

if TYPE_CHECKING:
    from django.test import Client
    from pytest_django import DjangoAssertNumQueries

pytestmark = pytest.mark.django_db
PAGE, API = "/partitions/", "/api/v1/partitions"


@pytest.fixture
def rows() -> None:
    partition_row("bert", "team-a", controller="v1:8090")
    partition_row("gpt", "team-a", phase="error", controller="v2:8090", message="IPU 3 is lost")
    partition_row("resnet", "team-a", released_at=NOON + dt.timedelta(hours=1))
    partition_row("secret", "team-b")


def jobs_in(client: Client, query: str = "") -> list[str]:
    answer = client.get(API + query)
    assert answer.status_code == 200, answer.content
    return sorted(row["job_name"] for row in answer.json()["results"])


def test_a_stranger_gets_no_page_and_no_data(client: Client, rows: None) -> None:
    assert client.get(PAGE).status_code == 302
    assert client.get(API).status_code == 401
    assert b"bert" not in client.get(PAGE, follow=True).content


def test_a_user_sees_his_namespaces_only(user: Client, rows: None) -> None:
    text = user.get(PAGE).content.decode()
    assert "bert" in text
    assert "secret" not in text
    assert jobs_in(user) == ["bert", "gpt", "resnet"]
    for twin in ("csv", "json"):
        body = b"".join(user.get(f"{PAGE}?format={twin}").streaming_content)  # type: ignore[attr-defined]
        assert b"bert" in body
        assert b"secret" not in body


def test_asking_for_another_namespace_is_refused_in_words(user: Client, rows: None) -> None:
    for address in (PAGE, API):
        answer = user.get(f"{address}?namespace=team-b")
        assert answer.status_code == 403
        assert "not have access to namespace" in answer.content.decode()


def test_an_admin_sees_all(admin: Client, rows: None) -> None:
    assert jobs_in(admin) == ["bert", "gpt", "resnet", "secret"]


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("?state=held", ["bert", "gpt", "secret"]),
        ("?state=error", ["gpt"]),
        ("?state=active&namespace=team-a", ["bert"]),
        ("?state=released", ["resnet"]),
        ("?controller=v2:8090", ["gpt"]),
        ("?job=bert", ["bert"]),
        ("?since=2026-11-21", []),
        ("?until=2026-11-20", ["bert", "gpt", "resnet", "secret"]),
    ],
)
def test_filters_narrow_page_and_api_alike(
    admin: Client, rows: None, query: str, want: list[str]
) -> None:
    assert jobs_in(admin, query) == want
    body = b"".join(admin.get(f"{PAGE}{query}&format=json").streaming_content)  # type: ignore[attr-defined]
    assert sorted(row["job"] for row in json.loads(body)) == want


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("?state=asleep", "state"),
        ("?colour=red", "colour"),
        ("?since=yesterday", "is not a date"),
        ("?cursor=nonsense", "cursor"),
    ],
)
def test_bad_parameters_are_a_400_with_a_sentence(
    admin: Client, rows: None, query: str, word: str
) -> None:
    for address in (PAGE, API):
        answer = admin.get(address + query)
        assert answer.status_code == 400
        assert word in answer.content.decode()


def test_csv_twin_is_inert_and_whole(admin: Client) -> None:
    partition_row("job", message='=1+1,"x"\nnew line')
    body = b"".join(admin.get(f"{PAGE}?format=csv").streaming_content).decode()  # type: ignore[attr-defined]
    (row,) = list(csv.DictReader(io.StringIO(body, newline="")))
    assert row["message"] == "'" + '=1+1,"x"\nnew line'
    assert (row["size"], row["reserved_at"]) == ("4", "2026-11-20T12:00:00Z")


def test_a_row_leads_to_its_jobs_page(admin: Client, rows: None) -> None:
    assert reverse("jobs:detail", args=["uid-bert"]) in admin.get(PAGE).content.decode()


def test_pages_follow_each_other_without_a_row_twice(admin: Client) -> None:
    for number in range(60):
        partition_row(f"job-{number:02}", reserved_at=NOON + dt.timedelta(seconds=number // 7))
    found: list[str] = []
    address: str | None = f"{API}?page_size=25"
    while address:
        answer = admin.get(address).json()
        found += [row["job_name"] for row in answer["results"]]
        address = answer["next"]
    assert sorted(found) == [f"job-{number:02}" for number in range(60)]
    assert found[0] == "job-59"
    text = admin.get(PAGE).content.decode()
    assert "60 partitions" in text
    assert 'rel="next"' in text


def test_the_polled_part_is_304_until_something_changes(admin: Client, rows: None) -> None:
    answer = admin.get(PAGE, headers={"HX-Request": "true"})
    assert "<html" not in answer.content.decode()
    tag = {"HX-Request": "true", "If-None-Match": answer["ETag"]}
    assert admin.get(PAGE, headers=tag).status_code == 304
    partition_row("another")
    assert admin.get(PAGE, headers=tag).status_code == 200


def test_nothing_yet_says_what_will_appear(admin: Client) -> None:
    text = admin.get(PAGE).content.decode()
    assert "No partitions yet" in text
    assert "when they are reserved" in text
    assert "Nothing has been recorded" in text


@pytest.mark.parametrize("who", ["admin", "user"])
def test_the_page_asks_few_questions(
    request: pytest.FixtureRequest,
    django_assert_max_num_queries: DjangoAssertNumQueries,
    rows: None,
    who: str,
) -> None:
    client: Any = request.getfixturevalue(who)
    checkpoint("tracker", NOON)
    with django_assert_max_num_queries(8):
        assert client.get(PAGE).status_code == 200


@pytest.mark.parametrize("method", ["post", "put", "delete"])
def test_the_list_only_reads(admin: Client, method: str) -> None:
    assert getattr(admin, method)(PAGE).status_code == 405
    assert getattr(admin, method)(API).status_code == 405
