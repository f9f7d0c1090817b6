"""domain: what a month's report says: its rows, sums and files, as SQL.

A report is a pure function of the lifetimes, the month, the zone and `generated_at`: what begins
or ends after that instant counts as not yet known, so that details which are read later from the
rows agree with the summary that was stored. Sums are exact whole numbers until they are printed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ipuhub.csvsafe import safe_cell_sql
from usage.intervals import PARTITION_PARTS, PARTITION_PIECES, POD_PARTS, POD_PIECES, bounds

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Range:
    """What a report covers: a month of a calendar, as far as it was known at `generated_at`."""

    month: str
    zone: str
    first: datetime
    end: datetime
    generated_at: datetime

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of SUMMARY and of the details."""
        until = min(self.end, self.generated_at)
        return bounds(self.first, until) | {
            "month": self.month.replace("-", ""),
            "zone": self.zone,
            "is_open": until < self.end,
        }


@dataclass(frozen=True, slots=True)
class Profile:
    """One form of the two files: column names with the SQL that prints each."""

    name: str
    summary: tuple[tuple[str, str], ...]
    details: tuple[tuple[str, str], ...]
    with_partitions: bool
    summary_group: str = ""


_POD_COLUMNS: Final = """
1 AS pod, start, stop, going_on, seconds, namespace, "group" COLLATE "C" AS "group",
"user" COLLATE "C" AS "user", user_verified, claim, component, component_name, instance_type,
pod_name, uid COLLATE "C" AS uid, node, job_uid, partition, estimated, uncertainty_seconds,
cpu_millicores, memory_bytes, gpus, micro_ipus, 0::bigint AS partition_ipus"""

_PARTITION_COLUMNS: Final = """
0 AS pod, start, stop, going_on, seconds, namespace, "group" COLLATE "C" AS "group",
"user" COLLATE "C" AS "user", user_verified, 'operator'::text, 'partition'::text, job_name,
'ipu-' || size, ''::text, key COLLATE "C" AS uid, ''::text, job_uid, partition, estimated,
uncertainty_seconds, 0::bigint, 0::bigint, 0::bigint, 0::bigint, size::bigint"""

_LIFETIMES: Final = (
    f"SELECT {_POD_COLUMNS} FROM ({POD_PIECES}) AS pods UNION ALL"  # noqa: S608
    f" SELECT {_PARTITION_COLUMNS} FROM ({PARTITION_PIECES}) AS partitions"
)

SUMMARY: Final = f"""
SELECT namespace, "group", "user", user_verified, component, instance_type, running,
  sum(lifetimes) AS lifetimes, sum(lifetimes * pod) AS pods, sum(estimated) AS estimated,
  sum(seconds * pod) AS seconds, sum(cpu_millicores * seconds) AS millicore_seconds,
  sum(memory_bytes * seconds) AS byte_seconds, sum(gpus * seconds) AS gpu_seconds,
  sum(micro_ipus * seconds) AS micro_ipu_seconds,
  sum(partition_ipus * seconds) AS partition_ipu_seconds
FROM (
  SELECT namespace, "group", "user", user_verified, component, instance_type,
    going_on AND %(is_open)s AS running, pod, cpu_millicores, memory_bytes, gpus, micro_ipus,
    partition_ipus, count(*) AS lifetimes, count(*) FILTER (WHERE estimated) AS estimated,
    sum(seconds) AS seconds
  FROM ({_LIFETIMES}) AS rows
  GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
) AS shapes
GROUP BY 1, 2, 3, 4, 5, 6, 7
ORDER BY namespace COLLATE "C", "group" COLLATE "C", "user" COLLATE "C", component COLLATE "C",
  instance_type COLLATE "C", user_verified, running"""  # noqa: S608  # likewise
"""Rows of ReportRow. Seconds are first added up for each size of pod, in whole numbers, and then
multiplied as `numeric`, which no absurd request can overflow."""


def _hours(amount: str, unit: int) -> str:
    """Return SQL that prints `amount` (a whole number of unit-seconds) in unit-hours."""
    return f"round({amount} / {unit * 3600}.0, 5)"


def _product(resource: str, unit: int) -> str:
    return _hours(f"{resource}::numeric * seconds", unit)


_GIB: Final = 2**30
_NAMESPACE: Final = ("namespace", safe_cell_sql("namespace"))
_WHO: Final = (("group", safe_cell_sql('"group"')), ("user", safe_cell_sql('"user"')))
_COMPONENT: Final = ("component", safe_cell_sql("component"))
_MONTH: Final = ("report_month", "%(month)s")
_GOING_ON: Final = "CASE WHEN going_on AND %(is_open)s THEN 'Y' ELSE 'N' END"


def _yes(condition: str) -> str:
    return f"CASE WHEN {condition} THEN 'Y' ELSE 'N' END"


def _utc(instant: str) -> str:
    return f"""to_char({instant} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')"""


def _local(instant: str) -> str:
    return f"to_char({instant} AT TIME ZONE %(zone)s, 'YYYY-MM-DD HH24:MI:SS')"


