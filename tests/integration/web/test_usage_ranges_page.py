"""The usage page of any range: drill-down by name, comparison with the period before, files."""

from __future__ import annotations

import csv
import io
import json
import re
from decimal import Decimal
from html import unescape
from typing import TYPE_CHECKING

import pytest
from django.utils import timezone

from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_pod
from tests.builders.rates import store_rate
from tests.integration.usage.reading import UTC_ZONE, make
from usage.models import MonthReport
from usage.reports.making import correct_month
from usage.sums.rollups import refresh
from usage.time.windows import Month

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.test import Client
    from pytest_django.fixtures import SettingsWrapper

NOW = at("2026-11-21T12:00")
API_SUMS = "/api/v1/usage/summary"
API_SERIES = "/api/v1/usage/series"


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)


def page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def lines(client: Client, address: str) -> list[dict[str, str]]:
    text = b"".join(client.get(address)).decode()
    return list(csv.DictReader(io.StringIO(text)))


def link(html: str, text: str) -> str:
    """Return the target of the link with this text."""
    found = re.search(rf'<a href="([^"]*)">{re.escape(text)}</a>', html)
    assert found, text
    return found[1]


def test_a_line_leads_from_group_to_users_to_jobs_by_name_and_to_the_job(admin: User) -> None:
    uid = "6c1d7c6a-1111-2222-3333-444455556666"
    store_pod(
        "2026-11-20",
        "2026-11-21",
        ipus=4,
        group="vision",
        user="ann",
        job_uid=uid,
        component_name="train-7",
    )
    store_pod("2026-11-20", "2026-11-21", ipus=4, group="speech", user="bob")
    client = browser(admin)
    users = page(client, link(page(client, "/usage/"), "vision"))
    assert "bob" not in users
    jobs = page(client, link(users, "ann"))
    assert link(jobs, "train-7") == f"/jobs/{uid}/"
    assert f">{uid}" not in jobs
    up = re.findall(r'class="usage-filter" href="([^"]*)"', jobs)
    assert ["user=ann" in up[0], "group=vision" in up[1]] == [True, True]


def test_a_legend_entry_leads_where_the_line_of_the_table_does(admin: User) -> None:
    store_pod("2026-11-20", "2026-11-21", ipus=4, group="vision")
    client = browser(admin)
    html = page(client, "/usage/?window=30d")
    chart = re.search(r'data-chart="([^"]*)"', html)
    assert chart
    (series,) = client.get(chart[1]).json()["series"]
    assert series["url"] == link(html, "vision")


def test_the_chart_by_job_names_jobs_and_leads_nowhere_from_what_is_left(admin: User) -> None:
    for n in range(10):
        store_pod(
            "2026-11-20T00:00",
            "2026-11-20T01:00",
            ipus=20 - n,
            job_uid=f"uid-{n}",
            component_name=f"train-{n}",
        )
    *jobs, other = browser(admin).get("/usage/chart.json?by=job").json()["series"]
    assert [(each["name"], each["url"]) for each in jobs] == [
        (f"train-{n}", f"/jobs/uid-{n}/") for n in range(8)
    ]
    assert (other["name"], other["url"]) == ("Other", "")


def test_jobs_of_one_name_have_names_and_paints_of_their_own_in_the_chart(admin: User) -> None:
    jobs = (("a", "team-a", 1), ("b", "team-b", 1), ("c", "team-c", 1), ("d", "team-c", 5))
    for uid, namespace, hour in jobs:
        began = f"2026-11-20T0{hour}:00"
        life = {"job_uid": uid, "component_name": "train", "namespace": namespace}
        store_pod(began, "2026-11-20T08:00", ipus=4, **life)
    store_pod("2026-11-20T01:00", "2026-11-20T08:00", ipus=4, job_uid="e", component_name="alone")
    series = browser(admin).get("/usage/chart.json?by=job").json()["series"]
    assert {each["url"]: each["name"] for each in series} == {
        "/jobs/a/": "team-a/train",
        "/jobs/b/": "team-b/train",
        "/jobs/c/": "team-c/train 2026-11-20 01:00:00",
        "/jobs/d/": "team-c/train 2026-11-20 05:00:00",
        "/jobs/e/": "alone",
    }
    assert len({str(each["paint"]) for each in series}) == 5


