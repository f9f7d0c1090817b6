"""Statements: a group's figures in a month equal the figures of the report's file and
corrections."""

from __future__ import annotations

import csv
import html
import re
from collections import defaultdict
from decimal import Decimal
from threading import Thread
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.builders.clients import browser
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.questions import count_queries
from tests.builders.rates import store_rate
from tests.builders.roles import grant
from tests.integration.usage.reading import lines_of, make, rows_of
from usage.models import MonthReport, PodLifetime
from usage.reports.downloads import Wanted, open_file
from usage.reports.making import Order, correct_month
from usage.reports.statement import Statement
from usage.time.windows import Month

pytestmark = pytest.mark.django_db(transaction=True)
_ODD = "a/b & <c>?"
_PAGE = "/usage/reports/2026-10/statement/?group=ml"
_API = "/api/v1/usage/reports/2026-10"
_JOB = {"job_uid": "j", "partition": "p"}
_OCTOBER = Month(2026, 10)


@pytest.fixture
def carol() -> Any:
    user = get_user_model().objects.create_user("carol")
    grant(user, "accountant")
    return browser(user)


@pytest.fixture
def _closed() -> None:
    store_rate("ipu", "2.5")
    store_rate("cpu", "0.1")
    store_pod(
        "2026-10-01T00:00",
        "2026-10-02T00:00",
        ipus=4,
        user="ann",
        group="ml",
        estimated=True,
        **_JOB,
    )
    store_pod(
        "2026-10-03T00:00", "2026-10-03T07:00", ipus=2, user="bob", group="ml", namespace="team-b"
    )
    store_pod(
        "2026-10-03T00:00", "2026-10-03T01:00", ipus=2, user="bob", group="ml", namespace="team-b"
    )
    store_partition("2026-10-01T00:00", "2026-10-04T00:00", user="ann", group="ml", **_JOB)
    store_pod("2026-10-05T00:00", "2026-10-05T05:00", ipus=1, user="eve", group=_ODD)
    store_pod("2026-10-05T00:00", "2026-10-05T05:00", user="eve", group="")
    make("2026-10", "2026-12-01T00:00")


def _rows(page: str) -> list[list[str]]:
    """The cells of all rows of all tables, as one reads them."""
    found = re.findall(r"<tr[ >].*?</tr>", page, re.DOTALL)
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in found]
    return [[html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in row] for row in cells]


def _text(client: Any, address: str, status: int = 200) -> str:
    answer = client.get(address)
    assert answer.status_code == status, answer.content
    return str(answer.content.decode())


def _file_sums(files: list[list[dict[str, str]]], group: str) -> dict[tuple[str, str], list[str]]:
    """Return the files' sums of a group by user and namespace, in the page's form."""
    names = ("pods", "ipu_hours", "partition_ipu_hours", "idle_ipu_hours", "cost")
    sums: dict[tuple[str, str], list[Decimal]] = defaultdict(lambda: [Decimal()] * len(names))
    for row in (row for rows in files for row in rows if row["group"] == group):
        key = (row["user"], row["namespace"])
        added = [Decimal(row[name] or 0) for name in names]
        sums[key] = [old + new for old, new in zip(sums[key], added, strict=True)]
    return {
        key: [f"{pods:,f}", *(f"{each:,.2f}" for each in rest)]
        for key, (pods, *rest) in sums.items()
    }


def _page_sums(page: str) -> dict[tuple[str, str], list[str]]:
    heads, *rows = _rows(page)
    users = rows[: next(place for place, row in enumerate(rows) if row[0] == "Total")]
    names = ("Pods", "Pod IPU-hours", "Partition IPU-hours", "Idle IPU-hours")
    places = [heads.index(name) for name in (*names, "Cost")]
    return {
        (row[0], row[1]): [row[place].removesuffix(" EUR").replace("–", "0.00") for place in places]
        for row in users
    }


def _api_sums(client: Any) -> dict[tuple[str, str], list[str]]:
    """Return the sums of `ml` in the API, by user and namespace, as the page prints them."""
    found = client.get(f"{_API}/statement?group=ml").json()
    names = ("pods", "ipu_hours", "partition_ipu_hours", "idle_ipu_hours", "cost")
    for table in (found["users"], found["components"]):
        for name in names:
            whole = sum(Decimal(row[name] or 0) for row in table)
            assert whole == Decimal(found["total"][name] or 0), name
    return {
        (row["user"], row["namespace"]): [
            f"{row['pods']:,}",
            *(f"{Decimal(row[name] or 0):,.2f}" for name in names[1:]),
        ]
        for row in found["users"]
    }


