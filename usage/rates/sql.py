"""domain: SQL of money: exact until rounded once (half to even), for reports and sums.

Time is split where a price changes. `cost_seconds` is money x 3600: sums of resource x price x
whole seconds, without a division that could be inexact; `rounded_money` divides and rounds. Names
are passed as parameters (`accelerator_0`, ...), prices as digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

from usage.sums.measures import (
    COST_UNIT,
    accelerator_columns,
    accelerator_counts,
    accelerator_parameters,
)
from usage.time.windows import PARTITION_PIECES, POD_PIECES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from usage.rates.pricing import Segment

_EXACT: Final = Context(prec=100)
_GIB: Final = 2**30


@dataclass(frozen=True, slots=True)
class Amounts:
    """SQL of amounts, or of amounts x seconds: millicores, bytes, micro-IPUs and accelerators."""

    cpu: str
    memory: str
    ipu: str
    gpu: str


def price_of(
    segment: Segment,
    amounts: Amounts,
    names: Sequence[str],
    scale: int = 1,
    columns: Sequence[str] = (),
) -> str:
    """Return SQL of price x amounts x `scale`, as `numeric`.

    Accelerators in `names` have `columns`, by default `accelerator_columns`. An accelerator with a
    price by name costs that price instead of the general price.
    """
    named = segment.named("accelerator")
    listed = zip(columns or accelerator_columns(names), names, strict=True)
    own = {column: named[name] for column, name in listed if name in named}
    terms = [
        term(amounts.cpu, segment.of("cpu"), scale, 1000),
        term(amounts.memory, segment.of("memory"), scale, _GIB),
        term(amounts.ipu, segment.of("ipu"), scale, 10**6),
        *(term(column, price, scale) for column, price in own.items()),
        term(f"({' - '.join([amounts.gpu, *own])})", segment.of("gpu"), scale),
    ]
    return " + ".join(each for each in terms if each) or "0::numeric"


def term(amount: str, price: Decimal, scale: int = 1, unit: int = 1) -> str:
    """Return SQL of amount x price x scale / unit; empty where it costs nothing."""
    if not price:
        return ""
    factor = _EXACT.divide(_EXACT.multiply(price, scale), unit).normalize(_EXACT)
    return f"{amount} * {factor:f}::numeric"


_HELD_AMOUNTS: Final = ("cpu_millicores", "memory_bytes", "micro_ipus", "gpus")
_HELD: Final = Amounts(*_HELD_AMOUNTS)
AMOUNT_SUMS: Final = {
    "cpu_millicores": "millicore_seconds",
    "memory_bytes": "byte_seconds",
    "gpus": "gpu_seconds",
    "micro_ipus": "micro_ipu_seconds",
    "partition_ipus": "partition_ipu_seconds",
}
"""The resources of a row, with the name of the sum of each x seconds."""
_RESOURCES: Final = {
    "cpu_millicores": "cpu",
    "memory_bytes": "memory",
    "gpus": "gpu",
    "micro_ipus": "ipu",
    "partition_ipus": "partition-ipu",
}


@dataclass(frozen=True, slots=True)
class CostSql:
    """The pieces of SQL that add money to rows of lifetimes.

    `counts`: columns of a pod (`acc_0`, ...: its accelerators that have a price by name); `sizes`:
    their names. `sums`: of what it held in each segment, which a price is multiplied with.
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

    def seconds_in(self, number: int) -> str:
        """Return SQL of a row's whole seconds in one segment."""
        if len(self.segments) == 1:
            return "seconds"
        begin, end = f"%(begins_{number})s::timestamptz", f"%(ends_{number})s::timestamptz"
        return (
            f"GREATEST(floor(date_part('epoch', LEAST(stop, {end})))"
            f" - floor(date_part('epoch', GREATEST(start, {begin}))), 0)::bigint"
        )

    def sums(self, number: int) -> dict[str, str]:
        """Return what a price of one segment is multiplied with, of a group of rows: the names of
        sums by amounts, `seconds` among them. Of one segment alone they are the sums that a
        report's rows have anyway."""
        expressions = {**AMOUNT_SUMS, "seconds": "seconds"}
        expressions |= {column: f"{column}_seconds" for column in self.sizes}
        alone = len(self.segments) == 1
        return {
            amount: name if alone else f"{name}_{number}" for amount, name in expressions.items()
        }

    @property
    def more_sums(self) -> list[tuple[str, str, str]]:
        """Those that a report's rows do not have: amount, SQL of the seconds, name."""
        alone = len(self.segments) == 1
        return [
            (amount, self.seconds_in(n), name)
            for n, each in enumerate(self.segments)
            for amount, name in self.sums(n).items()
            if (amount in self.sizes or not alone) and self._is_priced(each, amount)
        ]

    def _is_priced(self, segment: Segment, amount: str) -> bool:
        """Return whether a price of the segment has to do with an amount."""
        if amount == "seconds":
            return bool(segment.named("instance"))
        if amount in self.sizes:
            return self.accelerators[self.sizes.index(amount)] in segment.named("accelerator")
        return bool(segment.of(_RESOURCES[amount]))

    @property
    def cost_seconds(self) -> str:
        """SQL of money x 3600 of a group of rows that has the sums of each segment."""
        terms = []
        for n, each in enumerate(self.segments):
            names = self.sums(n)
            held = Amounts(*(names[amount] for amount in _HELD_AMOUNTS))
            own = [names[column] for column in self.sizes]
            price = price_of(each, held, self.accelerators, columns=own)
            terms.append(_by_kind(each, n, price, names))
        return " + ".join(terms) or "0::numeric"

    @property
    def line_cost_seconds(self) -> str:
        """The same of a clipped row by itself."""
        own = {"partition_ipus": "partition_ipus", "seconds": "1"}
        terms = [
            f"{self.seconds_in(n)} * "
            + _by_kind(each, n, price_of(each, _HELD, self.accelerators), own)
            for n, each in enumerate(self.segments)
        ]
        return " + ".join(terms) or "0::numeric"

    @property
    def is_priced(self) -> str:
        """SQL of whether anything has a price in the time of a clipped row."""
        if all(each.prices for each in self.segments):
            return "true" if self.segments else "false"
        touched = (
            f"start < %(ends_{n})s::timestamptz AND (start >= %(begins_{n})s::timestamptz"
            f" OR stop > %(begins_{n})s::timestamptz)"
            for n, each in enumerate(self.segments)
            if each.prices
        )
        return f"({' OR '.join(touched)})"

    def lines_of_pods(self, where: str, key: str = "id") -> str:
        """Return the SELECT of `key` and exact `cost` of pods, clipped as in
        usage/time/windows.py, without those that nothing has a price for."""
        amounts = "instance_type, cpu_millicores, memory_bytes, gpus, micro_ipus"
        columns = f"1 AS pod, {amounts}, 0::bigint AS partition_ipus"
        return self._lines(POD_PIECES, [columns, *self.counts], where, key)

    def lines_of_partitions(self, where: str, key: str = "id") -> str:
        """Return the same of partitions."""
        amounts = ("cpu_millicores", "memory_bytes", "gpus", "micro_ipus")
        none = ", ".join(f"0::bigint AS {name}" for name in amounts)
        columns = f"0 AS pod, ''::text AS instance_type, {none}, size::bigint AS partition_ipus"
        return self._lines(PARTITION_PIECES, [columns, *self.no_counts], where, key)

    def _lines(self, pieces: str, columns: Sequence[str], where: str, key: str) -> str:
        listed = ", ".join([key, "start", "stop", "seconds", *columns])
        return (
            f"SELECT {key}, ({self.line_cost_seconds}) * {COST_UNIT} AS cost FROM"  # noqa: S608
            f" (SELECT {listed} FROM ({pieces}) AS pieces WHERE {where}) AS lines"
            f" WHERE {self.is_priced}"
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the SQL above."""
        found: dict[str, Any] = dict(accelerator_parameters(self.accelerators))
        for n, each in enumerate(self.segments):
            found |= _bounds(n, each.begin, each.end)
            for m, name in enumerate(sorted(each.named("instance"))):
                found[f"instance_{n}_{m}"] = name
        return found


def rounded_money(cost_seconds: str, decimals: int) -> str:
    """Return SQL of money from an exact, not negative money x 3600: rounded half to even."""
    scaled = f"(({cost_seconds}) * {10**decimals} + 1800)"
    quotient = f"div({scaled}, 3600)"
    tie = f"mod({scaled}, 3600) = 0 AND mod({quotient}, 2) = 1"
    unit = Decimal(1).scaleb(-decimals)
    return f"(CASE WHEN {tie} THEN {quotient} - 1 ELSE {quotient} END * {unit:f})"


def _bounds(number: int, begin: datetime, end: datetime) -> dict[str, datetime]:
    return {f"begins_{number}": begin, f"ends_{number}": end}


def _by_kind(segment: Segment, number: int, held: str, names: Mapping[str, str]) -> str:
    """Return SQL of what a row, or a group of them, costs: a partition its IPUs, a pod whose
    instance type has a price that, and any other what it `held`."""
    partition = term(names["partition_ipus"], segment.of("partition-ipu")) or "0::numeric"
    cases = "".join(
        f" WHEN instance_type = %(instance_{number}_{m})s"
        f" THEN {names['seconds']} * {price:f}::numeric"
        for m, (_, price) in enumerate(sorted(segment.named("instance").items()))
    )
    return f"(CASE WHEN pod = 0 THEN {partition}{cases} ELSE {held} END)"