@pytest.mark.parametrize("address", ["/usage/", "/usage/?compare=before", API_SUMS, API_SERIES])
def test_files_by_job_have_its_name_beside_its_uid(admin: User, address: str) -> None:
    for n in range(3):
        store_pod(
            "2026-11-20", "2026-11-21", ipus=4, job_uid=f"uid-{n}", component_name=f"train-{n}"
        )
    store_pod("2026-11-20", "2026-11-21", ipus=4, job_uid="", component_name="notebook")
    query = f"{address}{'&' if '?' in address else '?'}by=user,job&format=csv"
    client = browser(admin) if address.startswith("/usage/") else api_client(admin)
    found = [each for each in lines(client, query) if "total" not in each.values()]
    assert {(each["job"], each["job_name"]) for each in found} == {
        ("", ""),
        *((f"uid-{n}", f"train-{n}") for n in range(3)),
    }
    assert "job_name" not in lines(client, query.replace("user,job", "user"))[0]


@pytest.mark.parametrize("by", ["", "&by=user,job"])
def test_the_file_of_a_series_ends_with_the_sum_of_its_steps(admin: User, by: str) -> None:
    store_pod("2026-11-20T12:00", "2026-11-21T06:00", ipus=4, user="total", job_uid="uid-1")
    store_pod("2026-11-20T18:00", "2026-11-20T19:00", ipus=2, user="ann")
    address = f"{API_SERIES}?from=2026-11-20&to=2026-11-21{by}"
    client = api_client(admin)
    text = b"".join(client.get(f"{address}&format=csv")).decode()
    *rows, total = csv.DictReader(io.StringIO(text))
    assert len(rows) == (3 if by else 2)
    assert (total["begin"], total["end"]) == ("total", "")
    hours = [name for name in total if name.endswith("_hours")]
    for name in hours:
        assert float(total[name]) == sum(float(row[name]) for row in rows), name
    assert float(total["ipu_hours"]) == 4 * 18 + 2
    # A pod is in each of the steps in which it ran.
    assert (rows[0]["pods"], total["pods"], total["partitions"]) == ("1" if by else "2", "", "")
    bare = b"".join(client.get(f"{address}&format=csv&total=no")).decode()
    assert bare == "".join(text.splitlines(keepends=True)[:-1])
    records = b"".join(client.get(f"{address}&format=jsonl")).decode().splitlines()
    assert len(records) == len(rows)
    nothing = b"".join(client.get(f"{API_SERIES}?month=2025-01&format=csv")).decode()
    assert nothing.count("\n") == 1


def test_a_line_by_job_and_more_names_its_job(admin: User) -> None:
    store_pod(
        "2026-11-20", "2026-11-21", ipus=4, user="ann", job_uid="uid-1", component_name="train-7"
    )
    html = page(browser(admin), "/usage/?by=user,job")
    assert "ann · train-7" in re.sub(r"<[^>]+>", "", html)
    assert "uid-1" not in html


def test_the_open_month_is_compared_up_to_the_same_day_and_time(admin: User) -> None:
    store_pod("2026-10-21T11:00", "2026-10-21T13:00", ipus=4, group="a")  # one hour of it by noon
    store_pod("2026-10-25", "2026-10-26", ipus=4, group="later")
    store_pod("2026-11-02T00:00", "2026-11-02T03:00", ipus=4, group="a")
    store_pod("2026-10-02T00:00", "2026-10-02T01:00", ipus=4, group="gone")
    client = browser(admin)
    html = page(client, "/usage/")
    assert "against 1 October 2026 to 21 October 2026" in html
    records = json.loads(b"".join(client.get("/usage/?format=json&compare=before")))
    found = {r["group"]: (float(r["ipu_hours"]), float(r["ipu_hours_before"])) for r in records}
    assert found == {"a": (12, 4), "gone": (0, 4)}
    assert "+200 %" in html  # of a
    assert "−100 %" in html  # of what is gone
    assert "+50 %" in html  # in total


def test_the_links_to_files_compare_where_the_page_does(admin: User) -> None:
    store_pod("2026-10-02T00:00", "2026-10-02T01:00", ipus=4)
    store_pod("2026-11-02T00:00", "2026-11-02T03:00", ipus=4)
    client = browser(admin)
    compared = lines(
        client, link(page(client, "/usage/?window=month"), "JSON").replace("=json", "=csv")
    )
    assert [each["ipu_hours_before"] for each in compared] == ["4.00000"] * 2
    plain = lines(
        client, link(page(client, "/usage/?compare=none"), "JSON").replace("=json", "=csv")
    )
    assert [each["group"] for each in compared] == [each["group"] for each in plain]
    assert "ipu_hours_before" not in plain[0]
    assert "ipu_hours_before" not in lines(client, "/usage/?format=csv")[0]


