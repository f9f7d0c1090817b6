"""domain: the rows, sums and files of a report, as SQL.

A report is a pure function of the lifetimes, the range, the zone, the tariff and `generated_at`.
What begins or ends after that instant counts as unknown, so that details read later from the rows
agree with the stored summary. Sums are exact whole numbers until they are printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from usage.rates.pricing import DETAIL_DECIMALS, Tariff
from usage.rates.sql import AMOUNT_SUMS, CostSql, rounded_money
from usage.reports.columns import total_of
from usage.time.windows import (
    IDLE_PIECES,
    PARTITION_PARTS,
    POD_PARTS,
    bounds,
    idle_sql,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from usage.rates.pricing import Segment
    from usage.reports.columns import Columns, Profile


@dataclass(frozen=True, slots=True)
class Range:
    """The range of a report: [first, end), as known at `generated_at`.

    `label` is the first column: a month without its hyphen, or an interval. `segments`: its
    segments if they have different prices; then `tariff` only defines how money is printed.
    `closed`: the closed months in it whose cost comes from their reports, and which cost nothing in
    `segments_beside`.
    """

    label: str
    zone: str
    first: datetime
    end: datetime
    generated_at: datetime
    tariff: Tariff = field(default=Tariff())
    segments: tuple[Segment, ...] | None = None
    segments_beside: tuple[Segment, ...] = ()
    closed: tuple[str, ...] = ()

    @property
    def beside_reports(self) -> Range:
        """The same range at the prices that are added to the lines of reports."""
        return replace(self, segments=self.segments_beside) if self.closed else self

    @property
    def until(self) -> datetime:
        """Return the end of the complete data."""
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
            "closed_months": list(self.closed),
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

_MONEY: Final = re.compile(r"\b(priced|money)\b")
_IN_BYTES: Final = ' COLLATE "C"'
_LINE_KEYS: Final = (
    "namespace",
    '"group"',
    '"user"',
    "user_verified",
    "component",
    "instance_type",
)
_AMOUNTS: Final = (
    *("lifetimes", "pods", "estimated", "seconds", *AMOUNT_SUMS.values()),
    "idle_micro_ipu_seconds",
)
_KEYS: Final = ", ".join((*_LINE_KEYS, "running"))
_OF_PODS: Final = frozenset({"cpu_millicores", "memory_bytes", "gpus", "micro_ipus"})
_OF_PARTITIONS: Final = frozenset({"partition_ipus"})


def _columns(columns: str, more: Sequence[str]) -> str:
    return ", ".join([columns, *more])


def rows_sql(covers: Range) -> str:
    """Return the SELECT of a summary's rows, the columns of ReportRow; parameters of `covers`.

    Each part of the pods is added up by itself, straight from its table: the server then knows from
    the table's statistics (lifetime_whose) how few rows there will be, and may take several
    processes. For a union it would estimate one group for every ten lifetimes and sort on disk. A
    price is multiplied with the sums, never with single lifetimes.
    """
    cost = covers.cost
    # The planner finds no statistics of a column under another collation; groups are the same.
    pods, held = (each.replace(_IN_BYTES, "") for each in (_POD_COLUMNS, _PARTITION_COLUMNS))
    pods, held = _columns(pods, cost.counts), _columns(f"{held}, idle", cost.no_counts)
    shapes = " UNION ALL ".join(
        [_shapes(f"SELECT {pods} FROM ({part}) AS pods", covers, _OF_PODS) for part in POD_PARTS]  # noqa: S608
        + [_shapes(f"SELECT {held} FROM ({IDLE_PIECES}) AS held", covers, _OF_PARTITIONS)]  # noqa: S608
    )
    amounts = ", ".join(f"sum({name}) AS {name}" for name in AMOUNT_SUMS.values())
    money = rounded_money(f"sum({cost.cost_seconds})", covers.tariff.decimals)
    return f"""
