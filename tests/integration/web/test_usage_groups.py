"""Usage grouped and filtered by anything, over any range, in pages and as files."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_partition, store_pod
from usage.pods.rows import COLUMNS

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from pytest_django.fixtures import SettingsWrapper

NOW = at("2026-11-21T12:00")  # a Saturday
API = "/api/v1/usage"


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch, settings: SettingsWrapper) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    settings.USAGE_LABELS = ["team", "a.example/cost__centre"]


def hour(**fields) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T01:00", **fields)


def text_of(answer) -> str:
    return b"".join(answer).decode()


def keys(answer) -> list[dict[str, str]]:
    return [row["key"] for row in answer.json()["results"]]


def test_usage_is_grouped_by_any_combination(admin: User) -> None:
    hour(group="vision", user="ann", node="n1", labels={"team": "x"}, ipus=2)
    hour(group="vision", user="bob", node="n1", labels={"team": "y"}, ipus=1)
    hour(group="vision", user="bob", node="n1", labels={"team": "y"}, ipus=1)
    store_partition("2026-11-20T00:00", "2026-11-20T01:00", group="vision", user="bob", size=8)
    client = api_client(admin)
    answer = client.get(f"{API}/summary?by=group,user,node,label:team").json()
    assert answer["by"] == ["group", "user", "node", "label:team"]
    rows = [(*row["key"].values(), row["ipu_hours"], row["pods"]) for row in answer["results"]]
    assert rows == [
        ("vision", "ann", "n1", "x", "2.00000", 1),
        ("vision", "bob", "n1", "y", "2.00000", 2),
        ("vision", "bob", "", "", "0.00000", 0),  # the partition: on no node, without labels
    ]
    assert answer["total"]["partition_ipu_hours"] == "8.00000"
    assert answer["count"] == 3
    again = client.get(f"{API}/summary?by=group&by=user&by=node,label:team").json()
    assert again == answer


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("group=a", {"a1"}),
        ("group=a&group=b", {"a1", "b1", "b2"}),
        ("group=a&group=b&node=n2", {"b2"}),
        ("label:team=x", {"a1"}),
        ("label:team=x&label:team=y", {"a1", "b1"}),
        ("label:a.example/cost__centre=7", {"b2"}),
        ("component_name=a1&component_name=none", {"a1"}),
        ("group=(none)", {"d1"}),
        ("group=(none)&group=c", {"c1", "d1"}),
        ("group=\\(none)", {"e1"}),
        ("label:team=(none)&node=n2", {"b2", "c1"}),
    ],
)
def test_a_repeated_filter_means_any_of_its_values(admin: User, query: str, want: set) -> None:
    hour(component_name="a1", group="a", node="n1", labels={"team": "x"})
    hour(component_name="b1", group="b", node="n1", labels={"team": "y"})
    hour(component_name="b2", group="b", node="n2", labels={"a.example/cost__centre": "7"})
    hour(component_name="c1", group="c", node="n2")
    hour(component_name="d1", group="", node="n3")
    hour(component_name="e1", group="(none)", node="n3")
    client = api_client(admin)
    found = keys(client.get(f"{API}/summary?by=component_name&{query}"))
    assert {key["component_name"] for key in found} == want
    pods = client.get(f"{API}/lifetimes?{query}").json()["results"]
    assert {each["component_name"] for each in pods} == want
    html = browser(admin).get(f"/usage/pods/?{query}").content.decode()
    assert f"{len(want)} pod" in html
    for text in (part.partition("=")[2] for part in query.split("&")):
        assert f'value="{text}"' in html


@pytest.mark.parametrize(
    ("query", "begin", "end"),
    [
        ("window=today", "2026-11-21T00:00", "2026-11-22T00:00"),
        ("window=yesterday", "2026-11-20T00:00", "2026-11-21T00:00"),
        ("window=week", "2026-11-16T00:00", "2026-11-23T00:00"),
        ("window=lastweek", "2026-11-09T00:00", "2026-11-16T00:00"),
        ("window=month", "2026-11-01T00:00", "2026-12-01T00:00"),
        ("window=lastmonth", "2026-10-01T00:00", "2026-11-01T00:00"),
        ("window=36h", "2026-11-20T00:00", "2026-11-21T12:00"),
        ("window=7d", "2026-11-14T12:00", "2026-11-21T12:00"),
        ("window=2w", "2026-11-07T12:00", "2026-11-21T12:00"),
        ("window=2026-11-01,2026-11-02", "2026-11-01T00:00", "2026-11-03T00:00"),
        ("window=2026-11-01T05:00:00%2B05:00,2026-11-02", "2026-11-01T00:00", "2026-11-03T00:00"),
        ("from=2026-11-01&to=2026-11-02", "2026-11-01T00:00", "2026-11-03T00:00"),
        ("from=2026-11-01T06:30:00Z", "2026-11-01T06:30", "2026-11-21T12:00"),
    ],
)
def test_a_range_is_named_or_written_out(admin: User, query: str, begin: str, end: str) -> None:
    answer = api_client(admin).get(f"{API}/summary?{query}").json()
    assert (answer["begin"], answer["end"]) == (f"{begin}:00Z", f"{end}:00Z")


def test_days_are_those_of_the_report_zone(admin: User, settings: SettingsWrapper) -> None:
    settings.REPORT_ZONE = ZoneInfo("Asia/Taipei")
    client = api_client(admin)
    for query in ("from=2026-11-20&to=2026-11-20", "window=yesterday"):
        answer = client.get(f"{API}/summary?{query}").json()
        assert answer["begin"] == "2026-11-19T16:00:00Z"
        assert answer["end"] == "2026-11-20T16:00:00Z"
    store_pod("2026-11-19T15:59", "2026-11-19T16:10", uid="before")
    store_pod("2026-11-19T16:01", "2026-11-19T16:10", uid="in")
    found = client.get(f"{API}/lifetimes?since=2026-11-20&until=2026-11-20").json()["results"]
    assert [each["uid"] for each in found] == ["in"]


def test_the_pods_of_a_range_are_those_of_its_sum(admin: User) -> None:
    store_pod("2026-11-18T00:00", "2026-11-20T00:00", uid="ended as it began")
    store_pod("2026-11-18T00:00", "2026-11-20T00:01", uid="reached in")
    store_pod("2026-11-20T05:00", "2026-11-20T05:00", uid="no length")
    store_pod("2026-11-20T23:59", None, uid="goes on")
    store_pod("2026-11-21T00:00", None, uid="began as it ended")
    store_pod(None, None, uid="never scheduled")
    client = api_client(admin)
    query = "from=2026-11-20&to=2026-11-20"
    found = client.get(f"{API}/lifetimes?{query}").json()["results"]
    assert {each["uid"] for each in found} == {"reached in", "no length", "goes on"}
    assert client.get(f"{API}/summary?{query}").json()["total"]["pods"] == 3


@pytest.mark.parametrize("path", ["summary?by=group", "series?by=group&step=hour"])
def test_pages_of_sums_lose_and_double_none_while_pods_run(
    admin: User, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    for n in range(7):  # the pods that run overtake the others while somebody turns the pages
        began, end = f"2026-11-21T0{n}:00", None if n % 2 else "2026-11-21T12:00"
        store_pod(began, end, group=f"g{n}", ipus=1 + n % 3)
    client = api_client(admin)
    whole = client.get(f"{API}/{path}").json()
    assert whole["next"] is None
    exactly = client.get(f"{API}/{path}&page_size={whole['count']}").json()
    assert (exactly["next"], exactly["results"]) == (None, whole["results"])
    found, url, later = [], f"{API}/{path}&page_size=3", NOW
    while url:
        page = client.get(url).json()
        assert page["until"] == whole["until"]
        assert page["count"] == len(whole["results"])
        found += page["results"]
        url, later = page["next"], later.replace(hour=later.hour + 1 if later.hour < 23 else 23)
        monkeypatch.setattr(timezone, "now", lambda later=later: later)
    assert found == whole["results"]


@pytest.mark.parametrize("name", ["summary", "series", "lifetimes", "faults", "gaps"])
@pytest.mark.parametrize(
    ("query", "accept", "kind"),
    [
        ("?format=jsonl", "*/*", "application/x-ndjson"),
        ("", "application/x-ndjson", "application/x-ndjson"),
        ("", "application/jsonl, */*;q=0.1", "application/x-ndjson"),
        ("?format=csv", "application/json", "text/csv"),
        ("", "text/csv", "text/csv"),
        ("", "*/*", "application/json"),
        ("", "text/html", "application/json"),
    ],
)
def test_format_and_accept_choose_the_form(
    admin: User, name: str, query: str, accept: str, kind: str
) -> None:
    answer = api_client(admin).get(f"{API}/{name}{query}", headers={"Accept": accept})
    assert (answer.status_code, answer["Content-Type"]) == (200, kind)
    assert not answer.streaming or text_of(answer) is not None


def test_lines_of_json_and_csv_say_what_the_pages_say(admin: User) -> None:
    hour(group='=a,"b"\n', user="\u05d0\u05d1", labels={"team": "x"}, ipus=2)
    hour(group="c", ipus=1)
    client = api_client(admin)
    paged = client.get(f"{API}/summary?by=group,user").json()["results"]
    lines = text_of(client.get(f"{API}/summary?by=group,user&format=jsonl")).splitlines()
    for row, line in zip(paged, map(json.loads, lines), strict=True):
        key, _ = row.pop("key"), row.pop("exact")
        assert line == key | row
    pods = client.get(f"{API}/lifetimes").json()["results"]
    lines = text_of(client.get(f"{API}/lifetimes?format=jsonl")).splitlines()
    assert [json.loads(line) for line in lines] == pods
    table = text_of(client.get(f"{API}/lifetimes?format=csv"))
    rows = list(csv.DictReader(io.StringIO(table, newline="")))
    assert [row["uid"] for row in rows] == [each["uid"] for each in pods]
    assert set(COLUMNS) <= set(rows[0])  # all that is recorded


def test_the_page_has_the_same_groups_and_files(admin: User) -> None:
    hour(group="vision", user="ann", labels={"team": "x"}, ipus=2)
    hour(group="vision", user="", ipus=1)
    client = browser(admin)
    html = client.get("/usage/?by=group,label:team&group=vision&group=audio").content.decode()
    assert "Group, Label team" in html
    assert "vision · x" in html
    assert "format=jsonl" in html
    lines = text_of(client.get("/usage/?by=group,label:team&format=jsonl")).splitlines()
    assert [json.loads(line)["label:team"] for line in lines] == ["x", ""]
    chart = client.get("/usage/chart.json?by=group,label:team").json()
    assert [each["name"] for each in chart["series"]] == ["vision · x", "vision · (none)"]
    pods = text_of(client.get("/usage/pods/?format=jsonl")).splitlines()
    assert len(pods) == 2


def test_a_group_that_is_really_named_none_is_told_from_no_group(admin: User) -> None:
    """Its line, its drill-down and its filter's chip say which of the two is meant."""
    hour(group="(none)", user="ann", ipus=2)
    hour(group="", user="bob", ipus=1)
    client = browser(admin)
    page = client.get("/usage/?month=2026-11").content.decode()
    (query,) = re.findall(r'<a href="([^"]*)">\\\(none\)</a>', page)
    divided = client.get(query.replace("&amp;", "&")).content.decode()
    assert '<span class="text-secondary">Group</span> \\(none)' in divided
    assert ">ann<" in divided
    assert ">bob<" not in divided
    chart = client.get("/usage/chart.json?month=2026-11&by=group").json()
    assert {each["name"] for each in chart["series"]} == {"(none)", "\\(none)"}