@pytest.mark.parametrize(
    ("query", "hours", "title"),
    [
        ("window=7d", "4.00000", "in the last 7 days"),
        ("window=quarter", "12.00000", "this quarter"),
        ("window=lastquarter", "16.00000", "last quarter"),
        ("window=year", "28.00000", "this year"),
        ("window=lastmonth", "8.00000", "in October 2026"),
        ("from=2026-10-31&to=2026-11-01", "0", "from 31 October 2026 to 1 November 2026"),
    ],
)
def test_presets_and_free_ranges(admin: User, query: str, hours: str, title: str) -> None:
    for begin, end in (
        ("09-10T00:00", "09-10T04:00"),
        ("10-10T00:00", "10-10T02:00"),
        ("11-20T00:00", "11-20T01:00"),
    ):
        store_pod(f"2026-{begin}", f"2026-{end}", ipus=4)
    client = browser(admin)
    assert f"Usage {title}" in page(client, f"/usage/?{query}")
    found = lines(client, f"/usage/?{query}&format=csv&total=no")
    assert [each["ipu_hours"] for each in found] == ([hours] if hours != "0" else [])


@pytest.mark.parametrize("by", ["job", "node", "label:project", "component_name", "user,job"])
def test_what_the_daily_totals_do_not_know_is_compared_on_demand(
    admin: User, settings: SettingsWrapper, by: str
) -> None:
    settings.USAGE_LABELS = ["project"]
    own = {
        "node": "n1",
        "job_uid": "u-1",
        "component_name": "train",
        "labels": {"project": "x"},
        "user": "ann",
    }
    store_pod("2026-10-02T00:00", "2026-10-02T02:00", ipus=4, **own)
    store_pod("2026-11-02T00:00", "2026-11-02T03:00", ipus=4, **own)
    client = browser(admin)
    html = page(client, f"/usage/?by={by}")
    assert "Change:" not in html
    (address,) = re.findall(r'href="([^"]*)">Compare with the period before<', html)
    html = page(client, address)
    assert "against 1 October 2026 to 21 October 2026" in html
    assert html.count("+50 %") >= 2  # of the line and in total
    found = lines(client, f"/usage/?by={by}&format=csv&compare=before&total=no")
    assert [(r["ipu_hours"], r["ipu_hours_before"]) for r in found] == [("12.00000", "8.00000")]


def test_a_line_of_a_compared_page_leads_to_jobs_that_are_not_compared(admin: User) -> None:
    store_pod("2026-11-20", "2026-11-21", ipus=4, group="vision", user="ann", job_uid="u-1")
    client = browser(admin)
    users = page(client, link(page(client, "/usage/"), "vision"))
    assert "Change:" in users
    assert "Change:" not in page(client, link(users, "ann"))


def test_amounts_of_a_table_have_two_decimals(admin: User) -> None:
    for user, end in (("a", "11-30T00:00"), ("b", "11-20T01:00"), ("c", "11-20T00:00:01")):
        store_pod(
            "2026-11-01T00:00" if user == "a" else "2026-11-20T00:00", f"2026-{end}", user=user
        )
    html = browser(admin).get("/usage/?by=user").content.decode()
    rows = re.findall(r'data-label="Pod-hours"[^>]*>([^<]*)<', html)
    assert rows == ["492.00", "1.00", "&lt; 0.01", "493.00"]


@pytest.mark.parametrize("by", ["group", "user", "job"])
def test_the_legend_of_a_closed_month_has_the_cost_of_its_report(admin: User, by: str) -> None:
    for n in range(10):  # lines of 0.006, each rounded on its own
        store_pod(
            f"2026-10-1{n}T00:00", f"2026-10-1{n}T01:00", ipus=1, user=f"u{n}", job_uid=f"uid-{n}"
        )
    store_pod("2026-11-10T00:00", "2026-11-10T01:00", ipus=1, user="u0")
    store_rate("ipu", "0.006")
    make("2026-10", "2026-12-01T00:00")
    refresh(NOW, UTC_ZONE)
    closed = float(MonthReport.objects.get(month="2026-10", number=0).cost or 0)
    assert closed == 0.1
    client = browser(admin)
    got = client.get(f"/usage/chart.json?month=2026-10&measure=cost&by={by}").json()
    assert got["total"] == closed
    assert sum(sum(each["values"]) for each in got["series"]) == pytest.approx(0.06)
    want = {"group": [0.1], "user": [0.01] * 8 + [0.02], "job": [None] * 9}[by]
    assert got["totals"] == want
    assert "total" not in client.get(f"/usage/chart.json?measure=cost&by={by}").json()
    assert "total" not in client.get(f"/usage/chart.json?month=2026-10&by={by}").json()


