"""The cost of usage on its page and in its API: its prices and its readers."""

from __future__ import annotations

import csv
import io
import re
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

from ipuhub.web.access import ACCOUNTANTS_ONLY
from tests.builders.clients import api_client, browser
from tests.builders.lifetimes import at, store_partition, store_pod
from tests.builders.rates import store_rate
from tests.builders.roles import grant
from tests.integration.usage.reading import UTC_ZONE, make
from usage.models import MonthReport, Rate
from usage.rates.pages import end_rate
from usage.reports.making import correct_month
from usage.sums.rollups import refresh
from usage.time.windows import Month

if TYPE_CHECKING:
    from django.contrib.auth.models import User

pytestmark = pytest.mark.django_db
NOW = at("2026-11-21T12:00")
API = "/api/v1/usage"


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)


def ask(user: User, path: str) -> Any:
    answer = api_client(user).get(f"{API}/{path}")
    assert answer.status_code == 200, answer.content
    return answer.json()


def page(user: User, query: str = "") -> str:
    answer = browser(user).get(f"/usage/?{query}")
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def test_every_amount_has_its_currency(admin: User, settings) -> None:
    settings.REPORT_CURRENCY = "CHF"
    store_rate("cpu", "1000")
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", cpu=2, group="red")
    row = ask(admin, "summary?by=group")["results"][0]
    assert (row["cost"], row["currency"]) == ("4000.00", "CHF")
    answer = api_client(admin).get(f"{API}/summary?by=group&format=csv")
    line = next(csv.DictReader(io.StringIO(b"".join(answer).decode())))
    assert (line["cost"], line["currency"]) == ("4000.00", "CHF")
    assert page(admin).count("4,000.00 CHF") == 3  # the card, the row and the total


def test_without_a_price_there_is_no_cost_and_no_zero(admin: User) -> None:
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", cpu=2)
    found = ask(admin, "summary?by=group")
    assert (found["total"]["cost"], found["results"][0]["cost"]) == (None, None)
    assert found["pricing"]["currencies"] == []
    html = page(admin)
    assert "0.00 EUR" not in html.replace("0.000", "")
    assert "Cost" not in html
    assert "No rates apply to this month. Set rates" in page(admin, "measure=cost")


def test_what_has_no_price_costs_nothing_beside_what_has_one(admin: User) -> None:
    store_rate("ipu", "1")
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", cpu=2)
    assert ask(admin, "summary")["total"]["cost"] == "0.00"


def lines_of(user: User, address: str) -> list[dict[str, str]]:
    client = api_client(user) if address.startswith("/api") else browser(user)
    return list(csv.DictReader(io.StringIO(b"".join(client.get(address)).decode())))


@pytest.mark.parametrize("is_summed", [False, True])
def test_a_row_without_a_price_in_its_time_has_no_cost_and_a_free_one_costs_nothing(
    admin: User, is_summed: bool
) -> None:
    store_rate("cpu", "1", "2026-11-05", "2026-11-11")
    store_pod("2026-11-01T00:00", "2026-11-05T00:00", group="before")
    store_pod("2026-11-06T00:00", "2026-11-07T00:00", cpu=0, group="free")
    store_pod("2026-11-10T12:00", "2026-11-12T00:00", cpu=1, group="paid")
    store_partition("2026-11-12T00:00", "2026-11-13T00:00", group="held")
    if is_summed:
        refresh(NOW, UTC_ZONE)
    want = {"before": None, "free": "0.00", "paid": "12.00", "held": None}
    found = ask(admin, "summary?by=group&measure=cost")
    assert {row["key"]["group"]: row["cost"] for row in found["results"]} == want
    assert list(want) != [row["key"]["group"] for row in found["results"]]
    assert found["results"][0]["cost"] == found["total"]["cost"] == "12.00"
    steps = ask(admin, "series?by=group&step=month")["results"]
    assert {row["key"]["group"]: row["cost"] for row in steps} == want
    for address in ("/usage/?by=group&format=csv", f"{API}/summary.csv?by=group"):
        lines = {line["group"]: line["cost"] or None for line in lines_of(admin, address)}
        assert lines == {**want, "total": "12.00"}
    assert ask(admin, "summary?group=before")["total"]["cost"] is None
    assert "No rate applies to this usage." in page(admin, "group=before")
    pages, address = [], "summary?by=group&measure=cost&page_size=1"
    while address:
        found = ask(admin, address)
        pages += [row["key"]["group"] for row in found["results"]]
        address = (found["next"] or "").rpartition(f"{API}/")[2]
    assert pages == ["paid", "before", "free", "held"]


