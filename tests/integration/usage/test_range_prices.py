"""A range uses the prices of its closed months, and the current rates for all other time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders.clients import api_client
from tests.builders.lifetimes import at, store_pod
from tests.builders.rates import store_rate
from tests.integration.usage.reading import UTC_ZONE, lines_of, make, rows_of
from usage.models import Rate
from usage.reports.making import ReportRefused, correct_month
from usage.reports.ranges import RangeFile, range_of
from usage.time.windows import Month

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper

pytestmark = pytest.mark.django_db(transaction=True)
NOW = at("2026-11-21T12:00")
AUGUST = at("2026-08-01")
SEPTEMBER, OCTOBER, NOVEMBER = at("2026-09-01"), at("2026-10-01"), at("2026-11-01")


@pytest.fixture(autouse=True)
def _closed() -> None:
    """A September of ten hours closed at 1 per hour, and an October of ten at 7."""
    store_rate("cpu", "1")
    for month in ("2026-09", "2026-10"):
        store_pod(f"{month}-10T00:00", f"{month}-10T10:00", cpu=1)
    make("2026-09", "2026-11-20T00:00")
    Rate.objects.all().delete()
    store_rate("cpu", "7")


def lines(kind: str, begin: Any, end: Any, profile: str = "default") -> list[dict[str, str]]:
    file = RangeFile(range_of(begin, end, NOW, UTC_ZONE, profile), kind, profile)
    return lines_of(b"".join(file.open()).decode())


def test_a_closed_month_costs_in_a_range_what_it_was_closed_with(django_user_model: Any) -> None:
    (closed,) = rows_of("2026-09", "summary")
    (summary,) = lines("summary", SEPTEMBER, OCTOBER)
    (details,) = lines("details", SEPTEMBER, OCTOBER)
    assert (closed["cost"], summary["cost"], details["cost"]) == ("10.00", "10.00", "10.00000")
    user = django_user_model.objects.create_user("root", is_staff=True)
    summary_body = api_client(user).get("/api/v1/usage/summary?month=2026-09").json()
    assert summary_body["total"]["cost"] == "10.00"


def test_a_range_of_closed_and_other_months_costs_the_sum_of_theirs() -> None:
    (summary,) = lines("summary", SEPTEMBER, NOVEMBER)
    assert (summary["cost"], summary["currency"]) == ("80.00", "EUR")
    assert [row["cost"] for row in lines("details", SEPTEMBER, NOVEMBER)] == [
        "10.00000",
        "70.00000",
    ]


def _costs(begin: Any, end: Any) -> dict[str, str]:
    return {row["user"]: row["cost"] for row in lines("summary", begin, end) if row["user"]}


def test_a_closed_month_is_in_every_range_the_rounded_lines_of_its_report(
    django_user_model: Any,
) -> None:
    Rate.objects.all().delete()
    store_rate("ipu", "0.006")
    for user in ("twice", "once"):
        store_pod("2026-08-10T00:00", "2026-08-10T01:00", ipus=1, user=user)
    gone = store_pod("2026-08-10T00:00", "2026-08-10T01:00", ipus=1, user="gone")
    store_pod("2026-08-31T23:00", None, ipus=1, user="goes on")
    store_pod("2026-10-10T00:00", "2026-10-10T01:00", ipus=1, user="twice")
    make("2026-08", "2026-11-19T00:00")
    assert [row["cost"] for row in rows_of("2026-08", "summary")] == ["0.01"] * 4
    found = _costs(AUGUST, SEPTEMBER)
    assert found == dict.fromkeys(("twice", "once", "gone", "goes on"), "0.01")
    assert _costs(AUGUST, NOVEMBER) == {
        "twice": "0.02",  # 0.012 as one sum
        "once": "0.01",
        "gone": "0.01",
        "goes on": "4.47",  # 0.01 and, of October, 744 x 0.006 = 4.464
    }
    root = django_user_model.objects.create_user("root", is_staff=True)
    answer = (
        api_client(root).get("/api/v1/usage/summary?from=2026-08-01&to=2026-10-31&by=user").json()
    )
    of_page = {each["key"]["user"]: each["cost"] for each in answer["results"]}
    assert {user: of_page[user] for user in found} == _costs(AUGUST, NOVEMBER)
    assert _costs(at("2026-08-10"), SEPTEMBER)["once"] == "0.01"  # a part: its own sum

    gone.delete()
    store_pod("2026-08-12T00:00", "2026-08-12T02:00", ipus=1, user="late")
    assert _costs(AUGUST, NOVEMBER) == {**found, "twice": "0.02", "goes on": "4.47", "late": "0.00"}
    correct_month(Month(2026, 8), at("2026-11-20T00:00"))
    after = _costs(AUGUST, NOVEMBER)
    assert (after["late"], after.get("gone", "")) == ("0.01", "")


def test_a_range_of_two_currencies_is_refused_with_where_to_cut_it(
    settings: SettingsWrapper,
) -> None:
    settings.REPORT_CURRENCY, settings.REPORT_COST_DECIMALS = "USD", 3
    with pytest.raises(ReportRefused, match="EUR until 2026-10-01T00:00:00Z and in USD"):
        range_of(SEPTEMBER, NOVEMBER, NOW, UTC_ZONE)
    assert len(lines("details", SEPTEMBER, NOVEMBER, "primehub")) == 2  # no money in it
    costs = [
        (row["cost"], row["currency"])
        for begin, end in ((SEPTEMBER, OCTOBER), (OCTOBER, NOVEMBER))
        for row in lines("summary", begin, end)
    ]
    assert costs == [("10.00", "EUR"), ("70.000", "USD")]


def test_the_cost_of_a_range_in_which_nothing_has_a_price_is_empty() -> None:
    Rate.objects.all().delete()
    (summary,) = lines("summary", OCTOBER, NOVEMBER)
    assert (summary["cost"], summary["currency"]) == ("", "")