_SIZES: Final = (
    ("instance_cpu_core", "round(cpu_millicores / 1000.0, 5)"),
    ("instance_gpu_core", "round(gpus::numeric, 5)"),
    ("instance_memory_gb", f"round(memory_bytes / {_GIB}.0, 5)"),
)
_CPU, _GPU = (
    ("cpu_core_hours", _product("cpu_millicores", 1000)),
    ("gpu_core_hours", _product("gpus", 1)),
)
_MEMORY: Final = ("gb_memory_hours", _product("memory_bytes", _GIB))
_POD: Final = (("pod_name", safe_cell_sql("pod_name")), ("k8s_uid", safe_cell_sql("uid")))
_SUMS: Final = (
    ("gpu_core_hours", _hours("sum(gpu_seconds)", 1)),
    ("cpu_core_hours", _hours("sum(millicore_seconds)", 1000)),
    ("gb_memory_hours", _hours("sum(byte_seconds)", _GIB)),
)

DEFAULT: Final = Profile(
    name="default",
    summary=(
        _MONTH,
        _NAMESPACE,
        *_WHO,
        ("user_verified", _yes("user_verified")),
        _COMPONENT,
        ("instance_type", safe_cell_sql("instance_type")),
        *_SUMS,
        ("ipu_hours", _hours("sum(micro_ipu_seconds)", 1_000_000)),
        ("partition_ipu_hours", _hours("sum(partition_ipu_seconds)", 1)),
        ("usage_hours", _hours("sum(seconds)", 1)),
        ("pods", "sum(pods)"),
        ("estimated", "sum(estimated)"),
        ("running", _yes("running")),
    ),
    summary_group='namespace, "group", "user", user_verified, component, instance_type, running',
    details=(
        _MONTH,
        _NAMESPACE,
        *_WHO,
        ("user_verified", _yes("user_verified")),
        _COMPONENT,
        ("component_name", safe_cell_sql("component_name")),
        _CPU,
        _GPU,
        _MEMORY,
        ("ipu_hours", _product("micro_ipus", 1_000_000)),
        ("partition_ipu_hours", _product("partition_ipus", 1)),
        ("usage_hours", _hours("seconds * pod", 1)),
        ("instance_type", safe_cell_sql("instance_type")),
        *_SIZES,
        ("instance_ipus", "round((micro_ipus + partition_ipus * 1000000) / 1000000.0, 6)"),
        *_POD,
        ("job_uid", safe_cell_sql("job_uid")),
        ("partition", safe_cell_sql("partition")),
        ("node", safe_cell_sql("node")),
        ("claim", safe_cell_sql("claim")),
        ("start_time", _utc("start")),
        ("end_time", _utc("stop")),
        ("seconds", "seconds"),
        ("running", _GOING_ON),
        ("estimated", _yes("estimated")),
        ("uncertainty_seconds", "uncertainty_seconds"),
    ),
    with_partitions=True,
)
"""Every fact; times in UTC; partitions in lines of their own."""

PRIMEHUB: Final = Profile(
    name="primehub",
    summary=(
        _MONTH,
        *_WHO,
        _COMPONENT,
        *_SUMS,
        ("usage_hours", _hours("sum(seconds)", 1)),
        ("running", _yes("bool_or(running)")),
    ),
    summary_group='"group", "user", instance_type, component',
    details=(
        _MONTH,
        *_WHO,
        _COMPONENT,
        ("component_name", safe_cell_sql("component_name")),
        _CPU,
        _GPU,
        _MEMORY,
        ("usage_hours", _hours("seconds", 1)),
        ("instance_type", safe_cell_sql("instance_type")),
        *_SIZES,
        *_POD,
        ("start_time", _local("start")),
        ("end_time", _local("stop")),
        ("running", _GOING_ON),
    ),
    with_partitions=False,
)
"""PrimeHub Usage's own files: header, order, number format; times of the report's zone."""

PROFILES: Final = {profile.name: profile for profile in (DEFAULT, PRIMEHUB)}


def header(columns: tuple[tuple[str, str], ...]) -> str:
    """Return the first line of a file."""
    return ",".join(name for name, _ in columns) + "\n"


def details_sql(profile: Profile) -> str:
    """Return the SELECT of a month's lifetimes; its parameters are a Range's.

    Lines are in order of start, group, user and uid; what was carried into the month begins with
    it and comes first.
    """
    parts = [(_POD_COLUMNS, part) for part in POD_PARTS]
    if profile.with_partitions:
        parts += [(_PARTITION_COLUMNS, part) for part in PARTITION_PARTS]
    order = 'ORDER BY start, "group", "user", uid'
    # Each part is put in order by itself, the long one from its index: the server merges them.
    source = " UNION ALL ".join(
        f"(SELECT {columns} FROM ({part}) AS part {order})"  # noqa: S608
        for columns, part in parts
    )
    cells = ", ".join(f"{sql} AS {name}" for name, sql in _named(profile.details))
    return f"SELECT {cells} FROM ({source}) AS rows {order}"  # noqa: S608


def summary_sql(profile: Profile) -> str:
    """Return the SELECT of a stored summary; parameters `month` and `report` (its id)."""
    cells = ", ".join(f"{sql} AS {name}" for name, sql in _named(profile.summary))
    only_pods = "" if profile.with_partitions else " AND pods > 0"
    return (
        f"SELECT {cells} FROM usage_reportrow WHERE report_id = %(report)s{only_pods}"  # noqa: S608
        f" GROUP BY {profile.summary_group} ORDER BY min(id)"
    )


def _named(columns: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    # Prefixed, so that ORDER BY means the column of the table and not the printed cell.
    return [(f"cell_{name}", sql) for name, sql in columns]
