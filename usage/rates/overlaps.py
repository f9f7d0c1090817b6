"""domain: finds prices that would count the same hours twice.

A price of an accelerator by name or of an instance type replaces other prices. But the IPUs of a
job's pods are those of its partition: IPU-hours of pods and of partitions are the same hours. So
are the hours of an instance type that the operator stamps (`ipu-4`), whose price covers everything
that its pods hold.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from usage.rates.tariff import Price

_OF_JOBS: Final = re.compile(r"ipu-\d+")
_LABELS: Final = {"ipu": "IPU-hours of pods", "partition-ipu": "IPU-hours of partitions"}


def are_of_one_thing(price: Price, other: Price) -> bool:
    """Return whether both prices apply to the same hours."""
    pair = {price.resource, other.resource}
    if pair == {"ipu", "partition-ipu"}:
        return True
    named = price if price.resource == "instance" else other
    return pair == {"instance", "partition-ipu"} and bool(_OF_JOBS.fullmatch(named.name))


def overlap(price: Price, others: Iterable[Price]) -> Price | None:
    """Return the first price that applies to the same hours as `price` on some day."""
    found = (each for each in others if are_of_one_thing(price, each) and _meet(price, each))
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
