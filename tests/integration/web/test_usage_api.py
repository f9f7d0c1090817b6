"""Usage in the API: any range, steps, files, refusals with a sentence, and access."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from ipuhub.models import RecordFault, WatchGap
from tests.builders.clients import api_client
from tests.builders.lifetimes import at, store_partition, store_pod

if TYPE_CHECKING:
    from django.contrib.auth.models import User

NOW = at("2026-11-21T12:00")
API = "/api/v1/usage"


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)


def lines(answer) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(b"".join(answer).decode(), newline="")))


def test_a_range_is_summed_exactly_and_in_hours(admin: User) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", ipus=4, group="vision")
    store_partition("2026-11-20T00:00", "2026-11-20T03:00", size=4, group="vision")
    query = "from=2026-11-20T01:00:00Z&to=2026-11-20T01:30:00Z&by=group"
    answer = api_client(admin).get(f"{API}/summary?{query}").json()
    row = answer["results"][0]
    assert row["key"] == {"group": "vision"}
    assert row["ipu_hours"] == row["partition_ipu_hours"] == "2.00000"
    assert row["exact"]["micro_ipu_seconds"] == 4 * 10**6 * 1800
    assert answer["total"]["ipu_hours"] == "2.00000"
    assert (answer["begin"], answer["until"]) == ("2026-11-20T01:00:00Z", "2026-11-20T01:30:00Z")


def test_days_of_a_range_include_the_last(admin: User) -> None:
    store_pod("2026-11-01T00:00", "2026-11-10T00:00", ipus=1)
    answer = api_client(admin).get(f"{API}/summary?from=2026-11-02&to=2026-11-03").json()
    assert answer["total"]["ipu_hours"] == "48.00000"


def test_the_csv_says_what_the_json_says(admin: User) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", ipus=4, group="=1+1")
    client = api_client(admin)
    row = client.get(f"{API}/summary?by=group").json()["results"][0]
    line = lines(client.get(f"{API}/summary?by=group&format=csv"))[0]
    assert line.pop("group") == "'" + row.pop("key")["group"]
    assert line == {key: "" if row[key] is None else str(row[key]) for key in line}


def test_a_series_adds_up_to_the_summary(admin: User) -> None:
    store_pod("2026-11-05T10:30", "2026-11-08T02:00", ipus=4)
    client = api_client(admin)
    whole = client.get(f"{API}/summary?month=2026-11").json()["total"]["exact"]
    for step in ("hour", "day", "week", "month"):
        steps = client.get(f"{API}/series?month=2026-11&step={step}").json()["results"]
        for name, want in whole.items():
            assert sum(each["exact"][name] for each in steps) == want
    assert len(steps) == 1
    *days, total = lines(client.get(f"{API}/series?month=2026-11&format=csv"))
    assert (total["begin"], total["ipu_hours"]) == ("total", "254.00000")
    assert [day["begin"] for day in days] == [f"2026-11-0{n}T00:00:00Z" for n in (5, 6, 7, 8)]
    assert [day["ipu_hours"] for day in days] == ["54.00000", "96.00000", "96.00000", "8.00000"]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("summary?by=colour", "is not a dimension"),
        ("summary?month=2026-12", "has not begun yet"),
        ("summary?month=11/2026", "Use YYYY-MM"),
        ("summary?from=2026-11-05&to=2026-11-01", "before or at its beginning"),
        ("summary?to=2026-11-01", "required for a range"),
        ("summary?from=soon", "is not a date"),
        ("summary?month=2026-11&from=2026-11-01", "either month, or window, or from and to"),
        ("summary?month=2026-11&colour=red", "unknown parameter"),
        ("summary?from=9998-01-01&to=9999-12-30", "between the years"),
        ("summary?group=%00", "zero byte"),
        ("summary?format=xml", "is not one of json, csv, jsonl"),
        ("series?from=2020-01-01&step=hour", "more than 2000 steps"),
        ("series?step=second", "is not one of"),
        ("lifetimes?colour=red", "unknown parameter"),
        ("lifetimes?cursor=x", "not a cursor of this list"),
        ("lifetimes?format=xml", "is not one of json, csv, jsonl"),
        ("gaps?since=soon", "is not a date"),
    ],
)
def test_what_is_not_understood_is_a_400_with_a_sentence(
    admin: User, path: str, sentence: str
) -> None:
    answer = api_client(admin).get(f"{API}/{path}")
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"
    assert sentence in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("summary?a%20b:%20c=1", "a b: c"),  # a name is what the address has, whatever it is
        ("summary?label:x:%20y=1", "label:x: y"),
        ("lifetimes?a%20b=1", "a b"),
        ("series?step=second", "step"),
        ("series?window=1x", "window"),
        ("summary?month=x", "month"),
        ("summary?by=colour", "by"),
        ("summary?from=2026-11-05&to=2026-11-01", "non_field_errors"),
    ],
)
def test_the_parameter_that_is_wrong_is_named(admin: User, path: str, name: str) -> None:
    problem = api_client(admin).get(f"{API}/{path}").json()
    ((named, (sentence,)),) = problem["errors"].items()
    assert named == name
    assert problem["detail"] == (sentence if name == "non_field_errors" else f"{name}: {sentence}")


def test_a_tool_sees_its_owner_s_namespaces(alice: User, charlie: User) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", namespace="team-a", group="optics")
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", namespace="team-b", group="acoustics")
    for path in ("summary?by=group", "series?by=group", "lifetimes"):
        seen = api_client(alice).get(f"{API}/{path}").content.decode()
        assert "optics" in seen
        assert "acoustics" not in seen
        assert "optics" not in api_client(charlie).get(f"{API}/{path}").content.decode()
        foreign = f"{API}/{path}{'&' if '?' in path else '?'}namespace=team-b"
        assert api_client(alice).get(foreign).status_code == 403


def test_without_a_token_nothing_is_answered(client, db: None) -> None:
    for path in ("summary", "series", "lifetimes", "faults", "gaps"):
        assert client.get(f"{API}/{path}").status_code == 401


def test_pods_come_in_pages_that_lose_and_double_none(admin: User) -> None:
    for n in range(7):
        store_pod("2026-11-20T00:00", "2026-11-20T02:00", uid=f"u{n}")
    client, found, url = api_client(admin), [], f"{API}/lifetimes?page_size=3"
    while url:
        page = client.get(url).json()
        found += [row["uid"] for row in page["results"]]
        url = page["next"]
    assert sorted(found) == [f"u{n}" for n in range(7)]
    assert len(lines(client.get(f"{API}/lifetimes?format=csv"))) == 7


def test_faults_are_for_administrators_and_gaps_for_all(admin: User, alice: User) -> None:
    common = {"watch": "pods", "uid": "u", "code": "c", "message": "m"}
    RecordFault.objects.create(**common, first_at=NOW, last_at=NOW)
    WatchGap.objects.create(watch="pods", began_at=at("2026-11-03"), ended_at=NOW, cause="lost")
    assert api_client(admin).get(f"{API}/faults").json()["results"][0]["code"] == "c"
    assert api_client(alice).get(f"{API}/faults").status_code == 403
    assert api_client(alice).get(f"{API}/gaps").json()["results"][0]["cause"] == "lost"


def test_page_and_api_give_the_same_figures(admin: User) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T02:20", ipus=4, cpu=0.3, memory_gib=1.7)
    client = api_client(admin)
    row = client.get(f"{API}/summary?by=group").json()["results"][0]
    client.force_login(admin)
    page = client.get("/usage/").content.decode()
    for name in ("ipu_hours", "cpu_core_hours", "memory_gib_hours", "pod_hours"):
        assert f'title="{row[name]}"' in page
