"""io: reads the timeline of V-IPU controllers from the rows: exact, but slow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from ipuhub.recording.shapes import CHECKPOINT_TABLE, GAP_TABLE
from usage.time.windows import PARTITION_PIECES, bounds
from usage.utilization.amounts import ControllerTimeline, Holding, State, sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from usage.utilization.amounts import Utilization

CAPACITY_WATCH: Final = "capacity"
"""Name of the checkpoint and of the gaps of whoever asks controllers for their IPUs."""
_AT: Final = (
    PARTITION_PIECES.replace("%(first)s::timestamptz", "before.at")
    .replace("%(until)s::timestamptz", "(before.at + interval '1 second')")
    .replace("%(day_before)s::timestamptz", "(before.at - interval '1 day')")
)


def _micro(instant: str) -> str:
    return f"(extract(epoch FROM {instant}) * 1000000)::bigint"


# One probe of the index for each controller, however long its history is.
STATES: Final = f"""
WITH RECURSIVE names AS (
  (SELECT controller FROM partitions_capacity ORDER BY controller LIMIT 1)
  UNION ALL
  SELECT (SELECT one.controller FROM partitions_capacity AS one
          WHERE one.controller > names.controller ORDER BY one.controller LIMIT 1)
  FROM names WHERE names.controller IS NOT NULL
)
SELECT names.controller, {_micro("told.at")}, told.total, told.free, told.cordoned + told.faulty,
  told.reachable, told.held
FROM names CROSS JOIN LATERAL (
  (SELECT before.at, total, free, cordoned, faulty, reachable,
     (SELECT COALESCE(sum(held.size), 0) FROM ({_AT}) AS held
      WHERE held.controller = names.controller AND held.reserved_at <= before.at
        AND (held.released_at IS NULL OR held.released_at > before.at)) AS held
   FROM (SELECT * FROM partitions_capacity AS last
         WHERE last.controller = names.controller AND last.at < %(first)s
         ORDER BY last.at DESC LIMIT 1) AS before)
  UNION ALL
  (SELECT at, total, free, cordoned, faulty, reachable, 0 FROM partitions_capacity AS within
   WHERE within.controller = names.controller AND within.at >= %(first)s
     AND within.at < %(until)s)
) AS told WHERE names.controller IS NOT NULL ORDER BY names.controller, told.at
"""  # noqa: S608  # text of this module
"""controller, at (microseconds), total, free, down, reachable, and what jobs held then (of the
state in force before the range; else 0)."""
HOLDINGS: Final = f"""
SELECT controller, {_micro("start")}, {_micro("stop")}, size FROM ({PARTITION_PIECES}) AS held
WHERE stop > start
"""  # noqa: S608
"""controller, start, stop (microseconds, clipped to the range) and IPUs."""
KNOWN: Final = f"""COALESCE(
  (SELECT position_at FROM {CHECKPOINT_TABLE} WHERE name = %(watch)s),
  (SELECT max(at) FROM partitions_capacity))"""  # noqa: S608
"""Until when controllers were asked; NULL: nobody ever did."""
POLLS: Final = f"""
SELECT told.any_did, gaps.began, gaps.ended
FROM (
  SELECT EXISTS (SELECT 1 FROM partitions_capacity WHERE at < %(until)s) AS any_did
) AS told
LEFT JOIN (SELECT {_micro("began_at")} AS began, {_micro("ended_at")} AS ended FROM {GAP_TABLE}
  WHERE watch = %(watch)s AND began_at < %(until)s AND ended_at > %(first)s) AS gaps ON true
"""  # noqa: S608
"""Whether any controller had reported its IPUs, and the gaps without polls that later polls
followed, in microseconds, not clipped; NULL, in one row, where there was no such time."""
# A pod counts on a partition of its own job, in the job's namespace (elsewhere its label is a
# stranger's claim); a pod without a partition in its stamp on each of the job's.
RUNS: Final = f"""
WITH held AS MATERIALIZED (
  SELECT id, controller, namespace, job_uid, partition, size,
    date_trunc('second', start) AS start, date_trunc('second', stop) AS stop
  FROM ({PARTITION_PIECES}) AS clipped WHERE stop > start AND job_uid <> ''
), runs AS MATERIALIZED (
  SELECT held.id, held.controller, held.size,
    CASE WHEN pods.partition = held.partition THEN pods.micro_ipus ELSE 0 END AS micro,
    GREATEST(date_trunc('second', pods.scheduled_at), held.start) AS begins,
    LEAST(date_trunc('second', pods.finished_at), held.stop) AS ends
  FROM held JOIN usage_podlifetime AS pods
    ON pods.job_uid = held.job_uid AND pods.job_uid <> '' AND pods.namespace = held.namespace
   AND pods.partition IN (held.partition, '')
  WHERE pods.scheduled_at < held.stop
    AND (pods.finished_at IS NULL OR pods.finished_at > GREATEST(pods.scheduled_at, held.start))
), spans AS (
  SELECT id, controller, size, 0::bigint AS micro, lower(span) AS begins, upper(span) AS ends
  FROM (SELECT id, controller, size, unnest(range_agg(tstzrange(begins, ends))) AS span
        FROM runs WHERE begins < ends GROUP BY id, controller, size) AS covered
  UNION ALL
  SELECT id, controller, 0, micro, begins, ends FROM runs WHERE begins < ends AND micro > 0
)
SELECT KEY, step - 1,
  sum(size * seconds)::numeric, sum(micro::numeric * seconds)
