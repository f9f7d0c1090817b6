"""glue: recorded pods, their faults and their cost, limited to what the user may see.

Users who see no rates see no cost.
"""

from __future__ import annotations

import dataclasses
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

from django.db.models import Min

from ipuhub.models import RecordFault, WatchGap
from ipuhub.web.access import sees_cost
from ipuhub.web.exports import CHUNK_ROWS
from ipuhub.web.filters import BadFilter
from ipuhub.web.readings import Shared
from usage.models import PodLifetime
from usage.rates.linecosts import EVER, PODS, read_line_costs
from usage.sums.columns import JOB
from usage.sums.compare import Line
from usage.sums.measures import dimensions
from usage.sums.queries import Question, SumRow, all_sums
from usage.time.months import usage_zone
from usage.time.ranges import read_window
from usage.time.windows import Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from django.db.models import QuerySet

    from ipuhub.web.access import Scope

USED_WITHIN: Final = "30d"
_NAMED: Final = ("namespace", "group", "user")
_Row = TypeVar("_Row", SumRow, Line)


def visible_lifetimes(scope: Scope) -> QuerySet[PodLifetime]:
    """Return the pods that may be shown, scheduled or not."""
    rows = PodLifetime.objects.all()
    return rows if scope.namespaces is None else rows.filter(namespace__in=scope.namespaces)


def job_names(uids: Sequence[str]) -> dict[str | tuple[str, ...] | None, str]:
    """Return the names of jobs by UID, as their pods carry them."""
    rows = PodLifetime.objects.filter(job_uid__in=uids).exclude(job_uid="")
    return dict(rows.order_by().values_list("job_uid", "component_name").distinct())


@dataclasses.dataclass(frozen=True, slots=True)
class Owners:
    """The names of the namespaces, groups and users with usage in `USED_WITHIN`, in this order.

    `problem`: why they are not known; empty: they are.
    """

    names: tuple[frozenset[str], ...] = ()
    problem: str = ""


# For all searches of the readers of one scope, which would add up 30 days each.
_OWNERS: Final[Shared[frozenset[str] | None, Owners]] = Shared(seconds=300)


def names_used(
    scope: Scope, text: str, most: int, now: datetime
) -> tuple[list[tuple[str, str]], str]:
    """Return kind and name of the namespaces, groups and users with usage in `USED_WITHIN` that
    have the text in their names, at most so many of a kind, the exact one first; and why they are
    not known, if so."""
    owners = _OWNERS.get(scope.namespaces, now, lambda: _read_owners(scope, now))
    found = [
        (kind, name)
        for kind, names in zip(_NAMED, owners.names, strict=False)
        for name in _like(text, names, most)
    ]
    return found, owners.problem


def _read_owners(scope: Scope, now: datetime) -> Owners:
    window = Window.of(*read_window(USED_WITHIN, now, usage_zone()), now)
    question = Question(scope, window, usage_zone(), dimensions(_NAMED, ()))
    try:
        keys = {row.key for row in all_sums(question, [window.begin], "micro_ipu_seconds")}
    except BadFilter as error:  # raw rows are purged, or take too long to add up
        # Without the remedies, which are for questions that a reader can change.
        return Owners(problem=f"{error.messages[0].partition('. ')[0].rstrip('.')}.")
    return Owners(tuple(frozenset(key[place] for key in keys) for place in range(len(_NAMED))))


def _like(text: str, names: Iterable[str], most: int) -> list[str]:
    found = [name for name in names if name and text.lower() in name.lower()]
    return sorted(found, key=lambda name: (name != text, name))[:most]


@dataclasses.dataclass(frozen=True, slots=True)
class JobPlace:
    """The namespace of a job, and when its first pod was created."""

    namespace: str
    created_at: datetime


def job_places(uids: Sequence[str]) -> dict[str, JobPlace]:
    """Return by UID the places that distinguish jobs of one name, as their pods carry them."""
    rows = PodLifetime.objects.filter(job_uid__in=uids).exclude(job_uid="").order_by()
    found = rows.values_list("job_uid").annotate(Min("namespace"), Min("created_at"))
    return {uid: JobPlace(namespace, at) for uid, namespace, at in found}


def with_job_names(by: Sequence[str], rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield rows of sums by these dimensions with the names of their jobs, if jobs are among
    them."""
    if JOB not in by:
        yield from rows
        return
    place, waiting = by.index(JOB), iter(rows)
    while chunk := list(islice(waiting, CHUNK_ROWS)):
        names = job_names([row.key[place] for row in chunk])
        for row in chunk:
            yield dataclasses.replace(row, name=names.get(row.key[place], ""))


def add_pod_costs(
    scope: Scope, filters: Mapping[str, datetime | None], rows: Sequence[PodLifetime], now: datetime
) -> None:
    """Set `cost` of rows if the user may see it.

    It is the cost of their part of the requested range (`asked`, by `from` and `to`); without a
    range, of their whole duration. Running pods count up to `now`.
    """
    if not sees_cost(scope):
        return
    first, until = filters.get("from") or EVER, min(filters.get("to") or now, now)
    costs = read_line_costs(PODS, rows, first, until, usage_zone())
    for row in rows:
        row.cost = costs.get(row.pk)


def faults(scope: Scope) -> QuerySet[RecordFault]:
    """Return faults of the recorders; only users who see all reports see any."""
    return RecordFault.objects.all() if scope.sees_reports else RecordFault.objects.none()


def gaps(_scope: Scope) -> QuerySet[WatchGap]:
    """Return gaps of watches; they contain no namespace, so every user may see them."""
    return WatchGap.objects.all()


# Seconds as in usage/time/windows.py: both ends are cut to the second. The sums are over all
# rows, those beyond the LIMIT too, so that one query gives both.
_SECONDS: Final = (
    "(floor(extract(epoch FROM greatest(scheduled_at,"
    " least(coalesce(finished_at, %(now)s), %(now)s))))"
    " - floor(extract(epoch FROM scheduled_at)))"
)
_OF_JOB: Final = f"""
SELECT *, count(*) OVER () AS total, min(scheduled_at) OVER () AS began,
  coalesce(sum(micro_ipus * {_SECONDS}) OVER (), 0) AS ipu_sum,
  coalesce(sum(cpu_millicores * {_SECONDS}) OVER (), 0) AS cpu_sum,
  coalesce(sum(memory_bytes * {_SECONDS}) OVER (), 0) AS memory_sum,
  bool_and(coalesce(greatest(scheduled_at, finished_at) <= %(now)s AND finished_at IS NOT NULL,
    false)) OVER () AS all_over
FROM usage_podlifetime WHERE job_uid = %(uid)s AND namespace = %(namespace)s AND job_uid <> ''
ORDER BY created_at DESC, id DESC LIMIT %(limit)s
"""  # noqa: S608  # no value of a request in it


def pods_of_job(
    uid: str, namespace: str, now: datetime, limit: int | None
) -> Sequence[PodLifetime]:
    """Return the newest `limit` pods of a job (None: all), oldest first; each has `total`, `began`
    and the sums `ipu_sum`, `cpu_sum` and `memory_sum` of all of them up to `now`, and whether they
    are `all_over`."""
    values = {"uid": uid, "namespace": namespace, "now": now, "limit": limit}
    return list(PodLifetime.objects.raw(_OF_JOB, values))[::-1]
