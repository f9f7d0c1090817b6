"""io: what the overview reads of history: ended jobs, how fresh the records are, faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ipuhub.models import RecordFault, WatchCheckpoint
from jobs.models import JobRecord

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from django.db.models import QuerySet

    from ipuhub.web.access import Scope

_COUNTED_TO: Final = 1000


@dataclass(frozen=True, slots=True)
class Freshness:
    """`complete_until`: all recorders have committed what happened before; None: not all have.

    `recorders` names the watches with a checkpoint; without any, nothing was ever recorded.
    """

    recorders: tuple[str, ...]
    complete_until: dt.datetime | None


def read_freshness() -> Freshness:
    """How far the history goes."""
    found = list(WatchCheckpoint.objects.order_by("name").values_list("name", "position_at"))
    positions = [position for _, position in found if position is not None]
    whole = bool(found) and len(positions) == len(found)
    return Freshness(tuple(name for name, _ in found), min(positions) if whole else None)


def ended_jobs(scope: Scope, limit: int) -> Sequence[JobRecord]:
    """The jobs that ended last, within `scope`."""
    ended = _visible_jobs(scope).filter(completed_at__isnull=False)
    return list(ended.defer("spec", "conditions", "labels").order_by("-completed_at")[:limit])


def unfinished_jobs(scope: Scope, limit: int) -> Sequence[JobRecord]:
    """The newest jobs that were last seen without an end, within `scope`."""
    alive = _visible_jobs(scope).filter(completed_at=None, deleted_at=None)
    return list(alive.defer("spec", "conditions", "labels").order_by("-created_at")[:limit])


def count_faults() -> int:
    """How many faults the recorders keep, at most 1000: beyond, nobody counts."""
    return RecordFault.objects.order_by()[:_COUNTED_TO].count()


def _visible_jobs(scope: Scope) -> QuerySet[JobRecord]:
    if scope.namespaces is None:
        return JobRecord.objects.all()
    return JobRecord.objects.filter(namespace__in=sorted(scope.namespaces))