@pytest.mark.usefixtures("_closed")
def test_a_statement_has_the_figures_of_the_file_and_of_corrections(carol: Any) -> None:
    page = _text(carol, _PAGE)
    files = [rows_of("2026-10", "summary")]
    assert _page_sums(page) == _file_sums(files, "ml") == _api_sums(carol)
    PodLifetime.objects.filter(user="bob").update(finished_at=at("2026-10-03T09:00"))
    again = _text(carol, _PAGE)
    assert _page_sums(again) == _page_sums(page), "records changed, the report did not"
    correction = correct_month(_OCTOBER, at("2026-12-02T00:00"), Order("daily"))
    assert correction is not None
    text = b"".join(open_file(Wanted(_OCTOBER, "correction", number=1)).body).decode()
    page = _text(carol, _PAGE)
    assert _page_sums(page) == _file_sums([*files, lines_of(text)], "ml") == _api_sums(carol)
    assert _page_sums(page)["bob", "team-b"][1] == "36.00"
    assert "including correction 1 of 2026-12-02" in page


@pytest.mark.usefixtures("_closed")
def test_a_statement_names_its_report_its_total_and_what_is_estimated(carol: Any) -> None:
    page = _text(carol, _PAGE)
    assert "closed (final: later differences become a numbered correction), version 1" in page
    (digest,) = re.findall(r"<code[^>]*>([0-9a-f]{64})</code>", page)
    assert digest in _text(carol, "/usage/reports/")
    totals = [row for row in _rows(page) if row[0] == "Total"]
    assert len(totals) == 2
    assert (
        totals[0][1:]
        == totals[1][1:]
        == [
            "3",
            "112.00",
            "288.00",
            "192.00",
            "283.20 EUR",
            "25.0 %",
        ]
    )
    assert _rows(page)[1][:2] == ["ann", "team-a"]
    assert _rows(page)[1][-1] == "50.0 %"


@pytest.mark.usefixtures("_closed")
def test_each_group_is_found_from_the_reports_whatever_its_name(carol: Any) -> None:
    assert 'href="/usage/reports/2026-10/groups/"' in _text(carol, "/usage/reports/")
    page = _text(carol, "/usage/reports/2026-10/groups/")
    links = re.findall(r'href="([^"]*statement/[^"]*)"', page)
    assert [row[0] for row in _rows(page)] == ["Group", "no group", _ODD, "ml", "Total"]
    reply = carol.get(f"{_API}/groups").json()
    assert [row["group"] for row in reply["results"]] == ["", _ODD, "ml"]
    hours = [f"{Decimal(row['ipu_hours']):,.2f}" for row in (*reply["results"], reply["total"])]
    place = _rows(page)[0].index("Pod IPU-hours")
    assert hours == [row[place] for row in _rows(page)[1:]]
    assert reply["report"]["state"] == "closed"
    lines = list(csv.DictReader(carol.get(f"{_API}/groups.csv").getvalue().decode().splitlines()))
    assert [row["group"] for row in lines] == ["", _ODD, "ml"]
    for link, name in zip(links, ("no group", _ODD, "ml"), strict=True):
        statement = _text(carol, html.unescape(link))
        assert f"Statement 2026-10: {html.escape(name)}</h1>" in statement


@pytest.mark.parametrize(
    ("address", "status", "sentence"),
    [
        ("2026-10/statement/?group=nobody", 404, "no usage in the report of 2026-10."),
        ("2026-09/statement/?group=ml", 404, "There is no report of 2026-09 yet."),
        ("2026-09/groups/", 404, "There is no report of 2026-09 yet."),
        ("2026-13/groups/", 404, "Use YYYY-MM"),
        ("2026-10/statement/?group=a%00b", 400, "group: at most 500 characters and no zero byte"),
        ("2026-10/statement/?group=a&group=b", 400, "only once"),
    ],
)
@pytest.mark.usefixtures("_closed")
def test_what_has_no_statement_is_refused_in_words(
    carol: Any, address: str, status: int, sentence: str
) -> None:
    assert sentence in _text(carol, f"/usage/reports/{address}", status)
    called = carol.get(f"/api/v1/usage/reports/{address.replace('/?', '?').rstrip('/')}")
    assert called.status_code == status
    assert sentence in called.json()["detail"]


def test_many_users_cost_no_more_queries_than_one(carol: Any) -> None:
    counted = []
    for users in (1, 40):
        for number in range(users):
            store_pod("2026-10-01T00:00", "2026-10-02T00:00", ipus=1, user=f"u{number}", group="ml")
        make("2026-10", "2026-11-03T00:00")
        with CaptureQueriesContext(connection) as queries:
            assert f"u{users - 1}<" in _text(carol, _PAGE)
        counted.append(count_queries(queries))
    assert counted == [8, 8]


