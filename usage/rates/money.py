"""domain: an amount of money with its currency, as people read it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXACT: Final = Context(prec=60, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Money:
    """So much of a currency."""

    amount: Decimal
    currency: str

    def __str__(self) -> str:
        """Return it with thousands set apart: `1,234.50 EUR`."""
        return f"{self.amount:,f} {self.currency}"


def money_of(amount: Decimal | None, tariff: Mapping[str, Any]) -> Money | None:
    """Return a report's sum with the decimals of its tariff; None where nothing had a price.

    The sum of rounded rows has no further decimals, so nothing is rounded again.
    """
    if amount is None or not tariff.get("rates"):
        return None
    unit = Decimal(1).scaleb(-int(tariff["decimals"]))
    return Money(amount.quantize(unit, context=_EXACT), tariff["currency"])