def test_the_months_of_a_long_chart_cost_what_their_reports_say(admin: User) -> None:
    for n in range(10):
        store_pod(f"2026-10-1{n}T00:00", f"2026-10-1{n}T01:00", ipus=1, user=f"u{n}", group="a")
    store_pod("2026-11-10T00:00", "2026-11-10T01:00", ipus=1, user="u0", group="a")
    store_rate("ipu", "0.006")
    make("2026-10", "2026-12-01T00:00")
    refresh(NOW, UTC_ZONE)
    got = browser(admin).get("/usage/chart.json?window=year&measure=cost").json()
    (series,) = got["series"]
    assert dict(zip(got["days"], series["values"], strict=True)) == {
        **dict.fromkeys(got["days"], 0.0),
        "Oct 2026": 0.1,
        "Nov 2026": 0.006,
    }
    assert got["total"] == 0.11  # as the table has it: rounded once


def test_the_total_row_and_the_shares_are_of_all_lines(admin: User) -> None:
    for n in range(60):
        store_pod("2026-11-20T00:00", "2026-11-20T01:00", ipus=1, user=f"u{n:02}")
    html = page(browser(admin), "/usage/?by=user")
    assert "Total of 60" in html
    assert 'title="60.00000"' in html.split("<tfoot>")[1]
    assert html.count(">1.7 %<") == 50


def test_a_closed_month_costs_in_every_range_what_its_report_says(admin: User) -> None:
    for n in range(3):  # three lines of 0.005, each rounded on its own
        store_pod("2026-10-10T00:00", "2026-10-10T01:00", ipus=1, user=f"u{n}")
    store_pod("2026-11-10T00:00", "2026-11-10T01:00", ipus=1, user="u0")
    store_rate("ipu", "0.006")
    make("2026-10", "2026-12-01T00:00")
    closed = MonthReport.objects.get(month="2026-10", number=0).cost
    assert closed == Decimal("0.03")
    refresh(NOW, UTC_ZONE)
    client = browser(admin)
    for by in ("group", "user"):
        for query in ("month=2026-10", "from=2026-10-01&to=2026-10-31", "window=lastmonth"):
            found = lines(client, f"/usage/?{query}&by={by}&format=csv&total=no")
            assert sum(Decimal(each["cost"]) for each in found) == closed
        quarter = lines(client, f"/usage/?window=quarter&by={by}&format=csv")
        assert Decimal(quarter[-1]["cost"]) == closed + Decimal("0.01")  # 0.006 of November
        pair = lines(
            client, f"/usage/?by={by}&format=csv&compare=before&from=2026-11-01&to=2026-11-30"
        )
        assert Decimal(pair[-1]["cost"]) == Decimal("0.01")


def test_a_late_pod_adds_hours_to_a_closed_month_at_once_and_cost_with_the_correction(
    admin: User,
) -> None:
    store_rate("ipu", "0.006")
    store_pod("2026-10-10T00:00", "2026-10-10T01:00", ipus=1)
    make("2026-10", "2026-12-01T00:00")
    client = browser(admin)
    address = "/usage/?month=2026-10&format=csv&total=no"

    def hours_and_costs() -> list[tuple[str, str]]:
        return [(each["ipu_hours"], each["cost"]) for each in lines(client, address)]

    assert hours_and_costs() == [("1.00000", "0.01")]
    store_pod("2026-10-11T00:00", "2026-10-11T02:00", ipus=1)
    assert hours_and_costs() == [("3.00000", "0.01")]
    assert "include later data" in page(client, "/usage/?month=2026-10")
    assert correct_month(Month(2026, 10), at("2026-12-02T00:00")) is not None
    assert hours_and_costs() == [("3.00000", "0.02")]


def test_a_closed_month_is_compared_at_the_cost_of_its_report(admin: User) -> None:
    for month in ("09", "10"):
        for n in range(3):
            store_pod(f"2026-{month}-10T00:00", f"2026-{month}-10T01:00", ipus=1, user=f"u{n}")
    store_rate("ipu", "0.006")
    make("2026-09", "2026-12-01T00:00")
    found = lines(browser(admin), "/usage/?month=2026-10&by=user&format=csv&compare=before")
    assert [each["cost_before"] for each in found] == ["0.01", "0.01", "0.01", "0.03"]
    assert found[-1]["cost"] == "0.02"  # 0.018, open: rounded once


def test_prices_of_another_currency_before_do_not_take_this_month_s_cost(
    admin: User, settings: object
) -> None:
    settings.REPORT_CURRENCY = "USD"  # type: ignore[attr-defined]
    store_pod("2026-10-10T00:00", "2026-10-10T01:00", ipus=1)
    store_pod("2026-11-10T00:00", "2026-11-10T01:00", ipus=1)
    store_rate("ipu", "2")
    make("2026-10", "2026-12-01T00:00")
    settings.REPORT_CURRENCY = "EUR"  # type: ignore[attr-defined]
    html = page(browser(admin), "/usage/")
    assert "2.00 EUR" in html
    assert "No cost" not in html