@pytest.mark.usefixtures("_closed")
def test_a_statement_lists_the_jobs_with_the_most_ipu_hours(carol: Any) -> None:
    store_pod(
        "2026-10-06T00:00",
        "2026-10-07T00:00",
        ipus=8,
        user="bob",
        group="ml",
        job_uid="other",
        component_name="bert",
    )
    store_pod("2026-10-06T00:00", "2026-10-07T00:00", ipus=8, group="else", job_uid="not")
    make("2026-11", "2026-12-01T00:00")
    page = _text(carol, _PAGE)
    jobs = _rows(page[page.rindex(">Jobs<") :])
    assert jobs[0] == ["Job", "User", "Pods", "Pod IPU-hours", "Partition IPU-hours"]
    assert [row[1:] for row in jobs[1:]] == [
        ["bob", "1", "192.00", "0.00"],
        ["ann", "1", "96.00", "288.00"],
        ["bob", "2", "16.00", "0.00"],
    ]
    assert [row[0] for row in jobs[1:]][::2] == ["bert", "no job"]
    reply = carol.get(f"{_API}/statement?group=ml").json()["jobs"]
    named = ("user", "pods", "ipu_hours", "partition_ipu_hours")
    assert [str(each[name]) for name in named for each in reply[:1]] == [
        *("bob", "1", "192.00000", "0.00000")
    ]
    assert [each["uid"] for each in reply] == ["other", "j", ""]
    assert "By the records as they are now" in page


@pytest.mark.usefixtures("_closed")
@pytest.mark.parametrize("group", ["ml", ""])
def test_a_statement_links_to_the_jobs_of_its_group_alone(carol: Any, group: str) -> None:
    """Without a group, too: an empty filter would be none."""
    page = _text(carol, f"/usage/reports/2026-10/statement/?group={group or '(none)'}")
    (address,) = re.findall(r'href="(/usage/\?month=2026-10&amp;by=job[^"]*)"', page)
    jobs = _text(carol, html.unescape(address))
    filters = re.findall(r'<span class="text-secondary">Group</span> ([^<]+)', jobs)
    assert filters == [group or "(none)"]
    (total,) = [row for row in _rows(jobs) if row[0].startswith("Total")]
    assert ("3" if group else "1") in total


@pytest.mark.usefixtures("_closed")
def test_an_accountant_of_a_namespace_sees_its_rows_only() -> None:
    user = get_user_model().objects.create_user("dave")
    grant(user, "accountant", "team-b")
    client = browser(user)
    groups = _text(client, "/usage/reports/2026-10/groups/")
    assert [row[0] for row in _rows(groups)] == ["Group", "ml", "Total"]
    page = _text(client, _PAGE)
    assert _page_sums(page) == {("bob", "team-b"): ["2", "16.00", "0.00", "0.00", "40.80"]}
    assert _api_sums(client) == _page_sums(page)
    assert client.get(f"{_API}/statement?group=ml").json()["report"]["namespaces"] == ["team-b"]
    assert "team-b only: you are an accountant of these." in page
    assert "ann" not in page
    _text(client, "/usage/reports/2026-10/statement/?group=", 404)
    assert "/usage/reports/2026-10/groups/" in _text(client, "/usage/?month=2026-10")
    assert _text(client, "/usage/reports/", 403)
    viewer = get_user_model().objects.create_user("vera")
    grant(viewer, "viewer", "team-b")
    assert "groups/" not in _text(browser(viewer), "/usage/?month=2026-10")
    _text(browser(viewer), "/usage/reports/2026-10/groups/", 403)


@pytest.mark.usefixtures("_closed")
def test_a_correction_made_meanwhile_is_in_all_of_a_statement_or_in_nothing(
    carol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _rows(_text(carol, _PAGE))
    PodLifetime.objects.filter(user="bob").update(finished_at=at("2026-10-03T09:00"))
    found = Statement.tables

    def corrected(self: Statement) -> Any:
        thread = Thread(target=_corrected)
        thread.start()
        thread.join()
        return found(self)

    monkeypatch.setattr(Statement, "tables", corrected)
    during = _rows(_text(carol, _PAGE))
    monkeypatch.undo()
    assert MonthReport.objects.filter(number=1).exists()
    assert during[:5] == before[:5]
    assert _rows(_text(carol, _PAGE))[:5] != during[:5]


def _corrected() -> None:
    try:
        correct_month(_OCTOBER, at("2026-12-02T00:00"), Order("daily"))
        PodLifetime.objects.filter(user="bob").delete()
    finally:
        connection.close()
