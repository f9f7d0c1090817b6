"""domain: the SQL that cuts lifetimes into pieces of a stretch, the tables of sums, and their cost.

A lifetime has one namespace, group, user, component and instance type, so sums of sums by fewer
columns are exact, and so are counts. A month of 500 users with 8 instance types has 120,000 full
sums, 15,000 by user and 10,000 by kind; a question by group reads the smallest table that has its
columns.

Cost is added next to sums as exact whole numbers of COST_UNIT x 3600. Sums come by bucket, key and,
if an instance type has a price, by that type. A bucket is in one segment of the prices, so few rows
are multiplied. A closed month that is shown as a whole costs the sum of the rounded rows of its
report and corrections: unrounded sums of the same rows would give another total.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from usage.rates.sql import Amounts, price_of, term
from usage.sums.measures import COST_UNIT, HOUR, NAMES, accelerator_parameters
from usage.time.windows import PARTITION_PIECES, bounds

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from usage.rates.pricing import Pricing
    from usage.sums.parts import Steps, Stretch

_SECONDS: Final = (
    "GREATEST(floor(date_part('epoch', LEAST(stop, b.ends)))"
    " - floor(date_part('epoch', GREATEST(start, b.begins))), 0)::bigint"
)
PIECE_COLUMNS: Final = "estimated, user_verified, cpu_millicores, memory_bytes, gpus, micro_ipus"
"""The columns of a pod that PIECE_SUMS are of."""


def _total(column: str) -> str:
    """Return SQL of the exact sum of column x secs, in halves of 31 bits: a piece is shorter than
    2**31 s (68 years), so that no product exceeds 8 bytes. Numeric would take three times as long.
    """
    high, low = f"sum(({column} >> 31) * secs)", f"sum(({column} & 2147483647) * secs)"
    return f"COALESCE({high}::numeric * 2147483648 + {low}, 0)"


PIECE_SUMS: Final = {
    "seconds": "COALESCE(sum(secs), 0)",
    "estimated_seconds": "COALESCE(sum(secs) FILTER (WHERE estimated), 0)",
    "unverified_seconds": "COALESCE(sum(secs) FILTER (WHERE NOT user_verified), 0)",
    "millicore_seconds": _total("cpu_millicores"),
    "byte_seconds": _total("memory_bytes"),
    "gpu_seconds": _total("gpus"),
    "micro_ipu_seconds": _total("micro_ipus"),
}


def pieces(source: str, columns: str, where: str, name: str, *, many: bool = True) -> str:
    """Return a SELECT of `columns` for each piece of each lifetime in the stretch called `name`.

    It has `secs`, `bucket`, `begun` and `counts` (the lifetime counts in this piece: it begins in
    it, or the piece opens a step). Parameters: `stretch_parameters`. Without `many` pieces nothing
    is cut, so the planner need not estimate how often.
    """
    began = "reserved_at" if source is PARTITION_PIECES else "scheduled_at"
    own = source
    for each in ("first", "until", "day_before"):
        own = own.replace(f"%({each})s", f"%({name}_{each})s")
    clipped = f"SELECT * FROM ({own}) AS clipped WHERE {where}"  # noqa: S608
    piece = _piece(name, "1")
    if many:
        clipped, piece = _numbered(clipped, name), _piece(name, "i")
        piece += " FROM generate_series(low, GREATEST(low, high)) AS i"
    return (
        f"SELECT {columns}, b.bucket, (b.opens OR {began} >= b.begins) AS counts,"  # noqa: S608
        f" {began} >= b.begins AS begun, {_SECONDS} AS secs"
        f" FROM ({clipped}) AS lifetimes CROSS JOIN LATERAL ({piece}) AS b"
        " OFFSET 0"  # else `secs` is computed again for each sum
    )


def _piece(name: str, number: str) -> str:
    array = f"(%({name}_bounds)s::timestamptz[])"
    return (
        f"SELECT {array}[{number}] AS begins, {array}[{number} + 1] AS ends,"
        f" (%({name}_buckets)s::int[])[{number}] AS bucket,"
        f" (%({name}_opens)s::bool[])[{number}] AS opens"
    )


def _numbered(clipped: str, name: str) -> str:
    """Return the lifetimes with the numbers of their first and last piece."""
    array = f"%({name}_bounds)s::timestamptz[]"
    last = f"width_bucket(stop, {array})"
    return (
        f"SELECT *, width_bucket(start, {array}) AS low,"  # noqa: S608
        f" {last} - (stop = ({array})[{last}])::int AS high FROM ({clipped}) AS whole"
    )


def stretch_parameters(name: str, stretch: Stretch) -> dict[str, Any]:
    """Return the parameters of `pieces` for one stretch."""
    own = bounds(stretch.bounds[0], stretch.bounds[-1])
    return {
        **{f"{name}_{key}": value for key, value in own.items()},
        f"{name}_bounds": list(stretch.bounds),
        f"{name}_buckets": list(stretch.buckets),
        f"{name}_opens": list(stretch.opens),
        f"{name}_after": stretch.after,
    }


FULL: Final = "usage_usage"
COARSE: Final = {
    "usage_kind": ("namespace", "group", "component", "instance_type"),
    "usage_user": ("namespace", "group", "user"),
}
"""The tables of pods without `day`, `hour` or `span` at their end, the smallest first, and their
columns."""
PODS: Final = {FULL: ("namespace", "group", "user", "component", "instance_type"), **COARSE}
PARTITIONS: Final = "usage_partition"
GROUP: Final = "usage_group"
"""Sums by namespace and group, of hours only: of days the sums by kind are few enough."""
PARTITION_KIND: Final = "usage_partitionkind"
"""Sums of partitions by namespace, group and size, of hours only."""
HOURLY: Final = {GROUP: ("namespace", "group")}
KEPT: Final = ("usage_kind", GROUP)
"""The tables of pods that keep all hours; others have those of today."""
HOURLY_NAMES: Final = COARSE["usage_kind"]
"""The dimensions that sums of all hours have."""


def accelerators_of(table: str) -> str:
    """Return the table of what pods held of each accelerator, by the same columns and its name."""
    return f"{table}accelerator"


def table_of(names: Collection[str]) -> str:
    """Return the table, without its grain, of the fewest sums that know all these dimensions."""
    fitting = (table for table, columns in COARSE.items() if set(names) <= set(columns))
    return next(fitting, FULL)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a sum without their grain: of days and of hours.

    `typed`: the table in which instance types with a price are found, which these do not know.
    """

    days: str = FULL
    hours: str = FULL
    typed: str = ""

    def of(self, grain: str) -> str:
        """Return the table of a grain."""
        return f"{self.hours if grain == 'hour' else self.days}{grain}"

    @property
    def keeps_hours(self) -> bool:
        """Return whether there are sums of all hours."""
        return self.hours in KEPT

    @property
    def undivided(self) -> Tables:
        """The tables that know instance types, too."""
        return Tables(self.typed, self.typed) if self.typed else self

    @property
    def accelerators(self) -> Tables:
        """The tables of what pods held of each accelerator."""
        return Tables(accelerators_of(self.days), accelerators_of(self.hours))

    @property
    def partitions(self) -> Tables:
        """The tables of partitions that know the same dimensions."""
        return Tables(PARTITIONS, PARTITION_KIND if self.keeps_hours else PARTITIONS)


