"""Utilization of IPUs, instant by instant from the raw rows: the reference for all sums.

It shares only the names of the sums with the product.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from ipuhub.models import WatchCheckpoint, WatchGap
from partitions.models import CapacityChange, PartitionLifetime
from usage.models import PodLifetime
from usage.utilization.amounts import Utilization

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EVER = datetime(9999, 1, 1, tzinfo=UTC)


def cut(instant: datetime | None) -> datetime:
    """The second in which it lies; none: it is never over."""
    return EVER if instant is None else instant.replace(microsecond=0)


def plain_utilization(edges: Sequence[datetime]) -> dict[str, list[Utilization]]:
    """By controller that had any IPUs, one sum for each step between `edges`, whole seconds."""
    world = _World(edges[-1])
    found = {
        name: [world.sum_of(name, begin, end) for begin, end in pairwise(edges)]
        for name in sorted(world.names)
    }
    return {name: steps for name, steps in found.items() if any(each.capacity for each in steps)}


class _World:
    """All rows, read once."""

    def __init__(self, until: datetime) -> None:
        self.held = [
            one
            for one in PartitionLifetime.objects.all()
            if one.released_at is None or one.released_at > one.reserved_at
        ]
        self.changes = list(CapacityChange.objects.order_by("at"))
        self.pods = list(PodLifetime.objects.exclude(scheduled_at=None))
        self.silent = list(
            WatchGap.objects.filter(watch="capacity").values_list("began_at", "ended_at")
        )
        checkpoint = WatchCheckpoint.objects.filter(
            name="capacity", position_at__isnull=False
        ).first()
        if checkpoint is not None or self.changes:
            last = checkpoint.position_at if checkpoint else self.changes[-1].at
            self.silent.append((last, until))
        self.names = {one.controller for one in (*self.changes, *self.held)}

    def sum_of(self, name: str, begin: datetime, end: datetime) -> Utilization:
        held = [one for one in self.held if one.controller == name]
        changes = [one for one in self.changes if one.controller == name]
        rows: Iterable[tuple[datetime | None, datetime | None]] = [
            *((one.reserved_at, one.released_at) for one in held),
            *((one.at, one.at) for one in changes),
            *((one.scheduled_at, one.finished_at) for one in self.pods),
            *self.silent,
        ]
        cuts = {begin, end} | {cut(each) for row in rows for each in row}
        found: Counter[str] = Counter()
        for start, stop in pairwise(sorted(each for each in cuts if begin <= each <= end)):
            seconds = (stop - start) // timedelta(seconds=1)
            for share, ipus in self._at(start, held, changes).items():
                found[share] += ipus * seconds
        return Utilization(**found)

    def _at(
        self, now: datetime, held: list[PartitionLifetime], changes: list[CapacityChange]
    ) -> Counter[str]:
        """The IPUs of each share in the second that begins `now`."""
        mine = [one for one in held if cut(one.reserved_at) <= now < cut(one.released_at)]
        ours = sum(one.size for one in mine)
        heard = [one for one in changes if cut(one.at) <= now]
        capacity = max(heard[-1].total if heard else 0, ours)
        found = Counter(capacity=capacity, reserved=ours, held_idle=ours)
        for one in mine:
            pods = [pod for pod in self.pods if _runs_on(pod, one, now)]
            found["held_idle"] -= one.size if pods else 0
            found["pod_micro"] += sum(p.micro_ipus for p in pods if p.partition == one.partition)
        silent = any(cut(began) <= now < cut(ended) for began, ended in self.silent)
        if silent or (heard and not heard[-1].reachable):
            found["unknown"] = capacity - ours
            return found
        down, others = _disagreement(held, heard)
        found["down"] = min(down, capacity - ours)
        found["by_others"] = min(others, capacity - ours - found["down"])
        found["reserved"] += found["by_others"]
        found["idle"] = capacity - found["reserved"] - found["down"]
        return found


def _disagreement(held: list[PartitionLifetime], heard: list[CapacityChange]) -> tuple[int, int]:
    """IPUs that are down, and in use by others, as the last state told them at its instant."""
    if not heard:
        return 0, 0
    last = heard[-1]
    then = sum(
        one.size
        for one in held
        if one.reserved_at <= last.at and (one.released_at is None or one.released_at > last.at)
    )
    gone = last.cordoned + last.faulty
    return min(gone, max(0, last.total - last.free - then)), max(
        0, last.total - last.free - gone - then
    )


def _runs_on(pod: PodLifetime, held: PartitionLifetime, now: datetime) -> bool:
    same = (pod.job_uid, pod.namespace) == (held.job_uid, held.namespace) and pod.job_uid != ""
    return (
        same
        and pod.partition in {held.partition, ""}
        and cut(pod.scheduled_at) <= now < cut(pod.finished_at)
    )
