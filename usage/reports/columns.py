"""domain: the columns of report files and the SQL that prints each, for both profiles.

The SQL refers to the columns of the rows in usage/reports/monthly.py; in a summary, to the columns
of ReportRow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ipuhub.text import inert_cell_sql, safe_cell_sql
from usage.sums.measures import TOTAL

Columns = tuple[tuple[str, str], ...]
"""Names with the SQL of their cells."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A form of the two files."""

    name: str
    summary: Columns
    details: Columns
    with_partitions: bool
    summary_group: str = ""

    @property
    def has_cost(self) -> bool:
        """Return whether its files have columns of cost."""
        return any(name == "cost" for name, _ in self.summary)

    @property
    def has_total(self) -> bool:
        """Return whether its files end with a line of totals; PrimeHub's do not."""
        return self.has_cost


def _hours(amount: str, unit: int) -> str:
    """Return SQL that prints `amount` (a whole number of unit-seconds) in unit-hours."""
    return f"round({amount} / {unit * 3600}.0, 5)"


def _product(resource: str, unit: int) -> str:
    return _hours(f"{resource}::numeric * seconds", unit)


def _yes(condition: str) -> str:
    return f"CASE WHEN {condition} THEN 'Y' ELSE 'N' END"


def _utc(instant: str) -> str:
    return f"""to_char({instant} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')"""


def _local(instant: str) -> str:
    return f"to_char({instant} AT TIME ZONE %(zone)s, 'YYYY-MM-DD HH24:MI:SS')"


_GIB: Final = 2**30
_NAMESPACE: Final = ("namespace", safe_cell_sql("namespace"))
_WHO: Final = (("group", safe_cell_sql('"group"')), ("user", safe_cell_sql('"user"')))
_COMPONENT: Final = ("component", safe_cell_sql("component"))
_MONTH: Final = ("report_month", "%(month)s")
_GOING_ON: Final = _yes("going_on AND %(is_open)s")
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
_THEIR_WHO: Final = (("group", inert_cell_sql('"group"')), ("user", inert_cell_sql('"user"')))
_THEIR_COMPONENT: Final = ("component", inert_cell_sql("component"))
_SUMS: Final = (
    ("gpu_core_hours", _hours("sum(gpu_seconds)", 1)),
    ("cpu_core_hours", _hours("sum(millicore_seconds)", 1000)),
    ("gb_memory_hours", _hours("sum(byte_seconds)", _GIB)),
)
_IPU_SUMS: Final = (
    ("ipu_hours", _hours("sum(micro_ipu_seconds)", 1_000_000)),
    ("partition_ipu_hours", _hours("sum(partition_ipu_seconds)", 1)),
    ("idle_ipu_hours", _hours("sum(idle_micro_ipu_seconds)", 1_000_000)),
)
_SUMMARY: Final = (
    _NAMESPACE,
    *_WHO,
    ("user_verified", _yes("user_verified")),
    _COMPONENT,
    ("instance_type", safe_cell_sql("instance_type")),
    *_SUMS,
    *_IPU_SUMS,
    ("usage_hours", _hours("sum(seconds)", 1)),
    ("pods", "sum(pods)"),
    ("estimated", "sum(estimated)"),
    ("running", _yes("running")),
    ("cost", "round(sum(cost), %(decimals)s)"),
    ("currency", "CASE WHEN count(cost) > 0 THEN %(currency)s END"),
)

DEFAULT: Final = Profile(
    name="default",
    summary=(_MONTH, *_SUMMARY),
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
        ("idle_ipu_hours", _hours("COALESCE(idle, 0)", 1_000_000)),
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
        ("cost", "CASE WHEN priced THEN money END"),
        ("currency", "CASE WHEN priced THEN %(currency)s END"),
    ),
    with_partitions=True,
)
"""Every fact; times in UTC; partitions in lines of their own."""

PRIMEHUB: Final = Profile(
    name="primehub",
    summary=(
        _MONTH,
        *_THEIR_WHO,
        _THEIR_COMPONENT,
        *_SUMS,
        ("usage_hours", _hours("sum(seconds)", 1)),
        ("running", _yes("bool_or(running)")),
    ),
    summary_group='"group", "user", instance_type, component',
    details=(
        _MONTH,
        *_THEIR_WHO,
        _THEIR_COMPONENT,
        ("component_name", inert_cell_sql("component_name")),
        _CPU,
        _GPU,
        _MEMORY,
        ("usage_hours", _hours("seconds", 1)),
        ("instance_type", inert_cell_sql("instance_type")),
        *_SIZES,
        ("pod_name", inert_cell_sql("pod_name")),
        ("k8s_uid", inert_cell_sql("uid")),
        ("start_time", _local("start")),
        ("end_time", _local("stop")),
        ("running", _GOING_ON),
    ),
    with_partitions=False,
)
"""PrimeHub Usage's own files: header, order, number format; times of the report's zone."""

PROFILES: Final = {profile.name: profile for profile in (DEFAULT, PRIMEHUB)}

CORRECTION: Final = Profile(
    name="correction",
    summary=(_MONTH, ("correction", "%(number)s"), *_SUMMARY),
    summary_group=DEFAULT.summary_group,
    details=(),
    with_partitions=True,
)
"""The differences that a correction makes: lines of a summary, each number more or less than it."""

YES_OR_NO: Final = frozenset({"user_verified", "running"})
"""Columns of Y and N in every file; `estimated` is such a column in details, a number in
summaries."""

NUMBERS: Final = frozenset(
    {
        *("cpu_core_hours", "gpu_core_hours", "gb_memory_hours", "ipu_hours", "usage_hours"),
        *("partition_ipu_hours", "idle_ipu_hours", "pods", "estimated", "cost", "correction"),
        *("instance_cpu_core", "instance_gpu_core", "instance_memory_gb", "instance_ipus"),
        *("seconds", "uncertainty_seconds"),
    }
)
"""Columns of numbers; `estimated` of the details is Y or N."""


_SUMMED: Final = NUMBERS - {"correction"}
_SUMMED_OF_DETAILS: Final = frozenset(
    {name for name in NUMBERS if name.endswith("_hours")} | {"seconds", "cost"}
)
"""Of a lifetime, neither its size nor its largest error adds up, and `estimated` is Y or N."""


def total_of(columns: Columns) -> Columns:
    """Return the line of totals: the sums of the printed cells `cell_<name>`."""
    first, *others = (name for name, _ in columns)
    summed = _SUMMED_OF_DETAILS if "seconds" in others else _SUMMED
    cells = [(first, f"'{TOTAL}'")]
    for name in others:
        if name in summed:
            cells.append((name, f"sum(cell_{name})"))
        else:
            cells.append((name, "max(cell_currency)" if name == "currency" else "NULL"))
    return tuple(cells)


def header(columns: Columns) -> str:
    """Return the first line of a file."""
    return ",".join(name for name, _ in columns) + "\n"