def test_files_of_sums_end_with_the_total_that_the_page_shows(admin: User) -> None:
    store_rate("cpu", "0.01")
    for n in range(3):
        store_pod(
            "2026-11-20T00:00", "2026-11-20T00:20", cpu=1, ipus=1, group=f"g{n}", user=f"u{n}"
        )
    store_partition("2026-11-20T00:00", "2026-11-20T01:00", group="g0")
    total = ask(admin, "summary")["total"]
    for address in ("/usage/?by=group,user&format=csv", f"{API}/summary?by=group,user&format=csv"):
        *rows, last = lines_of(admin, address)
        assert (len(rows), last["group"], last["user"]) == (4, "total", "")
        for name in ("pods", "partitions", "ipu_hours", "partition_ipu_hours", "cost", "currency"):
            assert last[name] == str(total[name])
        assert lines_of(admin, f"{address}&total=no") == rows
        assert lines_of(admin, address.replace("format=csv", "format=csv&group=none")) == []
    assert sum(Decimal(row["cost"]) for row in rows) == 0
    assert total["cost"] == "0.01"  # exact, rounded once
    assert len(lines_of(admin, f"{API}/summary.csv")) == 1  # the sum itself
    assert api_client(admin).get(f"{API}/summary.csv?total=x").status_code == 400


def test_the_total_of_a_closed_month_is_its_reports_by_whatever_it_is_asked(admin: User) -> None:
    store_rate("cpu", "0.01")
    for n in range(3):
        store_pod(
            "2026-09-20T00:00", "2026-09-20T00:40", cpu=1, group=f"g{n}", component_name=f"j{n}"
        )
    make("2026-09", "2026-11-03T00:00")
    want = f"{MonthReport.objects.get().cost:.2f}"
    for by in ("group", "component_name"):
        *_, last = lines_of(admin, f"{API}/summary.csv?month=2026-09&by={by}")
        assert last["cost"] == ask(admin, f"summary?month=2026-09&by={by}")["total"]["cost"] == want
        for step in ("day", "month"):
            *_, last = lines_of(admin, f"{API}/series.csv?month=2026-09&by={by}&step={step}")
            assert (last["begin"], last["cost"]) == ("total", want), (by, step)


def test_a_stretch_without_any_price_is_said(admin: User) -> None:
    store_rate("cpu", "1", "2026-11-05", "2026-11-11")
    store_pod("2026-11-01T00:00", "2026-11-21T00:00", cpu=1)
    found = ask(admin, "summary")
    assert found["total"]["cost"] == f"{6 * 24}.00"
    assert found["pricing"]["unpriced"] == [
        {"begin": "2026-11-01T00:00:00Z", "end": "2026-11-05T00:00:00Z"},
        {"begin": "2026-11-11T00:00:00Z", "end": "2026-11-21T12:00:00Z"},
    ]
    sentence = "No rates from 2026-11-01 to 2026-11-04 and from 2026-11-11 to 2026-11-21."
    assert sentence in page(admin)


def test_a_step_has_a_cost_where_anything_has_a_price_in_it(admin: User) -> None:
    store_rate("cpu", "1", "2026-11-05", "2026-11-06")
    store_rate("cpu", "3", "2026-11-06", "2026-11-07")
    store_pod("2026-11-01T00:00", "2026-11-21T00:00", cpu=1)
    refresh(NOW, UTC_ZONE)
    rows = ask(admin, "series?step=day")["results"]
    costs = {row["begin"][8:10]: row["cost"] for row in rows}
    assert [costs[day] for day in ("04", "05", "06", "07")] == [None, "24.00", "72.00", None]
    weeks = ask(admin, "series?step=week")["results"]
    assert [row["cost"] for row in weeks] == [None, "96.00", None, None]
    assert [row["pods"] for row in weeks] == [1, 1, 1, 1]  # cut in two, counted once


