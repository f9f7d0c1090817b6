"""The usage page: figures, exports, access, odd names and invalid queries."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ipuhub.models import RecordFault, WatchCheckpoint, WatchGap
from ipuhub.web.palette import colour_number
from tests.builders.clients import browser
from tests.builders.lifetimes import at, store_partition, store_pod

if TYPE_CHECKING:
    from django.contrib.auth.models import User

NOW = at("2026-11-21T12:00")
ODD = ["<script>alert(1)</script>", "=1+1", 'a,"b"', "two\nlines", "%s %(x)s", "'quoted"]


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)


def table(html: str) -> list[list[str]]:
    """The cells' exact values: hours stand in the title."""
    rows = re.findall(
        r"<tr>(.*?)</tr>", html.split("<tbody>")[1].split("</tbody>", maxsplit=1)[0], re.DOTALL
    )
    measures = r'<td[^>]*?text-sm-end(?: is-chosen)?" title="([^"]*)"'
    return [re.findall(measures, row) for row in rows]


def test_the_month_shows_the_pod_s_share_and_both_kinds_of_ipu_hours(admin: User) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", ipus=4, cpu=2, memory_gib=8, group="vision")
    store_partition("2026-11-20T00:00", "2026-11-20T03:00", size=4, group="vision")
    html = browser(admin).get("/usage/?month=2026-11").content.decode()
    assert "Usage in November 2026" in html
    assert ">vision" in html
    assert table(html) == [["8.00000", "12.00000", "4.00000", "16.00000", "0.00000", "2.00000"]]


@pytest.mark.parametrize("by", ["namespace", "group", "user", "component", "instance_type"])
def test_the_twins_equal_the_page(admin: User, by: str) -> None:
    for n in range(4):
        store_pod("2026-11-20T00:00", f"2026-11-20T0{n + 1}:00", ipus=n, **{by: f"value-{n}"})
    client = browser(admin)
    rows = table(client.get(f"/usage/?by={by}").content.decode())
    text = b"".join(client.get(f"/usage/?by={by}&format=csv&total=no")).decode()
    lines = list(csv.DictReader(io.StringIO(text)))
    records = json.loads(b"".join(client.get(f"/usage/?by={by}&format=json")))
    assert [list(line.values())[3:9] for line in lines] == rows
    assert [["" if v is None else str(v) for v in record.values()] for record in records] == [
        list(line.values()) for line in lines
    ]
    assert [line[by] for line in lines] == ["value-3", "value-2", "value-1", "value-0"]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_come_out_as_they_went_in_and_run_nowhere(admin: User, name: str) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", ipus=4, group=name)
    client = browser(admin)
    html = client.get("/usage/").content.decode()
    assert "<script>alert" not in html
    text = b"".join(client.get("/usage/?format=csv")).decode()
    cell = next(csv.DictReader(io.StringIO(text, newline="")))["group"]
    assert cell == (f"'{name}" if name[0] in "='" else name)
    assert json.loads(b"".join(client.get("/usage/?format=json")))[0]["group"] == name
    drawn = client.get("/usage/chart.json")
    assert drawn.json()["series"][0]["name"] == name
    assert drawn["Content-Type"] == "application/json"
    only = client.get(f"/usage/?{urlencode({'group': name})}")
    assert len(table(only.content.decode())) == 1


def test_a_colour_of_the_chart_belongs_to_the_name_whatever_its_rank(admin: User) -> None:
    client, seen = browser(admin), []
    for more in ("vision", "speech"):
        for group in ("vision", "speech", more):
            store_pod("2026-11-20T00:00", "2026-11-20T02:00", ipus=4, group=group)
        drawn = client.get("/usage/chart.json").json()["series"]
        seen.append([(each["name"], each["paint"]) for each in drawn])
        if more == "vision":
            for _ in range(3):
                store_pod("2026-11-20T00:00", "2026-11-20T02:00", ipus=4, group="speech")
    assert [name for name, _ in seen[0]] == [name for name, _ in reversed(seen[1])]
    assert dict(seen[0]) == dict(seen[1])
    assert dict(seen[0])["vision"][0] == f"fill-{colour_number('vision')}"


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("month=2026-12", "2026-12 has not begun yet"),
        ("month=2026-13", "is not a month"),
        ("month=yesterday", "Use YYYY-MM"),
        ("by=colour", "is not a dimension"),
        ("measure=power", "is unknown"),
        ("format=pdf", "is not one of csv, json"),
        ("colour=red", "unknown parameter"),
        ("to=2026-11-01", "from: required for a range"),
        ("window=fortnight", "is not a window"),
        ("month=2026-11&window=7d", "Specify either month, or window"),
        ("compare=2025", "must be before or none"),
        ("group=%00", "zero byte"),
    ],
)
def test_a_question_of_no_use_is_a_400_with_a_sentence(
    admin: User, query: str, sentence: str
) -> None:
    answer = browser(admin).get(f"/usage/?{query}")
    assert answer.status_code == 400
    assert sentence in answer.content.decode()


@pytest.mark.parametrize(
    ("query", "sentence"),
    [("from=1971-01-01&to=2199-01-01", "more than 2000 steps"), ("by=colour", "not a dimension")],
)
def test_a_chart_of_no_use_is_a_400_with_a_sentence(admin: User, query: str, sentence: str) -> None:
    answer = browser(admin).get(f"/usage/chart.json?{query}")
    assert answer.status_code == 400
    assert sentence in answer.json()["detail"]


