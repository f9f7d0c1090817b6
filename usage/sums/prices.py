"""domain: the SQL that puts money beside sums: exact whole numbers of COST_UNIT x 3600.

Sums come by bucket, key and, where an instance type has a price, by that type. A bucket lies in
one segment of the prices; few rows are left when they are multiplied.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from usage.rates.heldsql import Amounts, accelerator_parameters, price_of, term
from usage.sums.measures import COST_UNIT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from usage.rates.pricing import Pricing
    from usage.sums.parts import Steps

_HELD: Final = Amounts("millicore_seconds", "byte_seconds", "micro_ipu_seconds", "gpu_seconds")


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of the buckets of `steps`.

    What was held in buckets without any price has no cost (NULL), what was free costs 0. Sums skip
    NULL, so a sum has a cost where anything had a price in a part of its time.
    """

    pricing: Pricing
    steps: Steps

    @property
    def kind(self) -> str:
        """SQL of the instance type of a row where that has a price; empty: none has."""
        if not self.pricing.names("instance"):
            return ""
        return "CASE WHEN instance_type = ANY(%(priced_types)s) THEN instance_type END"

    @property
    def accelerators(self) -> list[str]:
        """The accelerators with a price of their own."""
        return self.pricing.names("accelerator")

    @property
    def parameters(self) -> dict[str, Any]:
        """What the texts refer to."""
        begins = [each.begin for each in self.pricing.usable]
        found: dict[str, Any] = {
            "step_numbers": self.steps.numbers,
            "price_numbers": [bisect_right(begins, each) - 1 for each in self.steps.bounds],
            "priced_types": self.pricing.names("instance"),
        }
        found["accelerators"] = self.accelerators
        found |= accelerator_parameters(self.accelerators)
        for n, segment in enumerate(self.pricing.usable):
            for m, name in enumerate(sorted(segment.named("instance"))):
                found[f"type_{n}_{m}"] = name
        return found

    def of_pods(self, sums: str, names: Sequence[str]) -> str:
        """Return the SELECT of bucket (the step), key, `names` and cost of sums of pods."""
        return self._priced(sums, names, {n: self._pod_hour(n) for n in self._numbers})

    def of_partitions(self, sums: str, names: Sequence[str]) -> str:
        """Return the same of sums of partitions."""
        usable = self.pricing.usable
        each = {
            n: term("partition_ipu_seconds", usable[n].of("partition-ipu"), COST_UNIT) or "0"
            for n in self._numbers
        }
        return self._priced(sums, names, each)

    @property
    def _numbers(self) -> list[int]:
        """Those of the segments with prices: there is one where cost is counted at all."""
        return [n for n, segment in enumerate(self.pricing.usable) if segment.prices]

    def _priced(self, sums: str, names: Sequence[str], amounts: Mapping[int, str]) -> str:
        cases = "".join(f" WHEN {n} THEN {amount}" for n, amount in amounts.items())
        number = "(%(price_numbers)s::int[])[bucket + 1]"
        listed = "".join(f"sum({name}) AS {name}, " for name in names)
        return (
            f"SELECT (%(step_numbers)s::int[])[bucket + 1] AS bucket, key, {listed}"  # noqa: S608
            f"sum(CASE {number}{cases} END) AS cost FROM ({sums}) AS fine GROUP BY 1, 2"
        )

    def _pod_hour(self, number: int) -> str:
        segment = self.pricing.usable[number]
        named = sorted(segment.named("instance").items())
        held = price_of(segment, _HELD, self.accelerators, COST_UNIT)
        if not named:
            return held
        cases = "".join(
            f" WHEN kind = %(type_{number}_{m})s THEN {term('seconds', price, COST_UNIT) or '0'}"
            for m, (_, price) in enumerate(named)
        )
        return f"CASE{cases} ELSE {held} END"
