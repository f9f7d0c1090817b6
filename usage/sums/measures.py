"""domain: the measures of usage, exact as whole numbers and printed in hours, and its dimensions.

Sums are resource x whole seconds. Hours have five decimals, as in the month's CSV; GiB = 2**30.
Hours of pods and hours of partitions are separate measures: the IPUs of a pod are the IPUs of a
partition, so a sum of both would count them twice.

Dimensions are declared once for page, API and SQL. A partition has no annotation. As in the files
of month reports, its component is `partition`, its component name the job's name, its instance type
`ipu-<size>`, as on the job's pods. It has no node and no labels: these values are empty.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from ipuhub.text import is_label_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

TOTAL: Final = "total"
"""The first cell of a file's line of totals, which is the last line."""
HOUR: Final = 3600
GIB: Final = 2**30
COST_UNIT: Final = 10**36
"""Parts of a currency in which cost is exact: a price has 6 decimals, a byte of a GiB 30 more."""


def hours(amount: int, unit: int = 1) -> Decimal:
    """Return `amount` unit-seconds in hours with five decimals."""
    quotient, remainder = divmod(amount * 10**5, unit * HOUR)
    rounded = quotient + (2 * remainder >= unit * HOUR)
    return Decimal(f"{rounded}e-5")  # from text: exact, whatever the context's precision


@dataclass(frozen=True, slots=True)
class Measures:
    """Sums over some pods and partitions.

    `pods` and `partitions` count lifetimes. `cost` is money x 3600 x COST_UNIT; None if nothing had
    a price at the time.
    """

    pods: int = 0
    seconds: int = 0
    estimated_seconds: int = 0
    unverified_seconds: int = 0
    millicore_seconds: int = 0
    byte_seconds: int = 0
    gpu_seconds: int = 0
    micro_ipu_seconds: int = 0
    partitions: int = 0
    partition_ipu_seconds: int = 0
    cost: int | None = 0

    def __add__(self, other: Measures) -> Measures:
        """Return both together."""
        held = (getattr(self, n) + getattr(other, n) for n in NAMES[:-1])
        costs = [each.cost for each in (self, other) if each.cost is not None]
        return replace(Measures(*held), cost=sum(costs) if costs else None)

    def rank(self, name: str) -> int:
        """Return the sum by which rows are ordered: no cost counts as 0."""
        amount: int | None = getattr(self, name)
        return amount or 0

    @property
    def estimated_percent(self) -> Decimal:
        """The share of pod time that rests on an estimated end, in percent, one decimal."""
        return _percent(self.estimated_seconds, self.seconds)

    @property
    def unverified_percent(self) -> Decimal:
        """The share of pod time whose user is unverified, in percent, one decimal."""
        return _percent(self.unverified_seconds, self.seconds)


NAMES: Final = tuple(field.name for field in fields(Measures))
POD_SUMS: Final = NAMES[1:8]
"""The sums over pods, under the names that the rollup's columns have too."""
LEVELS: Final = {
    "seconds": "going_pods",
    "estimated_seconds": "going_estimated",
    "unverified_seconds": "going_unverified",
    "millicore_seconds": "going_millicores",
    "byte_seconds": "going_bytes",
    "gpu_seconds": "going_gpus",
    "micro_ipu_seconds": "going_micro_ipus",
}
"""The column of hour sums that tells how much of each sum a second holds as the hour ends."""


@dataclass(frozen=True, slots=True)
class Output:
    """A printed sum: its name in files, its label, and the exact sum with its unit."""

    name: str
    label: str
    amount: str
    unit: int

    @property
    def noun(self) -> str:
        """The label within a sentence."""
        is_acronym = self.label[:2].isupper()
        return self.label if is_acronym else f"{self.label[0].lower()}{self.label[1:]}"

    def hours(self, amount: int) -> Decimal:
        """Return an exact sum in hours."""
        return hours(amount, self.unit)

    def of(self, measures: Measures) -> Decimal:
        """Return it of `measures`, in hours."""
        return self.hours(getattr(measures, self.amount))


