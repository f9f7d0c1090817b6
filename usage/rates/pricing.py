"""domain: the prices of a report, and of any range segment by segment; money, exact until it is
rounded once.

A closed month costs what it was closed with; all other time costs what the current rates say.

Prices are exact decimals per hour, in one currency. A pod whose instance type has a price costs
only that price. Otherwise its cores, memory, accelerators (at the price of their name, or else of
`gpu`) and IPUs are added up. A partition costs its IPU-hours from reserved to released. A resource
without a price is free.

Prices that would count the same hours twice overlap. A price of an accelerator by name or of an
instance type replaces other prices. But the IPUs of a job's pods are the IPUs of its partition:
IPU-hours of pods and of partitions are the same hours. So are the hours of an instance type that
the operator stamps (`ipu-4`), whose price covers everything that its pods hold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import ROUND_HALF_EVEN, Context, Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from ipuhub.text import Figure
from usage.sums.measures import COST_UNIT, HOUR
from usage.time.windows import day_begin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

DETAIL_DECIMALS: Final = 5
"""Decimals of money in a line of the details, which explain; the summary is what is asked for."""
_OF_JOBS: Final = re.compile(r"ipu-\d+")
_LABELS: Final = {"ipu": "IPU-hours of pods", "partition-ipu": "IPU-hours of partitions"}


@dataclass(frozen=True, slots=True)
class Price:
    """A price per hour, from the first instant of a day up to the first instant of another day."""

    resource: str
    name: str
    price: Decimal
    valid_from: date
    valid_until: date | None = None

    def holds_on(self, day: date) -> bool:
        """Return whether it is the price of that day."""
        return self.valid_from <= day and (self.valid_until is None or day < self.valid_until)


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch [begin, end) in which no price changes, and the currency of its prices."""

    begin: datetime
    end: datetime
    prices: Mapping[tuple[str, str], Decimal]
    currency: str = ""

    def of(self, resource: str, name: str = "") -> Decimal:
        """Return the price of a resource; 0 where it has none."""
        return self.prices.get((resource, name), Decimal(0))

    def named(self, resource: str) -> dict[str, Decimal]:
        """Return the prices of accelerators or instance types by name."""
        return {name: price for (kind, name), price in self.prices.items() if kind == resource}


@dataclass(frozen=True, slots=True)
class Tariff:
    """All prices that may matter to a report, the currency, and the decimals of its money."""

    currency: str = ""
    decimals: int = 2
    prices: tuple[Price, ...] = field(default=())

    def segments(self, first: datetime, end: datetime, zone: ZoneInfo) -> tuple[Segment, ...]:
        """Return [first, end) cut where a price changes; none where nothing has a price."""
        found = self.pieces(first, end, zone)
        return found if any(each.prices for each in found) else ()

    def pieces(self, first: datetime, end: datetime, zone: ZoneInfo) -> tuple[Segment, ...]:
        """Return [first, end) cut where a price changes, whether or not there is any."""
        days = {each.valid_from for each in self.prices}
        days |= {each.valid_until for each in self.prices if each.valid_until}
        changes = sorted({day_begin(day, zone): day for day in days}.items())
        inside = [instant for instant, _ in changes if first < instant < end]
        bounds = [first, *inside, end]
        return tuple(
            Segment(begin, until, self._on(begin.astimezone(zone).date()), self.currency)
            for begin, until in pairwise(bounds)
        )

    def _on(self, day: date) -> dict[tuple[str, str], Decimal]:
        held = (each for each in self.prices if each.holds_on(day))
        return {(each.resource, each.name): each.price for each in held}

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON, for the report that was made with it."""
        return {
            "currency": self.currency,
            "decimals": self.decimals,
            "rates": [
                {
                    "resource": each.resource,
                    "name": each.name,
                    "price": str(each.price),
                    "from": each.valid_from.isoformat(),
                    "until": each.valid_until.isoformat() if each.valid_until else None,
                }
                for each in self.prices
            ],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Tariff:
        """Return the tariff that `to_record` wrote; the tariff of an older report has no prices."""
        prices = tuple(
            Price(
                each["resource"],
                each["name"],
                Decimal(each["price"]),
                date.fromisoformat(each["from"]),
                date.fromisoformat(each["until"]) if each["until"] else None,
            )
            for each in record.get("rates", ())
        )
        return cls(record.get("currency", ""), record.get("decimals", 2), prices)


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


def price_same_hours(price: Price, other: Price) -> bool:
    """Return whether both prices apply to the same hours."""
    pair = {price.resource, other.resource}
    if pair == {"ipu", "partition-ipu"}:
        return True
    named = price if price.resource == "instance" else other
    return pair == {"instance", "partition-ipu"} and bool(_OF_JOBS.fullmatch(named.name))


def overlap(price: Price, others: Iterable[Price]) -> Price | None:
    """Return the first price that applies to the same hours as `price` on some day."""
    found = (each for each in others if price_same_hours(price, each) and _meet(price, each))
    return next(found, None)


def sentence(other: Price) -> str:
    """Return what is wrong with a price next to `other`, and what to do."""
    until = f" until before {other.valid_until}" if other.valid_until else ""
    return (
        f"{described(other)} have a price from {other.valid_from}{until}. A job's pods use the "
        "IPUs of its partition, so these IPUs would be charged twice. End that rate first, or "
        "choose other days."
    )


def described(price: Price) -> str:
    """Return what the price is for, in words."""
    return _LABELS.get(price.resource, f"Pods of the instance type {price.name}")


def _meet(price: Price, other: Price) -> bool:
    begin = max(price.valid_from, other.valid_from)
    ends = [each.valid_until for each in (price, other) if each.valid_until is not None]
    return all(begin < end for end in ends)


_MICRO_DECIMALS: Final = 6


@dataclass(frozen=True, slots=True)
class LineCost:
    """The cost of one lifetime or job: exact money x 3600 x COST_UNIT, rounded when it is printed;
    `decimals`: in files and the API, by default as in a line of a report's details;
    `page_decimals`: on pages, as of every sum of money there."""

    exact: int
    currency: str
    decimals: int = DETAIL_DECIMALS
    page_decimals: int = 2

    @property
    def on_page(self) -> str:
        """The money as every page prints it: `12.30 EUR`, and `< 0.01 EUR` for less than that."""
        amount = _rounded(self.exact, self.page_decimals)
        if self.exact > 0 and not amount:
            return f"< {Decimal(1).scaleb(-self.page_decimals):f} {self.currency}"
        return str(Money(amount, self.currency))

    @property
    def money(self) -> Money:
        """Rounded once, half to even."""
        return Money(_rounded(self.exact, self.decimals), self.currency)

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
    """The prices of a range: `segments` cover it in order; `currencies` are the currencies of its
    prices; `closed` are the closed months that it touches.

    Money of two currencies cannot be added up: such a range has no cost. Nor has a range with
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
        """The single currency; empty if nothing has a price, or there is no cost."""
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
    """Return the prices of [begin, until): the current prices except in closed months."""
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
    quotient, remainder = divmod(cost * 10**decimals, HOUR * COST_UNIT)
    half = 2 * remainder - HOUR * COST_UNIT
    quotient += half > 0 or (half == 0 and quotient % 2 == 1)
    return Decimal(f"{quotient}e-{decimals}")
