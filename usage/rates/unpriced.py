"""glue: the hours of a range without a price, although other resources may have one at the time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from ipuhub.web.access import Scope
from usage.pods.annotations import OPERATORS_COMPONENT
from usage.rates.pricing import Pricing
from usage.sums.measures import COST_UNIT, DIMENSIONS, OUTPUTS
from usage.sums.queries import Question, all_sums
from usage.time.windows import Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from usage.rates.pricing import Segment
    from usage.sums.queries import SumRow

_RESOURCES: Final = {
    "cpu": OUTPUTS["cpu_core_hours"],
    "memory": OUTPUTS["memory_gib_hours"],
    "gpu": OUTPUTS["gpu_hours"],
    "ipu": OUTPUTS["ipu_hours"],
    "partition-ipu": OUTPUTS["partition_ipu_hours"],
}
_BY: Final = (DIMENSIONS["component"], DIMENSIONS["instance_type"])


@dataclass(frozen=True, slots=True)
class Unpriced:
    """Hours of one resource in [begin, end) that no rate applies to."""

    resource: str
    hours: Decimal
    begin: datetime
    end: datetime

    @property
    def sentence(self) -> str:
        """The same in words."""
        return (
            f"{self.hours:,.2f} {_RESOURCES[self.resource].noun} have no rate"
            f" ({self.begin:%F %H:%M} to {self.end:%F %H:%M} UTC)."
        )


def read_unpriced(segments: Sequence[Segment], zone: ZoneInfo) -> list[Unpriced]:
    """Return, by resource and in order, the hours without a price in those `segments` that have
    any; the segments follow each other. Raises BadFilter.

    A price of 0 is a price. The IPUs of a job's pods are the IPUs of its partition, so a price for
    either is a price for both.
    """
    if not any(each.prices for each in segments):
        return []
    window = Window(segments[0].begin, segments[-1].end, segments[-1].end)
    question = Question(Scope(None), window, zone, _BY, pricing=_named_hours(segments))
    rows = all_sums(question, [each.begin for each in segments], "seconds")
    found: dict[tuple[str, int], int] = {}
    for row in rows:
        for resource, amount in _without_price(segments[row.step], row):
            place = resource, row.step
            found[place] = found.get(place, 0) + amount
    return _joined(segments, found)


def _named_hours(segments: Sequence[Segment]) -> Pricing:
    """Return prices with which the `cost` of a sum is the time of accelerators that have a price by
    name: no other sum knows names."""
    only = tuple(
        replace(
            each,
            currency="-",
            prices={("accelerator", name): Decimal(1) for name in each.named("accelerator")},
        )
        for each in segments
    )
    return Pricing(only, ("-",) if any(each.prices for each in only) else ())


def _without_price(segment: Segment, row: SumRow) -> Iterable[tuple[str, int]]:
    component, instance_type = row.key
    if not segment.prices or instance_type in segment.named("instance"):
        return
    priced = {resource for resource, _ in segment.prices}
    if "ipu" in priced:
        priced.add("partition-ipu")
    if "partition-ipu" in priced and component == OPERATORS_COMPONENT:
        priced.add("ipu")
    for resource, output in _RESOURCES.items():
        held = getattr(row.measures, output.amount)
        if resource == "gpu":
            held -= (row.measures.cost or 0) // COST_UNIT
        if resource not in priced and held > 0:
            yield resource, held


def _joined(segments: Sequence[Segment], found: dict[tuple[str, int], int]) -> list[Unpriced]:
    """Join consecutive entries."""
    joined: list[Unpriced] = []
    for resource, output in _RESOURCES.items():
        last, total = -2, 0
        for step in sorted(step for name, step in found if name == resource):
            follows = last == step - 1
            total = found[resource, step] + (total if follows else 0)
            begin = joined.pop().begin if follows else segments[step].begin
            joined.append(Unpriced(resource, output.hours(total), begin, segments[step].end))
            last = step
    return joined