_OUTPUTS: Final = (
    Output("ipu_hours", "Pod IPU-hours", "micro_ipu_seconds", 10**6),
    Output("partition_ipu_hours", "Partition IPU-hours", "partition_ipu_seconds", 1),
    Output("cpu_core_hours", "CPU core-hours", "millicore_seconds", 1000),
    Output("memory_gib_hours", "Memory GiB-hours", "byte_seconds", GIB),
    Output("gpu_hours", "GPU-hours", "gpu_seconds", 1),
    Output("pod_hours", "Pod-hours", "seconds", 1),
)
OUTPUTS: Final = {output.name: output for output in _OUTPUTS}
"""In the order of tables and files."""
COST: Final = Output("cost", "Cost", "cost", COST_UNIT)
"""The measure after them for users who may see it; its hours are money, for charts only: money
that is shown is rounded by usage/rates/pricing.py."""


def total(rows: Iterable[Measures]) -> Measures:
    """Return all of them together."""
    first, *others = [*rows] or [Measures()]
    return sum(others, first)


def _percent(part: int, whole: int) -> Decimal:
    share = Decimal(100 * part) / whole if whole else Decimal(0)
    return share.quantize(Decimal("0.1"), ROUND_HALF_UP)


def spell_change(now: int | Decimal, old: int | Decimal) -> str:
    """Return a change in words: `+12 %`, `−3 %`, `×14`, `new`, `±0 %`; a dash for nothing."""
    if not old:
        return "new" if now else "–"
    if now > 10 * old:
        return f"×{now // old:,}"
    percent = int((Decimal(100 * (now - old)) / old).quantize(Decimal(1), ROUND_HALF_UP))
    if percent:
        return f"+{percent} %" if percent > 0 else f"−{-percent} %"
    return "±0 %" if now == old else "< 1 %"


LABEL: Final = "label:"
"""Prefix of the key of a pod label: `label:app.kubernetes.io/part-of`."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """A name in URLs, a label, and the column of its value; `rolled`: daily totals have it."""

    name: str
    label: str
    pods: str
    partitions: str
    rolled: bool = True


_ALL: Final = (
    Dimension("namespace", "Namespace", "namespace", "namespace"),
    Dimension("group", "Group", '"group"', '"group"'),
    Dimension("user", "User", '"user"', '"user"'),
    Dimension("component", "Component", "component", "'partition'::text"),
    Dimension("component_name", "Component name", "component_name", "job_name", rolled=False),
    Dimension("instance_type", "Instance type", "instance_type", "'ipu-' || size"),
    Dimension("job", "Job", "job_uid", "job_uid", rolled=False),
    Dimension("node", "Node", "node", "''::text", rolled=False),
)
DIMENSIONS: Final = {dimension.name: dimension for dimension in _ALL}


class UnknownDimensionError(ValueError):
    """Usage cannot be grouped like this; the message lists the dimensions."""


def dimension(name: str, labels: Collection[str] = ()) -> Dimension:
    """Return the dimension called `name`; `labels`: keys of the pod labels that are recorded.

    Raises UnknownDimensionError.
    """
    found = DIMENSIONS.get(name)
    if found is not None:
        return found
    key = name.removeprefix(LABEL)
    if key != name and key in labels and is_label_key(key):  # a checked key is safe in SQL
        return Dimension(name, f"Label {key}", _label_sql(key), "''::text", rolled=False)
    known = ", ".join([*DIMENSIONS, *(f"{LABEL}{each}" for each in labels)])
    also = "" if key == name else " Only labels named in USAGE_LABELS are recorded."
    raise UnknownDimensionError(
        f"{name[:80]!r} is not a dimension. Valid dimensions: {known}.{also}"
    )


def dimensions(names: Sequence[str], labels: Collection[str] = ()) -> tuple[Dimension, ...]:
    """Return several, each at most once. Raises UnknownDimensionError."""
    if len(set(names)) < len(names):
        raise UnknownDimensionError("specify each dimension only once.")
    return tuple(dimension(name, labels) for name in names)


def _label_sql(key: str) -> str:
    return f"COALESCE(labels ->> '{key}', '')"


def accelerator_columns(names: Sequence[str]) -> list[str]:
    """Return the columns of how many of each named accelerator are held: `acc_0`, ..."""
    return [f"acc_{n}" for n, _ in enumerate(names)]


def accelerator_counts(names: Sequence[str]) -> list[str]:
    """Return SQL of these columns, of a pod's row."""
    return [
        f"COALESCE((accelerators ->> %(accelerator_{n})s)::numeric, 0) AS {column}"
        for n, column in enumerate(accelerator_columns(names))
    ]


def accelerator_parameters(names: Sequence[str]) -> dict[str, str]:
    """Return the query parameters of the counts."""
    return {f"accelerator_{n}": name for n, name in enumerate(names)}
