"""Money of exact sums, and what of a range has a price."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from usage.rates.pricing import Closed, LineCost, Price, Pricing, Tariff, money_of, pricing_of
from usage.sums.measures import COST_UNIT

ZONE = ZoneInfo("UTC")
HALF_A_CENT = 3600 * COST_UNIT // 200


def at(day: int, month: int = 10) -> datetime:
    return datetime(2026, month, day, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cost", "want"),
    [
        (HALF_A_CENT, "0.00"),
        (HALF_A_CENT + 1, "0.01"),
        (3 * HALF_A_CENT, "0.02"),
        (5 * HALF_A_CENT, "0.02"),
        (5 * HALF_A_CENT - 1, "0.02"),
        (0, "0.00"),
    ],
)
def test_money_is_rounded_half_to_even(cost: int, want: str) -> None:
    assert str(Pricing((), ("EUR",), 2).money(cost)) == f"{want} EUR"


def test_without_one_currency_there_is_no_money() -> None:
    assert Pricing().money(HALF_A_CENT) is None
    assert Pricing((), ("CHF", "EUR"), 2).money(HALF_A_CENT) is None


def test_stretches_without_a_price_are_one_where_they_meet() -> None:
    now = Tariff("EUR", 2, (Price("cpu", "", Decimal(1), date(2026, 11, 5)),))
    closed = [Closed(at(1), at(1, 11), ZONE, Tariff())]
    pricing = pricing_of(at(1), at(20, 11), ZONE, now, closed)
    assert pricing.unpriced == [(at(1), at(5, 11))]
    assert pricing.currency == "EUR"  # a month closed without any price is in no other


def test_money_has_the_decimals_of_whichever_month_has_most() -> None:
    prices = (Price("cpu", "", Decimal(1), date(2026, 1, 1)),)
    closed = [Closed(at(1), at(1, 11), ZONE, Tariff("EUR", 3, prices))]
    for begin, decimals in ((at(1), 3), (at(1, 11), 2)):
        pricing = pricing_of(begin, at(20, 11), ZONE, Tariff("EUR", 2, prices), closed)
        assert (pricing.decimals, pricing.currency) == (decimals, "EUR")


def test_no_cost_is_no_money_and_free_is_some() -> None:
    now = Tariff("EUR", 2, (Price("cpu", "", Decimal(1), date(2026, 10, 5), date(2026, 10, 7)),))
    pricing = pricing_of(at(1), at(20), ZONE, now, [])
    assert pricing.money(None) is None
    assert str(pricing.money(0)) == "0.00 EUR"


def test_a_report_keeps_its_tariff_to_the_last_digit_and_day() -> None:
    ended = Price("cpu", "", Decimal("0.100000"), date(2026, 1, 1), date(2026, 10, 5))
    goes_on = Price("instance", "big", Decimal(3), date(2026, 10, 5))
    tariff = Tariff("CHF", 4, (ended, goes_on))
    assert Tariff.from_record(tariff.to_record()) == tariff
    assert Tariff.from_record({}) == Tariff()


def test_a_report_made_without_any_price_has_no_cost_and_no_zero() -> None:
    assert money_of(Decimal(0), {"currency": "EUR", "decimals": 2, "rates": []}) is None
    assert str(money_of(Decimal(0), {"currency": "EUR", "decimals": 2, "rates": [1]})) == "0.00 EUR"


def test_a_page_has_the_decimals_of_the_currency_and_files_keep_five() -> None:
    cost = LineCost(3 * HALF_A_CENT, "EUR")
    assert (cost.on_page, str(cost.amount)) == ("0.02 EUR", "0.01500")
    assert LineCost(1, "EUR").on_page == "< 0.01 EUR"
    assert LineCost(0, "EUR").on_page == "0.00 EUR"
    assert LineCost(1, "JPY", page_decimals=0).on_page == "< 1 JPY"