def test_a_closed_month_costs_what_it_was_closed_with(admin: User) -> None:
    old = store_rate("cpu", "1")
    store_pod("2026-09-30T00:00", "2026-11-02T00:00", cpu=1)
    make("2026-09", f"{NOW:%FT%T}")
    end_rate(old, date(2026, 1, 1), "ada", NOW)
    store_rate("cpu", "5", "2026-01-01", "2026-11-01")
    store_rate("cpu", "7", "2026-11-01")
    assert ask(admin, "summary?month=2026-09")["total"]["cost"] == "24.00"
    assert ask(admin, "summary?month=2026-10")["total"]["cost"] == f"{31 * 24 * 5}.00"
    whole = ask(admin, "summary?from=2026-09-01&to=2026-11-21")["total"]["cost"]
    assert whole == f"{24 + 31 * 24 * 5 + 24 * 7}.00"
    months = ask(admin, "series?from=2026-09-01&to=2026-11-21&step=month")["results"]
    assert [row["cost"] for row in months] == ["24.00", f"{31 * 24 * 5}.00", f"{24 * 7}.00"]
    assert "Cost at the rates of the closed month" in page(admin, "month=2026-09")
    assert "Cost at today's rates" in page(admin, "month=2026-10")


def test_the_decimals_are_those_a_month_was_closed_with(admin: User, settings) -> None:
    settings.REPORT_COST_DECIMALS = 0
    store_rate("cpu", "1")
    store_pod("2026-09-30T00:00", "2026-09-30T01:30", cpu=1)
    make("2026-09", f"{NOW:%FT%T}")
    settings.REPORT_COST_DECIMALS = 3
    assert ask(admin, "summary?month=2026-09")["total"]["cost"] == "2"
    # Of whole closed months also a longer range has the report's cost.
    assert ask(admin, "summary?from=2026-09-01&to=2026-10-31")["total"]["cost"] == "2.000"
    assert ask(admin, "summary?from=2026-09-02&to=2026-10-31")["total"]["cost"] == "1.500"


def test_two_currencies_are_not_added_up(admin: User, settings) -> None:
    settings.REPORT_CURRENCY = "FRF"
    store_rate("cpu", "1")
    store_pod("2026-09-30T00:00", "2026-10-02T00:00", cpu=1)
    make("2026-09", f"{NOW:%FT%T}")
    settings.REPORT_CURRENCY = "EUR"
    found = ask(admin, "summary?from=2026-09-01&to=2026-10-31")
    assert found["total"]["cost"] is None
    assert found["pricing"]["currencies"] == ["EUR", "FRF"]
    assert ask(admin, "summary?month=2026-09")["total"]["currency"] == "FRF"


def test_most_cost_comes_first_and_pages_lose_none(admin: User) -> None:
    store_rate("cpu", "1")
    store_rate("partition-ipu", "0.25")
    for n in range(5):
        store_pod("2026-11-20T00:00", f"2026-11-20T0{n + 1}:00", group=f"g{n}", ipus=5 - n)
    store_partition("2026-11-20T00:00", "2026-11-20T06:00", group="held", size=4)
    first = ask(admin, "summary?by=group&measure=cost&page_size=4")
    answer = api_client(admin).get(first["next"]).json()
    rows = first["results"] + answer["results"]
    assert [row["key"]["group"] for row in rows] == ["held", "g4", "g3", "g2", "g1", "g0"]
    assert first["total"]["cost"] == "21.00"
    chart = browser(admin).get("/usage/chart.json?by=group&measure=cost").json()
    assert chart["label"].startswith("Cost, ")
    assert [each["name"] for each in chart["series"]][:2] == ["held", "g4"]
    assert sum(sum(each["values"]) for each in chart["series"]) == 21