def tables_of(names: Collection[str], *, has_types: bool = False) -> Tables:
    """Return the tables of the fewest sums that know all these dimensions; `has_types`: an instance
    type has a price.

    Sums by user and type are many: types with a price are found in them, all else by user.
    """
    known = {*names, "instance_type"} if has_types else set(names)
    days, coarse = table_of(known), table_of(names)
    if days == FULL != coarse:
        return Tables(coarse, coarse, FULL)
    return Tables(days, GROUP if known <= set(HOURLY[GROUP]) else days)


_AMOUNTS: Final = {
    "cpu": "millicore_seconds",
    "memory": "byte_seconds",
    "gpu": "gpu_seconds",
    "ipu": "micro_ipu_seconds",
    "instance": "seconds",
}
_HELD: Final = Amounts("millicore_seconds", "byte_seconds", "micro_ipu_seconds", "gpu_seconds")


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of the buckets of `steps`.

    Amounts held in buckets without any price have no cost (NULL), free amounts cost 0. Sums skip
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
    def amounts(self) -> list[str]:
        """The sums of pods that a price is multiplied with."""
        priced = {kind for each in self.pricing.usable for kind, _ in each.prices}
        return [name for kind, name in _AMOUNTS.items() if kind in priced]

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the SQL."""
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

    def of_pods(self, sums: str, names: Sequence[str], *, apart: bool = False) -> str:
        """Return the SELECT of bucket (the step), key, `names` and cost of sums of pods.

        `apart`: sums of a `kind` are part of those without, and only correct what these cost.
        """
        hours = {n: self._pod_hour(n, apart=apart) for n in self._numbers}
        return self._priced(sums, names, hours, " FILTER (WHERE kind IS NULL)" if apart else "")

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
        """The numbers of the segments with prices: at least one where cost is counted at all."""
        return [n for n, segment in enumerate(self.pricing.usable) if segment.prices]

    def _priced(
        self, sums: str, names: Sequence[str], amounts: Mapping[int, str], which: str = ""
    ) -> str:
        cases = "".join(f" WHEN {n} THEN {amount}" for n, amount in amounts.items())
        number = "(%(price_numbers)s::int[])[bucket + 1]"
        listed = "".join(f"sum({name}){which} AS {name}, " for name in names)
        return (
            f"SELECT (%(step_numbers)s::int[])[bucket + 1] AS bucket, key, {listed}"  # noqa: S608
            f"sum(CASE {number}{cases} END) AS cost FROM ({sums}) AS fine GROUP BY 1, 2"
        )

    def _pod_hour(self, number: int, *, apart: bool) -> str:
        segment = self.pricing.usable[number]
        named = sorted(segment.named("instance").items())
        held = price_of(segment, _HELD, self.accelerators, COST_UNIT)
        instead = f" - ({held})" if apart else ""
        cases = "".join(
            f" WHEN kind = %(type_{number}_{m})s"
            f" THEN {term('seconds', price, COST_UNIT) or '0'}{instead}"
            for m, (_, price) in enumerate(named)
        )
        if apart:
            return f"CASE WHEN kind IS NULL THEN {held}{cases} ELSE 0 END"
        return f"CASE{cases} ELSE {held} END" if named else held

    from usage.rates.pricing import Pricing


_ROWS: Final = """
FROM usage_reportrow AS line JOIN usage_monthreport AS report ON report.id = line.report_id
  AND report.state IN ('closed', 'correction')
