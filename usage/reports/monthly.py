"""domain: what a report says: its rows, sums and files, as SQL.

A report is a pure function of the lifetimes, the range, the zone, the tariff and `generated_at`:
what begins or ends after that instant counts as not yet known, so that details which are read
later from the rows agree with the summary that was stored. Sums are exact whole numbers until
they are printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from usage.intervals import (
    IDLE_PIECES,
    PARTITION_PARTS,
    POD_PARTS,
    POD_PIECES,
    bounds,
    idle_sql,
)
from usage.rates.costsql import CostSql, rounded_money
from usage.rates.tariff import DETAIL_DECIMALS, Tariff

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from usage.rates.tariff import Segment
    from usage.reports.columns import Columns, Profile


@dataclass(frozen=True, slots=True)
class Range:
    """What a report covers: [first, end), as far as it was known at `generated_at`.

    `label` stands in the first column: a month without its hyphen, or an interval. `segments`: its
    stretches where not all of them have the prices of `tariff`, which then says only how money is
    written.
    """

    label: str
    zone: str
    first: datetime
    end: datetime
    generated_at: datetime
    tariff: Tariff = field(default=Tariff())
    segments: tuple[Segment, ...] | None = None

    @property
    def until(self) -> datetime:
        """Where what is known ends."""
        return max(self.first, min(self.end, self.generated_at))

    @property
    def cost(self) -> CostSql:
        """The SQL of its money."""
        if self.segments is not None:
            return CostSql(self.segments)
        return CostSql(self.tariff.segments(self.first, self.until, ZoneInfo(self.zone)))

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of its SQL."""
        return {
            **bounds(self.first, self.until),
            **self.cost.parameters,
            "month": self.label,
            "zone": self.zone,
            "is_open": self.until < self.end,
            "currency": self.tariff.currency,
            "decimals": self.tariff.decimals,
        }


_POD_COLUMNS: Final = """
1 AS pod, start, stop, going_on, seconds, namespace, "group" COLLATE "C" AS "group",
"user" COLLATE "C" AS "user", user_verified, claim, component, component_name, instance_type,
pod_name, uid COLLATE "C" AS uid, node, job_uid, partition, estimated, uncertainty_seconds,
cpu_millicores, memory_bytes, gpus, micro_ipus, 0::bigint AS partition_ipus,
NULL::numeric AS idle"""

_PARTITION_COLUMNS: Final = """
0 AS pod, start, stop, going_on, seconds, namespace, "group" COLLATE "C" AS "group",
"user" COLLATE "C" AS "user", user_verified, 'operator'::text AS claim,
'partition'::text AS component, job_name AS component_name, 'ipu-' || size AS instance_type,
''::text AS pod_name, key COLLATE "C" AS uid, ''::text AS node, job_uid, partition, estimated,
uncertainty_seconds, 0::bigint AS cpu_millicores, 0::bigint AS memory_bytes, 0::bigint AS gpus,
0::bigint AS micro_ipus, size::bigint AS partition_ipus"""

_KEYS: Final = 'namespace, "group", "user", user_verified, component, instance_type, running'
_AMOUNTS: Final = {
    "cpu_millicores": "millicore_seconds",
    "memory_bytes": "byte_seconds",
    "gpus": "gpu_seconds",
    "micro_ipus": "micro_ipu_seconds",
    "partition_ipus": "partition_ipu_seconds",
}


def _columns(columns: str, more: Sequence[str]) -> str:
    return ", ".join([columns, *more])


def _product_sum(amount: str) -> str:
    """Return SQL of the exact sum of amount x seconds, whatever anybody requested.

    The halves of an amount times the seconds of 68 years fit in 64 bits, and PostgreSQL adds
    those up in 128: a fifth of the time of `numeric`.
    """
    return (
        f"sum(({amount} >> 32) * seconds) * 4294967296::numeric"
        f" + sum(({amount} & 4294967295) * seconds)"
    )