def test_a_user_sees_his_namespaces_and_the_stranger_none(alice: User, charlie: User) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", namespace="team-a", group="optics")
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", namespace="team-b", group="acoustics")
    for address in ("/usage/", "/usage/chart.json?measure=pod_hours", "/usage/pods/?format=csv"):
        answer = browser(alice).get(address)
        text = (b"".join(answer) if answer.streaming else answer.content).decode()
        assert "optics" in text
        assert "acoustics" not in text
        answer = browser(charlie).get(address)
        text = (b"".join(answer) if answer.streaming else answer.content).decode()
        assert "optics" not in text
        assert "acoustics" not in text


def test_another_s_namespace_is_a_403_with_a_sentence(alice: User) -> None:
    for address in ("/usage/", "/usage/chart.json", "/usage/pods/"):
        answer = browser(alice).get(f"{address}?namespace=team-b")
        assert answer.status_code == 403
        assert "Ask an administrator" in answer.content.decode()


def test_nobody_signed_in_is_sent_to_the_sign_in(client, db: None) -> None:
    for part in ("", "chart.json", "pods/", "gaps/", "faults/"):
        assert client.get(f"/usage/{part}").headers["Location"].startswith("/login/")


def test_faults_are_for_administrators(admin: User, alice: User) -> None:
    RecordFault.objects.create(
        watch="pods",
        uid="u",
        namespace="team-a",
        name="pod-1",
        code="annotation",
        message="The annotation is no JSON.",
        excerpt="<b>{</b>",
        first_at=NOW,
        last_at=NOW,
    )
    html = browser(admin).get("/usage/faults/").content.decode()
    assert "The annotation is no JSON." in html
    assert "<b>{" not in html
    assert "1 fault" in browser(admin).get("/usage/").content.decode()
    assert browser(alice).get("/usage/faults/").status_code == 403
    assert "fault" not in browser(alice).get("/usage/").content.decode()


def test_the_page_says_until_when_its_figures_are_complete(admin: User) -> None:
    client = browser(admin)
    assert "Nothing has been recorded" in client.get("/usage/").content.decode()
    WatchCheckpoint.objects.create(name="pods", position_at=at("2026-11-21T11:59:30"))
    assert "2026-11-21 11:59:30 UTC" in client.get("/usage/").content.decode()
    WatchGap.objects.create(
        watch="pods", began_at=at("2026-11-03T01:00"), ended_at=at("2026-11-03T02:00"), cause="x"
    )
    html = client.get("/usage/").content.decode()
    assert "2026-11-03 01:00:00 UTC" in html
    assert "1 gap" in html
    october = client.get("/usage/?month=2026-10").content.decode()
    assert "gap</a>" not in october
    assert "2026-11-01 00:00:00 UTC" in october


def test_estimates_and_unverified_users_are_marked(admin: User) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T01:00", user="ann", estimated=True)
    html = browser(admin).get("/usage/?by=user").content.decode()
    assert "unverified</span>" in html
    assert "100.0 %</span> of time estimated" in html
    store_pod("2026-10-20T00:00", "2026-10-20T01:00", user="ann")
    october = browser(admin).get("/usage/?month=2026-10").content.decode()
    assert "of time estimated" not in october


def test_months_lead_back_to_the_first_usage_and_not_into_the_future(admin: User) -> None:
    store_pod("2026-09-20T00:00", "2026-09-20T01:00")
    client = browser(admin)
    now = client.get("/usage/").content.decode()
    assert 'rel="prev"' in now
    assert 'rel="next"' not in now
    first = client.get("/usage/?month=2026-09").content.decode()
    assert 'rel="prev"' not in first
    assert "month=2026-10" in first


def test_an_empty_month_says_so(admin: User, charlie: User) -> None:
    assert "No usage in November 2026" in browser(admin).get("/usage/").content.decode()
    assert (
        "You do not have access to any namespace yet"
        in browser(charlie).get("/usage/").content.decode()
    )


def test_the_page_has_no_inline_script_or_style(admin: User) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T01:00", ipus=4)
    html = browser(admin).get("/usage/").content.decode()
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", html))
    assert " style=" not in html
    assert "onclick" not in html


def test_a_page_costs_the_same_queries_whatever_it_shows(alice: User) -> None:
    counted = {}
    for many in (1, 40):
        for n in range(many):
            store_pod("2026-11-20T00:00", "2026-11-20T01:00", user=f"u{n}", group=f"g{n}")
        for address in ("/usage/?by=user", "/usage/chart.json?by=user", "/usage/pods/"):
            with CaptureQueriesContext(connection) as queries:
                assert browser(alice).get(address).status_code == 200
            counted.setdefault(address, []).append(len(queries))
    assert all(first == second for first, second in counted.values())


def test_a_small_share_is_not_shown_as_nothing(admin: User) -> None:
    store_pod("2026-11-01T00:00", "2026-11-19T00:00", ipus=16, user="much")
    store_pod("2026-11-20T00:00", "2026-11-20T00:01", ipus=1, user="little")
    html = browser(admin).get("/usage/?by=user&month=2026-11").content.decode()
    shares = re.findall(r'data-label="Share"[^>]*>([^<]*)<', html)
    assert shares == ["&gt; 99.9 %", "&lt; 0.1 %", "100 %"]
