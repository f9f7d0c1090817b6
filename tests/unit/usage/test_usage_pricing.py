"""Money of exact sums, and what of a range has a price."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from usage.rates.money import money_of
from usage.rates.pricing import Closed, Pricing, pricing_of
from usage.rates.tariff import Price, Tariff
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
    assert not pricing.has_price(at(1), at(5, 11))
    assert pricing.has_price(at(1), at(6, 11))


def test_a_report_made_without_any_price_has_no_cost_and_no_zero() -> None:
    assert money_of(Decimal(0), {"currency": "EUR", "decimals": 2, "rates": []}) is None
    assert str(money_of(Decimal(0), {"currency": "EUR", "decimals": 2, "rates": [1]})) == "0.00 EUR"
