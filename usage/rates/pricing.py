"""domain: the prices of any range, segment by segment, and exact amounts rounded once.

A closed month costs what it was closed with; all other time costs what the current rates say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from ipuhub.text import Figure
from usage.rates.tariff import DETAIL_DECIMALS, Money
from usage.sums.measures import COST_UNIT, HOUR

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime
    from zoneinfo import ZoneInfo

    from usage.rates.tariff import Segment, Tariff


_MICRO_DECIMALS: Final = 6


@dataclass(frozen=True, slots=True)
class LineCost:
    """The cost of one lifetime: exact money x 3600 x COST_UNIT, rounded when it is printed."""

    exact: int
    currency: str

    @property
    def money(self) -> Money:
        """As a line of a report's details has it."""
        return Money(_rounded(self.exact, DETAIL_DECIMALS), self.currency)

    @property
    def amount(self) -> Figure:
        """The same without its currency."""
        return Figure(self.money.amount)

    @property
    def cost_micros(self) -> int:
        """In whole millionths of the currency."""
        return int(_rounded(self.exact, _MICRO_DECIMALS).scaleb(_MICRO_DECIMALS))


def cost_record(cost: LineCost | None) -> dict[str, Any]:
    """Return the cost fields of a record; all None if there is no cost."""
    return {
        "cost": cost.amount if cost else None,
        "cost_micros": cost.cost_micros if cost else None,
        "currency": cost.currency if cost else None,
    }


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed month [first, end) of a zone, and its prices; `month`: its name."""

    first: datetime
    end: datetime
    zone: ZoneInfo
    tariff: Tariff
    month: str = ""


@dataclass(frozen=True, slots=True)
class Pricing:
    """The prices of a range: `segments` cover it in order; `currencies` are those of its prices;
    `closed` are the closed months that it touches.

    Money of two currencies cannot be added up: such a range has no cost. Nor has one with
    accelerators priced by name that reaches before `lost_before`: the lifetimes before that day are
    gone, and no sum of them knows names. `unnamed_before`: that day, whatever has a price.
    """

    segments: tuple[Segment, ...] = ()
    currencies: tuple[str, ...] = ()
    decimals: int = 2
    lost_before: date | None = None
    unnamed_before: date | None = None
    closed: tuple[Closed, ...] = ()

    @property
    def currency(self) -> str:
        """The one currency; empty where nothing has a price, or there is no cost."""
        return self.currencies[0] if self._has_cost else ""

    @property
    def usable(self) -> tuple[Segment, ...]:
        """The segments that cost is counted with: none where there is no cost."""
        return self.segments if self._has_cost else ()

    @property
    def currency_change(self) -> tuple[str, datetime, str] | None:
        """The first change of currency between prices: from which, when, and to which."""
        priced = [each for each in self.segments if each.prices]
        for before, after in pairwise(priced):
            if before.currency != after.currency:
                return before.currency, after.begin, after.currency
        return None

    @property
    def _has_cost(self) -> bool:
        return len(self.currencies) == 1 and self.lost_before is None

    @property
    def unpriced(self) -> list[tuple[datetime, datetime]]:
        """The stretches in which nothing at all has a price."""
        found: list[tuple[datetime, datetime]] = []
        for each in self.segments:
            if each.prices:
                continue
            if found and found[-1][1] == each.begin:
                found[-1] = (found[-1][0], each.end)
            else:
                found.append((each.begin, each.end))
        return found

    def currencies_in(self, begin: datetime, end: datetime) -> set[str]:
        """Return the currencies of the prices of [begin, end), of one instant where both meet."""
        touched = (e for e in self.segments if e.begin <= begin < e.end or begin < e.begin < end)
        return {each.currency for each in touched if each.prices}

    def within(self, begin: datetime, until: datetime) -> Pricing:
        """Return the prices of a part of the range."""
        segments = tuple(
            replace(each, begin=max(each.begin, begin), end=min(each.end, until))
            for each in self.segments
            if each.begin < until and begin < each.end
        )
        currencies = tuple(sorted({each.currency for each in segments if each.prices}))
        closed = tuple(each for each in self.closed if each.first < until and begin < each.end)
        return replace(self, segments=segments, currencies=currencies, closed=closed)

    def only(self, currency: str) -> Pricing:
        """Return the same range with nothing but the prices of one currency."""
        segments = tuple(
            each if each.currency == currency else replace(each, prices={})
            for each in self.segments
        )
        return replace(self, segments=segments, currencies=(currency,))

    def names(self, resource: str) -> list[str]:
        """Return the accelerators or instance types that have a price of their own."""
        return sorted({name for each in self.usable for name in each.named(resource)})

    def money(self, cost: int | None) -> Money | None:
        """Return money x 3600 x COST_UNIT rounded once, half to even; None: nothing had a price."""
        if cost is None or not self.currency:
            return None
        return Money(_rounded(cost, self.decimals), self.currency)


def pricing_of(
    begin: datetime, until: datetime, zone: ZoneInfo, now: Tariff, closed: Sequence[Closed]
) -> Pricing:
    """Return the prices of [begin, until): those of `now` except in the months that are closed."""
    segments: list[Segment] = []
    used: list[Tariff] = []
    for first, end, its_zone, tariff in _stretches(begin, until, zone, now, closed):
        pieces = tariff.pieces(first, end, its_zone)
        segments += pieces
        if any(each.prices for each in pieces):
            used.append(tariff)
    return Pricing(
        tuple(segments),
        tuple(sorted({each.currency for each in used})),
        max((each.decimals for each in used), default=now.decimals),
        closed=tuple(closed),
    )


def _stretches(
    begin: datetime, until: datetime, zone: ZoneInfo, now: Tariff, closed: Sequence[Closed]
) -> list[tuple[datetime, datetime, ZoneInfo, Tariff]]:
    inside = [each for each in closed if each.first < until and begin < each.end]
    edges = {begin, until}
    edges |= {e for each in inside for e in (each.first, each.end) if begin < e < until}
    found = []
    for first, end in pairwise(sorted(edges)):
        its = next((each for each in inside if each.first <= first < each.end), None)
        found.append((first, end, its.zone if its else zone, its.tariff if its else now))
    return found


def _rounded(cost: int, decimals: int) -> Decimal:
    """Return money x 3600 x COST_UNIT rounded once, half to even."""
    whole, rest = divmod(cost * 10**decimals, HOUR * COST_UNIT)
    half = 2 * rest - HOUR * COST_UNIT
    whole += half > 0 or (half == 0 and whole % 2 == 1)
    return Decimal(f"{whole}e-{decimals}")