SELECT {_KEYS}, sum(lifetimes) AS lifetimes, sum(lifetimes * pod) AS pods,
  sum(estimated) AS estimated, sum(seconds * pod) AS seconds, {amounts},
  COALESCE(sum(idle), 0) AS idle_micro_ipu_seconds,
  CASE WHEN bool_or(priced) THEN {money} END AS cost
FROM ({shapes}) AS shapes
GROUP BY 1, 2, 3, 4, 5, 6, 7
ORDER BY namespace COLLATE "C", "group" COLLATE "C", "user" COLLATE "C", component COLLATE "C",
  instance_type COLLATE "C", user_verified, running"""  # noqa: S608  # likewise


def _shapes(lifetimes: str, covers: Range, held: frozenset[str]) -> str:
    """Return the SELECT that adds up lifetimes, which hold nothing but `held` and accelerators, by
    the key of the rows."""
    cost = covers.cost
    sums = [
        f"{_product_sum(amount, 'seconds', covers) if amount in held else 0}::numeric AS {name}"
        for amount, name in AMOUNT_SUMS.items()
    ]
    for amount, seconds, name in cost.more_sums:
        if amount == "seconds":
            total = f"sum({seconds})"
        elif amount in cost.sizes:
            total = f"sum({amount} * {seconds})" if held is _OF_PODS else "0"
        else:
            total = _product_sum(amount, seconds, covers) if amount in held else "0"
        sums.append(f"{total}::numeric AS {name}")
    return f"""
SELECT {_KEYS}, pod, count(*) AS lifetimes, count(*) FILTER (WHERE estimated) AS estimated,
  sum(seconds) AS seconds, sum(idle) AS idle, bool_or({cost.is_priced}) AS priced, {", ".join(sums)}
FROM (SELECT *, going_on AND %(is_open)s AS running FROM ({lifetimes}) AS pieces) AS rows
GROUP BY {_KEYS}, pod"""  # noqa: S608  # likewise


def _product_sum(amount: str, seconds: str, covers: Range) -> str:
    """Return SQL of the exact sum of amount x seconds, whatever amounts were requested.

    Amounts whose product fits in 64 bits for the whole range are multiplied in 64 bits and added up
    in 128: a fifth of the time of `numeric`, which the rest needs.
    """
    most = (2**63 - 1) // max(1, ceil((covers.until - covers.first).total_seconds()) + 1)
    return (
        f"(COALESCE(sum({amount} * {seconds}) FILTER (WHERE {amount} <= {most}), 0)"
        f" + COALESCE(sum({amount}::numeric * {seconds}) FILTER (WHERE {amount} > {most}), 0))"
    )


def details_queries(profile: Profile, covers: Range) -> tuple[str, ...]:
    """Return the SELECTs of a file of details: the lines, then their totals where the profile has
    them; parameters of `covers`.

    The totals are a query of their own: the first line leaves at once, and no process holds the
    lines of a month to add them up.
    """
    lines = details_sql(profile, covers)
    if not profile.has_total:
        return (lines,)
    total = _cells(total_of(profile.details))
    unsorted = _details(profile, covers, order="")
    return lines, f"SELECT {total} FROM ({unsorted}) AS lines HAVING count(*) > 0"  # noqa: S608


def details_sql(profile: Profile, covers: Range) -> str:
    """Return the SELECT of a range's lifetimes; parameters of `covers`.

    Lines are in order of start, group, user and uid; lifetimes carried into the range begin with it
    and come first.
    """
    return _details(profile, covers, order='ORDER BY start, "group", "user", uid')


def _details(profile: Profile, covers: Range, order: str) -> str:
    cost = covers.cost if profile.has_cost else CostSql()
    parts = [(_columns(_POD_COLUMNS, cost.counts), part) for part in POD_PARTS]
    if profile.with_partitions:
        held = _columns(f"{_PARTITION_COLUMNS}, {idle_sql('held')} AS idle", cost.no_counts)
        parts += [(held, part) for part in PARTITION_PARTS]
    # Each part is put in order by itself, the long part from its index: the server merges them.
    source = " UNION ALL ".join(
        f"(SELECT {columns} FROM ({part}) AS held {order})"  # noqa: S608
        for columns, part in parts
    )
    money = {
        "priced": cost.is_priced,
        "money": rounded_money(cost.line_cost_seconds, DETAIL_DECIMALS),
    }
    cells = _cells(
        tuple((name, _MONEY.sub(lambda m: money[m[0]], sql)) for name, sql in profile.details)
    )
    return f"SELECT {cells} FROM ({source}) AS rows {order}"  # noqa: S608


def summary_sql(profile: Profile, *, total: bool = True) -> str:
    """Return the SELECT of a stored summary, and of the line of totals where the profile has
    totals.

    Parameters: `report` (its id), `month`, `currency`, `decimals`, of a correction also `number`.
    """
    rows = "SELECT * FROM usage_reportrow WHERE report_id = %(report)s"
    return _summary(profile, rows, total=total and profile.has_total)


def range_summary_sql(profile: Profile, covers: Range) -> str:
    """Return the SELECT of the summary of a range that is not stored; parameters of
    `covers.beside_reports`."""
    rows = rows_sql(covers.beside_reports)
    if covers.closed:
        rows = _with_reports(rows)
    numbered = f"SELECT *, row_number() OVER () AS id FROM ({rows}) AS sums"  # noqa: S608
    return _summary(profile, numbered, total=profile.has_total)


def _with_reports(rows: str) -> str:
    """Return the rows with the cost of closed months added from the lines of their reports and
    corrections, each rounded there.

    Lines of reports never go on; they are added to the row of their kind that does not, if any.
    A line of which no lifetime is left stands alone.
    """
    shared = ", ".join(_LINE_KEYS)
    zeros = ", ".join(f"COALESCE(found.{name}, 0) AS {name}" for name in _AMOUNTS)
    order = ", ".join(f'{name} COLLATE "C"' for name in _LINE_KEYS if name != "user_verified")
    return f"""
