"""io: reads recorded partitions and controllers, limited to what the user may see."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from partitions.models import CapacityChange, PartitionLifetime

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from django.db.models import QuerySet

    from ipuhub.web.access import Scope

# One index probe for each controller, however long its history is.
_NEWEST_OF_EACH = """
WITH RECURSIVE newest AS (
    (SELECT * FROM partitions_capacitychange ORDER BY controller DESC, at DESC LIMIT 1)
    UNION ALL
    SELECT below.* FROM newest, LATERAL (
        SELECT * FROM partitions_capacitychange AS earlier
        WHERE earlier.controller < newest.controller
        ORDER BY earlier.controller DESC, earlier.at DESC LIMIT 1
    ) AS below
)
SELECT * FROM newest ORDER BY controller
"""


@dataclass(frozen=True, slots=True)
class ControllerCapacity:
    """The IPUs of one V-IPU controller since `at`; `reachable`: it answered then."""

    controller: str
    at: datetime
    total: int
    used: int
    free: int
    cordoned: int
    faulty: int
    reachable: bool


def visible_partitions(scope: Scope) -> QuerySet[PartitionLifetime]:
    """All holdings of partitions that `scope` covers, in no order."""
    if scope.namespaces is None:
        return PartitionLifetime.objects.all()
    return PartitionLifetime.objects.filter(namespace__in=sorted(scope.namespaces))


def capacity_now() -> Sequence[ControllerCapacity]:
    """The newest recorded capacity of each controller, by name; a controller that was taken off the
    list has none any more."""
    newest = CapacityChange.objects.raw(_NEWEST_OF_EACH)
    return [_capacity(change) for change in newest if change.total or change.reachable]


def _capacity(change: CapacityChange) -> ControllerCapacity:
    used = change.total - change.free - change.cordoned - change.faulty
    return ControllerCapacity(
        controller=change.controller,
        at=change.at,
        total=change.total,
        used=max(0, used),
        free=change.free,
        cordoned=change.cordoned,
        faulty=change.faulty,
        reachable=change.reachable,
    )


# What was held since a time on a machine, in disjoint parts: what began at most a day before, what
# is still held, and what lasted longer than a day. Each has an index of its own; as one condition,
# read newest first, a machine that held little would cost a walk through the whole history.
_HERE: Final = """
controller = %(controller)s AND machines @> %(place)s::jsonb
AND (%(namespaces)s::text[] IS NULL OR namespace = ANY(%(namespaces)s::text[]))
"""
_ON_MACHINE: Final = f"""
SELECT * FROM (
    SELECT * FROM partitions_partitionlifetime
    WHERE reserved_at > %(day_before)s AND (released_at IS NULL OR released_at > %(since)s)
    AND {_HERE}
    UNION ALL
    SELECT * FROM partitions_partitionlifetime
    WHERE released_at IS NULL AND reserved_at <= %(day_before)s AND {_HERE}
    UNION ALL
    SELECT * FROM partitions_partitionlifetime
    WHERE released_at - reserved_at > interval '1 day' AND reserved_at <= %(day_before)s
    AND tstzrange(reserved_at, GREATEST(released_at, reserved_at), '()') @> %(since)s::timestamptz
    AND {_HERE}
) AS held ORDER BY reserved_at DESC, id DESC LIMIT %(limit)s
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class MachinePlace:
    """An IPU-Machine, or the IPU of it at a position of its IPU-Link domain."""

    controller: str
    machine: str
    position: int | None = None


def partitions_on(
    scope: Scope, place: MachinePlace, since: datetime, limit: int
) -> Sequence[PartitionLifetime]:
    """Return the newest `limit` visible partitions that stood on a place and were held after
    `since`, newest first."""
    positions = [] if place.position is None else [place.position]
    values = {
        "controller": place.controller,
        "place": json.dumps({place.machine: positions}),
        "namespaces": None if scope.namespaces is None else sorted(scope.namespaces),
        "since": since,
        "day_before": since - timedelta(days=1),
        "limit": limit,
    }
    return list(PartitionLifetime.objects.raw(_ON_MACHINE, values))


# Both ends are cut to the second, as wherever held time is counted. The sum is over all rows, those
# beyond the LIMIT too, so that one query gives both.
_OF_JOB: Final = """
SELECT *, count(*) OVER () AS total, min(reserved_at) OVER () AS began,
  coalesce(sum(size * (
    floor(extract(epoch FROM greatest(reserved_at, least(coalesce(released_at, %(now)s), %(now)s))))
    - floor(extract(epoch FROM reserved_at)))) OVER (), 0) AS held,
  bool_and(coalesce(greatest(reserved_at, released_at) <= %(now)s AND released_at IS NOT NULL,
    false)) OVER () AS all_over
FROM partitions_partitionlifetime WHERE job_uid = %(uid)s AND namespace = %(namespace)s
ORDER BY reserved_at DESC, id DESC LIMIT %(limit)s
"""


def partitions_of_job(
    uid: str, namespace: str, now: datetime, limit: int | None
) -> Sequence[PartitionLifetime]:
    """Return the newest `limit` holdings of a job (None: all), oldest first; each has `total`,
    `began` and the IPU-seconds `held` of all of them up to `now`, and whether they are
    `all_over`."""
    values = {"uid": uid, "namespace": namespace, "now": now, "limit": limit}
    return list(PartitionLifetime.objects.raw(_OF_JOB, values))[::-1]
