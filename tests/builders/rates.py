"""Rates for tests of reports."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from tests.builders.lifetimes import at
from usage.models import Rate
from usage.rates.pages import set_rate


def store_rate(
    resource: str, price: str, begins: str = "2026-01-01", ends: str = "", name: str = ""
) -> Rate:
    """Store a price per hour, from a day until the day before another."""
    made = Rate(
        resource=resource,
        name=name,
        price=Decimal(price),
        valid_from=date.fromisoformat(begins),
        valid_until=date.fromisoformat(ends) if ends else None,
    )
    return set_rate(made, "ada", at("2026-01-01T00:00"))