def test_rows_of_a_closed_month_cost_what_its_report_says(admin: User) -> None:
    store_rate("instance", "0.01", name="ipu-4")
    store_rate("cpu", "3", "2026-09-11")
    store_pod("2026-09-10T23:59:42", "2026-09-11T00:00:18", instance_type="other", cpu=1)
    store_pod("2026-09-10T00:00", "2026-09-11T01:30", user="ann")
    make("2026-09", f"{NOW:%FT%T}")
    Rate.objects.all().delete()
    rows = ask(admin, "summary?month=2026-09&by=user,instance_type&measure=cost")["results"]
    lines = MonthReport.objects.get().rows.order_by("-cost")
    assert (
        [row["cost"] for row in rows] == [f"{line.cost:.2f}" for line in lines] == ["0.26", "0.02"]
    )


def test_an_accountant_sees_cost_and_who_may_not_see_rates_sees_none(
    alice: User, charlie: User, django_user_model: type
) -> None:
    store_rate("cpu", "1000")
    store_pod("2026-11-20T00:00", "2026-11-20T02:00", cpu=2, namespace="team-a")
    carol = django_user_model.objects.create_user("carol")  # type: ignore[attr-defined]
    grant(carol, "accountant")
    assert ask(carol, "summary")["total"]["cost"] == "4000.00"
    assert "4,000.00" in page(carol)
    for user in (alice, charlie):
        found = ask(user, "summary?by=namespace")
        assert (found["total"]["cost"], found["pricing"]) == (None, None)
        assert all(row["cost"] is None for row in found["results"])
        assert all(row["cost"] is None for row in ask(user, "series")["results"])
        for path in ("summary?by=group&format=csv", "series?format=jsonl"):
            assert b'000.00"' not in b"".join(api_client(user).get(f"{API}/{path}"))
        assert "Cost" not in page(user)
        for refused in (
            api_client(user).get(f"{API}/summary?measure=cost"),
            browser(user).get("/usage/?measure=cost"),
            browser(user).get("/usage/chart.json?measure=cost"),
        ):
            assert refused.status_code == 403
            assert ACCOUNTANTS_ONLY.split(".", maxsplit=1)[0] in refused.content.decode()
    assert ask(alice, "summary?by=namespace")["results"]  # she sees the hours


def test_a_closed_month_has_one_total_everywhere_which_its_rows_add_up_to(admin: User) -> None:
    store_rate("cpu", "0.333333")
    for n, group in enumerate("aabbc"):
        store_pod("2026-09-10T00:00", "2026-09-10T00:17:03", group=group, user=f"u{n}", cpu=1)
    gone = store_pod("2026-09-10T00:00", "2026-09-10T02:00", group="d", cpu=1)
    report = make("2026-09", f"{NOW:%FT%T}")
    refresh(NOW, UTC_ZONE)
    want = f"{report.cost:.2f}"
    exact = Decimal("0.333333") * (5 * 1023 + 7200) / 3600
    assert want != f"{exact:.2f}", "else this shows nothing"
    for by in ("group", "user", "group,user", "component_name", "job"):
        found = ask(admin, f"summary?month=2026-09&by={by}")
        assert found["total"]["cost"] == want
        if by not in {"component_name", "job"}:
            assert sum(Decimal(row["cost"]) for row in found["results"]) == report.cost
        assert f"{want} EUR" in page(admin, f"month=2026-09&by={by}")
    by_group = ask(admin, "summary?month=2026-09&by=group&group=a")
    assert (by_group["total"]["cost"], len(by_group["results"])) == ("0.18", 1)
    (month,) = ask(admin, "series?month=2026-09&step=month")["results"]
    assert month["cost"] == want
    gone.delete()
    refresh(NOW, UTC_ZONE)
    correction = correct_month(Month(2026, 9), NOW)
    assert correction is not None
    found = ask(admin, "summary?month=2026-09&by=group")
    assert found["total"]["cost"] == f"{report.cost + correction.cost:.2f}"
    assert [row["key"]["group"] for row in found["results"]] == ["a", "b", "c"]