def rows_sql(covers: Range) -> str:
    """Return the SELECT of a summary's rows, the columns of ReportRow; parameters of `covers`.

    Pods and partitions are added up apart, so that the server may take several processes for the
    pods. Where something has a price, the seconds of each size of pod are added up first, and the
    sizes multiplied afterwards; otherwise there is no need to tell the sizes apart.
    """
    cost = covers.cost
    pods = _columns(_POD_COLUMNS, cost.counts)
    held = _columns(f"{_PARTITION_COLUMNS}, idle", cost.no_counts)
    sources = (
        f"SELECT {pods} FROM ({POD_PIECES}) AS pods",  # noqa: S608
        f"SELECT {held} FROM ({IDLE_PIECES}) AS held",  # noqa: S608
    )
    shapes = " UNION ALL ".join(
        _shapes(source, name, cost) for source, name in zip(sources, ("pods", "held"), strict=True)
    )
    total = "{name}" if not cost.segments else "{amount} * seconds"
    amounts = ", ".join(
        f"sum({total.format(name=name, amount=amount)}) AS {name}"
        for amount, name in _AMOUNTS.items()
    )
    money = rounded_money(f"sum({cost.cost_seconds})", covers.tariff.decimals)
    return f"""
SELECT {_KEYS}, sum(lifetimes) AS lifetimes, sum(lifetimes * pod) AS pods,
  sum(estimated) AS estimated, sum(seconds * pod) AS seconds, {amounts},
  COALESCE(sum(idle), 0) AS idle_micro_ipu_seconds, {money} AS cost
FROM ({shapes}) AS shapes
GROUP BY 1, 2, 3, 4, 5, 6, 7
ORDER BY namespace COLLATE "C", "group" COLLATE "C", "user" COLLATE "C", component COLLATE "C",
  instance_type COLLATE "C", user_verified, running"""  # noqa: S608  # likewise


def _shapes(lifetimes: str, name: str, cost: CostSql) -> str:
    """Return the SELECT that adds up lifetimes by what the rows, or else the prices, tell apart."""
    shape, sums = f"{_KEYS}, pod", ["sum(idle) AS idle"]
    if cost.segments:
        shape = ", ".join([shape, *_AMOUNTS, *cost.sizes])
        sums += [
            f"sum({cost.seconds_in(n)}) AS {column}"
            for n, column in enumerate(cost.parted)
            if column != "seconds"
        ]
    else:
        sums += [f"{_product_sum(amount)} AS {column}" for amount, column in _AMOUNTS.items()]
    return f"""
SELECT {shape}, count(*) AS lifetimes, count(*) FILTER (WHERE estimated) AS estimated,
  sum(seconds) AS seconds, {", ".join(sums)}
FROM (SELECT *, going_on AND %(is_open)s AS running FROM ({lifetimes}) AS {name}) AS rows
GROUP BY {shape}"""  # noqa: S608  # likewise


def details_sql(profile: Profile, covers: Range) -> str:
    """Return the SELECT of a range's lifetimes; parameters of `covers`.

    Lines are in order of start, group, user and uid; what was carried into the range begins with
    it and comes first.
    """
    cost = covers.cost if profile.has_cost else CostSql()
    parts = [(_columns(_POD_COLUMNS, cost.counts), part) for part in POD_PARTS]
    if profile.with_partitions:
        held = _columns(f"{_PARTITION_COLUMNS}, {idle_sql('held')} AS idle", cost.no_counts)
        parts += [(held, part) for part in PARTITION_PARTS]
    order = 'ORDER BY start, "group", "user", uid'
    # Each part is put in order by itself, the long one from its index: the server merges them.
    source = " UNION ALL ".join(
        f"(SELECT {columns} FROM ({part}) AS held {order})"  # noqa: S608
        for columns, part in parts
    )
    money = rounded_money(cost.line_cost_seconds, DETAIL_DECIMALS)
    cells = _cells(tuple((name, money if sql == "money" else sql) for name, sql in profile.details))
    return f"SELECT {cells} FROM ({source}) AS rows {order}"  # noqa: S608


def summary_sql(profile: Profile) -> str:
    """Return the SELECT of a stored summary.

    Parameters: `report` (its id), `month`, `currency`, `decimals`, of a correction also `number`.
    """
    return _summary(profile, "SELECT * FROM usage_reportrow WHERE report_id = %(report)s")


def range_summary_sql(profile: Profile, covers: Range) -> str:
    """Return the SELECT of the summary of a range that is not stored; parameters of `covers`."""
    rows = rows_sql(covers)
    return _summary(profile, f"SELECT *, row_number() OVER () AS id FROM ({rows}) AS sums")  # noqa: S608


def _summary(profile: Profile, source: str) -> str:
    only_pods = "" if profile.with_partitions else " WHERE pods > 0"
    return (
        f"SELECT {_cells(profile.summary)} FROM ({source}) AS rows{only_pods}"  # noqa: S608
        f" GROUP BY {profile.summary_group} ORDER BY min(id)"
    )


def _cells(columns: Columns) -> str:
    # Prefixed, so that ORDER BY means the column of the table and not the printed cell.
    return ", ".join(f"{sql} AS cell_{name}" for name, sql in columns)
