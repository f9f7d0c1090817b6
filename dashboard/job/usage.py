"""io: usage of a job's pods and partitions so far. A composition root: joins the apps.

Only pods in the job's own namespace count: in another namespace anybody can label a pod with the
job's UID.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from partitions.selectors import partitions_of_job
from usage.rates.linecosts import read_job_cost
from usage.selectors import pods_of_job
from usage.time.months import usage_zone

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from jobs.models import JobRecord
    from partitions.models import PartitionLifetime
    from usage.models import PodLifetime
    from usage.rates.pricing import LineCost, Money

SHOWN = 200


@dataclass(frozen=True, slots=True)
class JobUsage:
    """Whole numbers: amounts times seconds, from `began` (the first allocation) to `until`.

    Partitions are separate from pods, except in `costs`: the cost of both, by currency. `is_over`:
    there are some, and all have ended, so that time alone adds nothing.
    """

    until: datetime
    began: datetime
    pods: int
    ipu_microseconds: int
    cpu_millicore_seconds: int
    memory_byte_seconds: int
    partition_ipu_seconds: int
    costs: tuple[LineCost, ...] = ()
    is_over: bool = False

    @property
    def ipu_hours(self) -> float:
        return self.ipu_microseconds / 1e6 / 3600

    @property
    def cpu_hours(self) -> float:
        return self.cpu_millicore_seconds / 1e3 / 3600

    @property
    def memory_gib_hours(self) -> float:
        return self.memory_byte_seconds / 2**30 / 3600

    @property
    def partition_ipu_hours(self) -> float:
        """IPU-hours for which the job held partitions, from reserved to released."""
        return self.partition_ipu_seconds / 3600

    @property
    def held_hours(self) -> float:
        """IPU-hours that the job took: its pods' IPUs are of its partitions, held before and after
        them."""
        return max(self.ipu_hours, self.partition_ipu_hours)

    @property
    def money(self) -> Money | None:
        """Return their cost; None without a price, or with several currencies."""
        return self.costs[0].money if len(self.costs) == 1 else None


@dataclass(frozen=True, slots=True)
class Held:
    """A job's newest pods and partitions, in the order of their making, and the sums of all."""

    pods: Sequence[PodLifetime]
    partitions: Sequence[PartitionLifetime]
    partition_count: int
    usage: JobUsage


def read_held(
    job: JobRecord, now: datetime, limit: int | None = SHOWN, *, costed: bool = False
) -> Held:
    """Return usage up to `now`, in two queries; at most `limit` pods and partitions (None: all).

    If `costed`, two more queries read the cost of all of them.
    """
    pods = pods_of_job(job.uid, job.namespace, now, limit)
    partitions = partitions_of_job(job.uid, job.namespace, now, limit)
    usage = JobUsage(
        until=now,
        began=min(_began(pods, now), _began(partitions, now)),
        pods=_sum(pods, "total"),
        ipu_microseconds=_sum(pods, "ipu_sum"),
        cpu_millicore_seconds=_sum(pods, "cpu_sum"),
        memory_byte_seconds=_sum(pods, "memory_sum"),
        partition_ipu_seconds=_sum(partitions, "held"),
        is_over=_are_over(pods) and _are_over(partitions) and bool(pods or partitions),
    )
    if costed:
        own = job.uid, job.namespace, usage.began, now
        usage = replace(usage, costs=tuple(read_job_cost(*own, usage_zone())))
    return Held(pods, partitions, _sum(partitions, "total"), usage)


def _began(rows: Sequence[object], now: datetime) -> datetime:
    """Return the earliest beginning, which stands in each row; `now` without rows."""
    found: datetime | None = getattr(rows[0], "began", None) if rows else None
    return min(found or now, now)


def _are_over(rows: Sequence[object]) -> bool:
    """Return whether all have ended, which stands in each row."""
    return not rows or bool(getattr(rows[0], "all_over", False))


def _sum(rows: Sequence[object], name: str) -> int:
    """Return a sum that stands in each row."""
    return int(getattr(rows[0], name)) if rows else 0