FROM spans CROSS JOIN LATERAL (
  SELECT n AS step, date_part('epoch', LEAST(ends, (%(bounds)s::timestamptz[])[n + 1])
    - GREATEST(begins, (%(bounds)s::timestamptz[])[n]))::bigint AS seconds
  FROM generate_series(width_bucket(begins, %(bounds)s::timestamptz[]),
                       width_bucket(ends, %(bounds)s::timestamptz[])) AS n
  WHERE n < cardinality(%(bounds)s::timestamptz[])
) AS pieces
WHERE seconds > 0 GROUP BY 1, 2
"""  # noqa: S608
"""KEY (a column of `spans`: controller or id), number of the step, IPU-seconds of partitions on
which a pod of their job ran, and micro-IPU-seconds of such pods."""
if TYPE_CHECKING:
    Gaps = tuple[tuple[int, int], ...]
_ALL: Final = f"{STATES}; {HOLDINGS}; {RUNS.replace('KEY', 'controller')}"
"""One message: a page reads rows of up to two stretches."""


def read_rows(cursor: Any, edges: Sequence[datetime], gaps: Gaps) -> dict[str, list[Utilization]]:
    """Return the utilization of each controller between each edge and the next.

    Edges are whole seconds; `gaps` as `read_polls` returns them, at least for this time.
    """
    # One text, not a list: psycopg quotes each of a week's 672 edges again for each mention.
    array = f"{{{','.join(edge.isoformat() for edge in edges)}}}"
    cursor.execute(_ALL, bounds(edges[0], edges[-1]) | {"bounds": array})
    timelines = _take_timelines(cursor, gaps)
    cursor.nextset()
    busy = {(name, n): (int(busy), int(micro)) for name, n, busy, micro in cursor.fetchall()}
    seconds = [int(edge.timestamp()) for edge in edges]
    found = {name: sweep(timeline, seconds) for name, timeline in timelines.items()}
    for (name, n), pods in busy.items():
        found[name][n] = found[name][n].with_pods(*pods)
    return found


@dataclass(frozen=True, slots=True)
class Polls:
    """Gaps without polls of the controllers (from, to), in microseconds, not clipped;
    `has_capacity`: whether any controller had reported its IPUs before the end; `are_listed`:
    whether later polls followed one of the gaps, which the list of gaps then has."""

    gaps: Gaps
    has_capacity: bool
    are_listed: bool = False


def read_polls(cursor: Any, begin: datetime, until: datetime, known: datetime | None) -> Polls:
    """Return the polls of controllers in [begin, until), in one query.

    `known`: the last poll; None: there never was one, which is not a gap.
    """
    cursor.execute(POLLS, bounds(begin, until) | {"watch": CAPACITY_WATCH})
    rows = cursor.fetchall()
    found = [(start, stop) for _, start, stop in rows if start is not None]
    are_listed = bool(found)
    if known is not None and known < until:
        found.append((_since_epoch(known), _since_epoch(until)))
    return Polls(tuple(found), has_capacity=rows[0][0], are_listed=are_listed)


def _since_epoch(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _take_timelines(cursor: Any, gaps: Gaps) -> Mapping[str, ControllerTimeline]:
    states: dict[str, list[State]] = {}
    held_then: dict[str, int] = {}
    for name, at, total, free, down, reachable, held in cursor.fetchall():
        states.setdefault(name, []).append(State(at, total, free, down, reachable))
        held_then.setdefault(name, int(held))
    holdings: dict[str, list[Holding]] = {}
    cursor.nextset()
    for name, start, stop, size in cursor.fetchall():
        holdings.setdefault(name, []).append(Holding(start, stop, size))
    return {
        name: ControllerTimeline(
            tuple(states.get(name, ())),
            held_then.get(name, 0),
            tuple(holdings.get(name, ())),
            gaps,
        )
        for name in states.keys() | holdings.keys()
    }
