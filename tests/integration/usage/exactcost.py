"""The cost of lifetimes in fractions, day by day: the reference for all SQL."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from partitions.models import PartitionLifetime

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from usage.models import PodLifetime, Rate


def exact_cost(
    each: PodLifetime | PartitionLifetime, rates: Sequence[Rate], first: datetime, days: int
) -> Fraction:
    """Money of a lifetime that has an end in so many days of UTC from `first`."""
    began, ended = (
        (each.reserved_at, each.released_at)
        if isinstance(each, PartitionLifetime)
        else (each.scheduled_at, each.finished_at)
    )
    money = Fraction(0)
    for day in range(days):
        begin, end = (first + timedelta(days=n) for n in (day, day + 1))
        seconds = (min(ended, end) - max(began, begin)).total_seconds()
        prices = {
            (r.resource, r.name): Fraction(r.price)
            for r in rates
            if r.valid_from <= begin.date() and (not r.valid_until or begin.date() < r.valid_until)
        }
        money += Fraction(max(0, int(seconds)), 3600) * _hour(each, prices)
    return money


def _hour(
    each: PodLifetime | PartitionLifetime, prices: dict[tuple[str, str], Fraction]
) -> Fraction:
    def price(*key: str) -> Fraction:
        return prices.get(key, Fraction(0))

    if isinstance(each, PartitionLifetime):
        return each.size * price("partition-ipu", "")
    if ("instance", each.instance_type) in prices:
        return price("instance", each.instance_type)
    found = Fraction(each.cpu_millicores, 1000) * price("cpu", "")
    found += Fraction(each.memory_bytes, 2**30) * price("memory", "")
    found += Fraction(each.micro_ipus, 10**6) * price("ipu", "")
    for name, count in each.accelerators.items():
        own = ("accelerator", name) if ("accelerator", name) in prices else ("gpu", "")
        found += count * price(*own)
    return found


def rounded(money: Fraction, decimals: int) -> Decimal:
    """Return it rounded once, half to even, as Python does."""
    return Decimal(round(money * 10**decimals)) / 10**decimals
