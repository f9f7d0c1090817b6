"""domain: money as SQL: exact until it is rounded, once, half to even.

Time is split where a price changes. `cost_seconds` is money x 3600: sums of resource x price x
whole seconds, with no division that could not be exact; `rounded_money` divides and rounds.
Names come in as parameters, prices as digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from usage.intervals import PARTITION_PIECES, POD_PIECES
from usage.rates.heldsql import (
    Amounts,
    accelerator_columns,
    accelerator_counts,
    accelerator_parameters,
    price_of,
    term,
)
from usage.sums.measures import COST_UNIT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from usage.rates.tariff import Segment

_HELD: Final = Amounts("cpu_millicores", "memory_bytes", "micro_ipus", "gpus")


@dataclass(frozen=True, slots=True)
class CostSql:
    """The pieces of SQL that add money to rows of lifetimes.

    `counts`: columns of a pod (`acc_0`, ...: its accelerators that have a price by name).
    `seconds`: columns of a clipped row: its seconds in each segment (`seconds_0`, ...), none where
    there is one segment only. `sizes`: the columns on which the price of an hour depends.
    """

    segments: tuple[Segment, ...] = ()

    @property
    def accelerators(self) -> list[str]:
        """The accelerators with a price of their own, in the order of their columns."""
        return sorted({name for each in self.segments for name in each.named("accelerator")})

    @property
    def counts(self) -> list[str]:
        """SQL of `acc_0`, `acc_1`, ... of a pod."""
        return accelerator_counts(self.accelerators)

    @property
    def no_counts(self) -> list[str]:
        """The same of a partition."""
        return [f"0::numeric AS {name}" for name in self.sizes]

    @property
    def sizes(self) -> list[str]:
        """Names of the columns of `counts`."""
        return accelerator_columns(self.accelerators)

    @property
    def parted(self) -> list[str]:
        """Names of the columns of seconds, one for each segment."""
        if len(self.segments) == 1:
            return ["seconds"]
        return [f"seconds_{n}" for n, _ in enumerate(self.segments)]

    def seconds_in(self, number: int) -> str:
        """Return SQL of a row's whole seconds in one segment."""
        if len(self.segments) == 1:
            return "seconds"
        begin, end = f"%(begins_{number})s::timestamptz", f"%(ends_{number})s::timestamptz"
        return (
            f"GREATEST(floor(date_part('epoch', LEAST(stop, {end})))"
            f" - floor(date_part('epoch', GREATEST(start, {begin}))), 0)::bigint"
        )

    @property
    def cost_seconds(self) -> str:
        """SQL of money x 3600 of a row that has its seconds in the columns of `parted`."""
        terms = [
            f"{column} * {_hourly(each, self.accelerators, n)}"
            for n, (column, each) in enumerate(zip(self.parted, self.segments, strict=True))
        ]
        return " + ".join(terms) or "0::numeric"

    @property
    def line_cost_seconds(self) -> str:
        """The same of a clipped row by itself."""
        terms = [
            f"{self.seconds_in(n)} * {_hourly(each, self.accelerators, n)}"
            for n, each in enumerate(self.segments)
        ]
        return " + ".join(terms) or "0::numeric"

    def lines_of_pods(self, where: str) -> str:
        """Return the SELECT of `id` and exact `cost` of pods, clipped as in usage/intervals.py."""
        amounts = "instance_type, cpu_millicores, memory_bytes, gpus, micro_ipus"
        columns = f"1 AS pod, {amounts}, 0::bigint AS partition_ipus"
        return self._lines(POD_PIECES, [columns, *self.counts], where)

    def lines_of_partitions(self, where: str) -> str:
        """Return the same of partitions."""
        amounts = ("cpu_millicores", "memory_bytes", "gpus", "micro_ipus")
        none = ", ".join(f"0::bigint AS {name}" for name in amounts)
        columns = f"0 AS pod, ''::text AS instance_type, {none}, size::bigint AS partition_ipus"
        return self._lines(PARTITION_PIECES, [columns, *self.no_counts], where)

    def _lines(self, pieces: str, columns: Sequence[str], where: str) -> str:
        listed = ", ".join(["id", "start", "stop", "seconds", *columns])
        return (
            f"SELECT id, ({self.line_cost_seconds}) * {COST_UNIT} AS cost FROM"  # noqa: S608
            f" (SELECT {listed} FROM ({pieces}) AS pieces WHERE {where}) AS lines"
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """What the texts above refer to."""
        found: dict[str, Any] = dict(accelerator_parameters(self.accelerators))
        for n, each in enumerate(self.segments):
            found |= _bounds(n, each.begin, each.end)
            for m, name in enumerate(sorted(each.named("instance"))):
                found[f"instance_{n}_{m}"] = name
        return found


def rounded_money(cost_seconds: str, decimals: int) -> str:
    """Return SQL of money from an exact, not negative money x 3600: rounded half to even."""
    scaled = f"(({cost_seconds}) * {10**decimals} + 1800)"
    whole = f"div({scaled}, 3600)"
    tie = f"mod({scaled}, 3600) = 0 AND mod({whole}, 2) = 1"
    unit = Decimal(1).scaleb(-decimals)
    return f"(CASE WHEN {tie} THEN {whole} - 1 ELSE {whole} END * {unit:f})"


def _bounds(number: int, begin: datetime, end: datetime) -> dict[str, datetime]:
    return {f"begins_{number}": begin, f"ends_{number}": end}


def _hourly(segment: Segment, accelerators: list[str], number: int) -> str:
    """Return SQL of the price of an hour of a row, as `numeric`."""
    partition = term("partition_ipus", segment.of("partition-ipu")) or "0::numeric"
    cases = "".join(
        f" WHEN instance_type = %(instance_{number}_{m})s THEN {price:f}::numeric"
        for m, (_, price) in enumerate(sorted(segment.named("instance").items()))
    )
    held = price_of(segment, _HELD, accelerators)
    return f"(CASE WHEN pod = 0 THEN {partition}{cases} ELSE {held} END)"