JOIN unnest(%(closed_months)s::text[], %(closed_steps)s::int[]) AS closed (of_month, bucket)
  ON closed.of_month = report.month
"""


@dataclass(frozen=True, slots=True)
class ClosedSteps:
    """The closed months that lie within the steps of a question: each month and its step."""

    months: dict[str, int]
    begins: frozenset[datetime]

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the SQL."""
        return {
            "closed_steps": list(self.months.values()),
            "closed_months": list(self.months),
        }

    def costs(self, key: str, where: str) -> str:
        """Return the SELECT of bucket, key and cost of these steps, of lines of reports."""
        return (
            f"SELECT bucket, {key} AS key,"
            f" sum(line.cost) * {HOUR} * {COST_UNIT} AS cost"
            f" {_ROWS} WHERE {where} GROUP BY 1, 2"
        )

    def priced_by_reports(self, pricing: Pricing) -> Pricing:
        """Return `pricing` at which these months cost nothing: their reports' lines are added.
        Usage that was found since then costs nothing yet."""
        closed = [each for each in pricing.closed if each.first in self.begins]
        segments = tuple(
            replace(segment, prices=dict.fromkeys(segment.prices, Decimal(0)))
            if any(each.first <= segment.begin < each.end for each in closed)
            else segment
            for segment in pricing.segments
        )
        return replace(pricing, segments=segments)

    def in_place(self, sums: str, costs: str) -> str:
        """Return `sums`, priced without these months, with these costs besides. A line of a report
        of which nothing is left has no other sums."""
        cells = ", ".join(f"COALESCE({name}, 0) AS {name}" for name in NAMES if name != "cost")
        return (
            f"SELECT bucket, key, {cells},"  # noqa: S608  # likewise
            " COALESCE(sums.cost + lines.cost, sums.cost, lines.cost) AS cost"
            f" FROM ({sums}) AS sums"
            f" FULL JOIN ({costs}) AS lines USING (bucket, key)"
            " WHERE sums.bucket IS NOT NULL OR lines.cost <> 0"
        )


def closed_steps(
    pricing: Pricing | None, begins: Sequence[datetime], end: datetime
) -> ClosedSteps | None:
    """Return the closed months with prices that lie within a step, the last of which ends at `end`;
    None: none does, or there is no cost."""
    if pricing is None or not pricing.usable:
        return None
    found: dict[str, int] = {}
    firsts = set()
    for each in pricing.closed:
        step = bisect_right(begins, each.first) - 1
        ends = begins[step + 1] if step + 1 < len(begins) else end
        if step >= 0 and each.end <= ends and each.tariff.prices:
            found[each.month] = step
            firsts.add(each.first)
    return ClosedSteps(found, frozenset(firsts)) if found else None
