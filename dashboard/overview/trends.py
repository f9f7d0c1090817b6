"""io: IPUs held, IPUs in use and jobs waiting in the last 24 hours, by namespace, group and step.

The data ends with the last complete step of ten minutes and is read at most once a minute, because
each open page polls every three seconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db import connection

from dashboard.overview.heldday import STEP_SECONDS, STEPS, day_before, sum_up
from ipuhub.text import spell_share
from jobs.ipujob.conditions import JobState
from jobs.models import JobRecord
from usage.models import PodLifetime
from usage.time.windows import PARTITION_PIECES, bounds
from usage.utilization.rollups import HELD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from dashboard.overview.heldday import DaySums

_KEPT_SECONDS: Final = 60
_FIRST, _UNTIL = "%(first)s::timestamptz", "%(until)s::timestamptz"
_JOBS: Final = JobRecord._meta.db_table  # noqa: SLF001  # of Django's documented API
_PODS: Final = PodLifetime._meta.db_table  # noqa: SLF001
_ENDED: Final = "coalesce(completed_at, deleted_at)"
_WAITED: Final = f"""
  SELECT namespace, "group", 1 AS size, greatest(created_at, {_FIRST}) AS start,
    least(coalesce(started_at, {_ENDED}, {_UNTIL}), {_UNTIL}) AS stop
  FROM (
    SELECT * FROM {_JOBS} WHERE {_ENDED} > {_FIRST}
    UNION ALL
    SELECT * FROM {_JOBS} WHERE completed_at IS NULL AND deleted_at IS NULL AND status <> %(asleep)s
  ) AS jobs WHERE created_at < {_UNTIL} AND (started_at IS NULL OR started_at > {_FIRST})"""  # noqa: S608  # no value is pasted in
"""A piece for each job from its creation to its start."""
_USED: Final = f"""
  SELECT namespace, "group", size, lower(span) AS start, upper(span) AS stop FROM (
    SELECT held.namespace, held."group", held.size, unnest(range_agg(tstzrange(
      greatest(pod.scheduled_at, held.start), least(pod.finished_at, held.stop)))) AS span
    FROM ({PARTITION_PIECES}) AS held JOIN {_PODS} AS pod
      ON pod.job_uid = held.job_uid AND pod.job_uid <> '' AND pod.namespace = held.namespace
     AND pod.partition IN (held.partition, '')
    WHERE pod.scheduled_at < held.stop AND held.stop > held.start
      AND (pod.finished_at IS NULL OR pod.finished_at > greatest(pod.scheduled_at, held.start))
    GROUP BY held.id, held.namespace, held."group", held.size
  ) AS spans"""  # noqa: S608
"""A piece for each time in which a pod of its job ran on a partition."""


def parts_sql(pieces: str) -> str:
    """Return SQL that adds pieces (namespace, group, size, start, stop) up by the steps in which
    they begin and end: `begins` and `ends` are sizes x seconds since `first`."""
    return f"""
SELECT json_agg(summed) FROM (SELECT namespace, "group",
  least(floor(begin / {STEP_SECONDS}), {STEPS} - 1)::int AS first,
  least(floor("end" / {STEP_SECONDS}), {STEPS} - 1)::int AS last,
  sum(size)::bigint AS ipus, sum(size * begin)::bigint AS begins, sum(size * "end")::bigint AS ends
  FROM (SELECT namespace, "group", size,
    floor(extract(epoch FROM start - {_FIRST}))::bigint AS begin,
    floor(extract(epoch FROM stop - {_FIRST}))::bigint AS "end"
    FROM ({pieces}) AS pieces WHERE stop >= start) AS clipped
  GROUP BY 1, 2, 3, 4) AS summed"""  # noqa: S608


_ALL: Final = ", ".join(f"({parts_sql(each)})" for each in (PARTITION_PIECES, _WAITED, _USED))


@dataclass(frozen=True, slots=True)
class Trends:
    """The last 24 hours: IPUs held, jobs waiting, and IPUs held on which a pod ran.

    `held_share`: the share of the fleet that was held since the `since` that was given, the
    month's begin; empty: no capacity is known.
    """

    held: DaySums
    waiting: DaySums
    used: DaySums
    held_share: str = ""


_kept: list[tuple[datetime, Trends]] = []


def read_trends(
    beside: str, given: Mapping[str, Any], now: datetime
) -> tuple[Trends, Sequence[Any]]:
    """Return the trends, and the single row of the SELECT `beside`, in one query."""
    known = _known(now)
    select, values = (beside, dict(given)) if known else _with_trends(beside, given, now)
    with connection.cursor() as cursor:
        cursor.execute(select, values)
        row = list(cursor.fetchone())
    if known:
        return known, row
    *rest, held, waiting, used, of_capacity = row
    begin = day_before(now)[0]
    trends = Trends(
        held=sum_up(_loaded(held), begin),
        waiting=sum_up(_loaded(waiting), begin),
        used=sum_up(_loaded(used), begin),
        held_share=spell_share(*(_loaded(of_capacity) or (0, 0))),
    )
    _kept[:] = [(now, trends)]
    return _kept[0][1], rest


def _known(now: datetime) -> Trends | None:
    for at, trends in _kept:
        is_young = 0 <= (now - at).total_seconds() < _KEPT_SECONDS
        if is_young and trends.held.begin == day_before(now)[0]:
            return trends
    return None


def _with_trends(
    beside: str, given: Mapping[str, Any], now: datetime
) -> tuple[str, dict[str, Any]]:
    select = f"SELECT beside.*, {_ALL}, ({HELD}) FROM ({beside}) AS beside"  # noqa: S608
    return select, {**given, **bounds(*day_before(now)), "asleep": JobState.SUSPENDED.value}


def _loaded(parts: Any) -> Any:
    return json.loads(parts) if isinstance(parts, str) else parts or []
