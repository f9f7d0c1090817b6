"""io: the SQL statements that store Kubernetes Events of recorded jobs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    import psycopg

    from jobs.history.eventrows import EventRow

MOST: Final = 200
"""Events kept of a job: warnings before the rest, the newest of each."""
# Names come again: a pod belongs to the job of that name that was there at the Event's time. The
# clocks of nodes differ, and pods outlive their job by some seconds: only if no job was there then,
# a job that was there within a minute counts, the earlier first.
# The API server checks the namespace of what an Event is about, and not its UID.
_STORE: Final = """
INSERT INTO jobs_jobevent AS known
    (job_id, uid, pod, type, reason, message, count, first_at, last_at)
SELECT id, %(uid)s, %(pod)s, %(type)s, %(reason)s, %(message)s, %(count)s, %(first_at)s,
    %(last_at)s
FROM jobs_jobrecord
WHERE namespace = %(namespace)s AND name = %(job)s
  AND CASE WHEN %(job_uid)s <> '' THEN uid = %(job_uid)s
      ELSE created_at <= %(last_at)s + interval '1 minute'
       AND (deleted_at IS NULL OR deleted_at >= %(first_at)s - interval '1 minute') END
ORDER BY (created_at <= %(last_at)s AND (deleted_at IS NULL OR deleted_at >= %(last_at)s)) DESC,
    created_at <= %(last_at)s DESC, created_at DESC
LIMIT 1
ON CONFLICT (uid) DO UPDATE SET
    message = excluded.message, count = excluded.count, last_at = excluded.last_at
WHERE (known.count, known.last_at) < (excluded.count, excluded.last_at)
"""
_KNOWN: Final = "SELECT uid, job_id FROM jobs_jobevent WHERE uid = ANY(%s)"
_BOUND: Final = """
DELETE FROM jobs_jobevent WHERE id IN (
    SELECT id FROM (
        SELECT id, row_number() OVER (
            PARTITION BY job_id ORDER BY type = 'Warning' DESC, last_at DESC, id DESC) AS number
        FROM jobs_jobevent WHERE job_id = ANY(%s)) AS ranked
    WHERE number > %s)
"""


def store_events(cursor: psycopg.Cursor[Any], rows: Iterable[EventRow]) -> set[str]:
    """Keep Events of recorded jobs; return the UIDs of those whose job has no record."""
    batch = list(rows)
    if not batch:
        return set()
    cursor.executemany(_STORE, [asdict(row) for row in batch])
    uids = [row.uid for row in batch]
    known = dict(cursor.execute(_KNOWN, [uids]).fetchall())
    cursor.execute(_BOUND, [sorted(set(known.values())), MOST])
    return set(uids) - known.keys()