SELECT {shared}, COALESCE(running, false) AS running, {zeros},
  COALESCE(found.cost + lines.cost, found.cost, lines.cost) AS cost
FROM (SELECT *, row_number() OVER (PARTITION BY {shared} ORDER BY running) AS place
  FROM ({rows}) AS sums) AS found
FULL JOIN (SELECT {shared}, 1 AS place, sum(line.cost) AS cost FROM usage_reportrow AS line
  JOIN usage_monthreport AS report ON report.id = line.report_id
  WHERE report.state IN ('closed', 'correction') AND report.month = ANY(%(closed_months)s::text[])
  GROUP BY {shared}) AS lines USING ({shared}, place)
WHERE found.place IS NOT NULL OR lines.cost <> 0
ORDER BY {order}, user_verified, running"""  # noqa: S608  # likewise


def _summary(profile: Profile, source: str, *, total: bool) -> str:
    only_pods = "" if profile.with_partitions else " WHERE pods > 0"
    lines = f"FROM ({source}) AS rows{only_pods} GROUP BY {profile.summary_group}"
    if not total:
        return f"SELECT {_cells(profile.summary)} {lines} ORDER BY min(id)"
    names = ", ".join(f"cell_{name}" for name, _ in profile.summary)
    return (
        f"WITH lines AS (SELECT min(id) AS place, {_cells(profile.summary)} {lines})"  # noqa: S608
        f" SELECT {names} FROM (SELECT place, {names} FROM lines"
        f" UNION ALL SELECT NULL, {_cells(total_of(profile.summary))} FROM lines"
        " HAVING count(*) > 0) AS shown ORDER BY place NULLS LAST"
    )


def _cells(columns: Columns) -> str:
    # Prefixed, so that ORDER BY means the column of the table and not the printed cell.
    return ", ".join(f"{sql} AS cell_{name}" for name, sql in columns)