def test_the_line_of_what_has_no_group_is_divided_as_any_other_in_page_and_files(
    admin: User,
) -> None:
    hour(group="vision", user="ann", ipus=2)
    hour(group="", user="bob", ipus=1)
    client = browser(admin)
    page = client.get("/usage/?month=2026-11").content.decode()
    found = re.findall(r'<a href="([^"]*)"><span class="text-secondary">\(none\)</span></a>', page)
    (query,) = [address.replace("&amp;", "&") for address in found]
    assert "group=%28none%29" in query
    divided = client.get(query).content.decode()
    assert '<span class="text-secondary">Group</span> (none)' in divided
    assert ">bob<" in divided
    assert ">ann<" not in divided
    rows = text_of(client.get(f"{query}&format=csv")).splitlines()
    assert [line.partition(",")[0] for line in rows] == ["user", "bob", "total"]
    both = client.get(f"{query}&group=vision").content.decode()
    assert "group=vision" in both
    assert ">ann<" in both


def test_a_user_groups_his_own_namespaces_only(alice: User) -> None:
    hour(namespace="team-a", node="n1", labels={"team": "mine"})
    hour(namespace="team-b", node="n2", labels={"team": "theirs"})
    store_partition("2026-11-20T00:00", "2026-11-20T01:00", namespace="team-b", user="them")
    client = api_client(alice)
    for by in ("node", "label:team", "namespace,node,user", "job,component"):
        for path in ("summary", "series"):
            for form in ("json", "csv", "jsonl"):
                answer = client.get(f"{API}/{path}?by={by}&format={form}")
                text = answer.content.decode() if form == "json" else text_of(answer)
                for secret in ("team-b", "n2", "theirs", "them"):
                    assert secret not in text
        total = client.get(f"{API}/summary?by={by}").json()["total"]
        assert (total["pods"], total["partitions"]) == (1, 0)
    for path in ("summary", "series", "lifetimes"):
        refusal = client.get(f"{API}/{path}?namespace=team-a&namespace=team-b")
        assert refusal.status_code == 403
        assert "team-b" in refusal.json()["detail"]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("summary?by=group,colour", "is not a dimension"),
        ("summary?by=label:other", "USAGE_LABELS"),
        ("summary?by=label:te'am", "is not a dimension"),
        ("summary?by=group,group", "only once"),
        ("summary?by=,", "specify at least one"),
        ("summary?label:other=x", "USAGE_LABELS"),
        ("summary?month=2026-11&month=2026-10", "month: specify it only once."),
        ("summary?window=7d&month=2026-11", "either month, or window, or from and to"),
        ("summary?window=fortnight", "is not a window. Use one of today"),
        ("summary?window=0d", "is not a window"),
        ("summary?window=999999w", "is too long"),
        ("summary?window=900000d", "is too long"),
        ("summary?window=2026-11-05,2026-11-01", "before or at its beginning"),
        ("summary?window=x,y", "'x' is not a date"),
        ("summary?measure=joy", "is unknown"),
        ("summary?page_size=0", "from 1 to 10000"),
        ("summary?page_size=1e3", "from 1 to 10000"),
        ("summary?cursor=x", "not a cursor of this list"),
        ("series?cursor=WyIyMDI2LTExLTIxIiwxXQ", "not a cursor of this list"),
        ("summary?" + "&".join(["group=x"] * 101), "at most 100 values"),
        ("lifetimes?" + "&".join(["group=x"] * 101), "at most 100 values"),
        ("lifetimes?group=%00", "Null characters"),
        ("lifetimes?page_size=-1", "from 1 to 1000"),
        ("series?window=lastmonth&step=fortnight", "is not one of"),
    ],
)
def test_what_cannot_be_answered_is_a_400_with_a_remedy(
    admin: User, path: str, sentence: str
) -> None:
    answer = api_client(admin).get(f"{API}/{path}")
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"
    assert sentence in answer.json()["detail"]
