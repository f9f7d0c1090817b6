"""glue: the cost of last month under a new rate, before the rate is saved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from django.conf import settings

from ipuhub.web.access import Scope
from ipuhub.web.filters import BadFilter
from usage.rates.pricing import Pricing, Segment
from usage.reading import pricing_at, tariff_of
from usage.sums.measures import OUTPUTS
from usage.sums.queries import Question, read_sums
from usage.time.months import month_bounds
from usage.time.windows import Month, Window

if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from usage.models import Rate
    from usage.rates.pricing import Money
    from usage.sums.measures import Measures

_HOURS: Final = {
    "cpu": "cpu_core_hours",
    "memory": "memory_gib_hours",
    "gpu": "gpu_hours",
    "ipu": "ipu_hours",
    "partition-ipu": "partition_ipu_hours",
}
_EVERYTHING: Final = Scope(None)


@dataclass(frozen=True, slots=True)
class Preview:
    """The cost of all of last month's usage: unchanged, at the prices of the rate's first day
    without the rate, and with it. None: nothing had a price. `hours`: how many the rate is for;
    None for what only some of have. `problem`: why there are no figures, empty where there are.
    """

    month: str
    day: str
    now: Money | None = None
    without: Money | None = None
    having: Money | None = None
    hours: Decimal | None = None
    problem: str = ""

    @property
    def adds(self) -> Decimal | None:
        """Return the amount that the rate adds to the month, or takes from it."""
        if self.having is None:
            return None
        return self.having.amount - (self.without.amount if self.without else Decimal(0))


def preview(rate: Rate, now: datetime, zone: ZoneInfo) -> Preview:
    """Return the cost of last month under `rate`, which need not be stored.

    The whole month is counted at the prices of the rate's first day.
    """
    month = Month.of(now, zone).previous()
    empty = Preview(str(month), str(rate.valid_from))
    span = month_bounds(month, zone)
    question = Question(_EVERYTHING, Window.of(span.first, span.end, now), zone)
    standing = pricing_at(span.first, span.end, zone)
    others = {
        (each.resource, each.name): each.price
        for each in tariff_of(rate.valid_from, rate.valid_from).prices
        if (each.resource, each.name) != (rate.resource, rate.name)
    }
    own = {(rate.resource, rate.name): rate.price}

    def priced(prices: dict[tuple[str, str], Decimal]) -> Pricing:
        currency = settings.REPORT_CURRENCY
        segment = Segment(span.first, span.end, prices, currency)
        found = (currency,) if prices else ()
        return Pricing((segment,), found, settings.REPORT_COST_DECIMALS)

    def read(pricing: Pricing) -> tuple[Measures, Money | None]:
        priced = replace(question, pricing=pricing)
        total = read_sums(priced, [span.first], "cost", 1).total
        return total, pricing.money(total.cost)

    try:
        held, before = read(priced(others))
        _, after = read(priced(others | own))
        _, stands = read(standing)
    except BadFilter as error:
        return replace(empty, problem=" ".join(error.messages))
    name = _HOURS.get(rate.resource)
    hours = OUTPUTS[name].of(held) if name else None
    return replace(empty, now=stands, without=before, having=after, hours=hours)
