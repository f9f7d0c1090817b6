"""io: the recorder of IPUJobs in PostgreSQL."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ipuhub.kube.watch import Scope
from ipuhub.recording.recorder import Subject
from ipuhub.text import AuthorTrust
from jobs.history.rows import row_of
from jobs.ipujob.names import IPUJOBS, namespace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import datetime

    from psycopg import Cursor

    from ipuhub.recording.recorder import Fault, VanishedObjects
    from jobs.history.rows import JobRow

# A group or user once known is not lost with the namespace or the annotation; an estimated end is
# taken back when the job is there after all, an exact end never is. What nothing says was applied
# is the spec as first seen. A waiting edit does not change the running spec.
_JOB = """
INSERT INTO jobs_jobrecord AS known (
    uid, cluster_uid, namespace, name, "group", "user", user_verified, ipus, instances, workers,
    status, reason, message, restart_count, partitions, spec, conditions, labels,
    applied, applied_by, running,
    created_at, started_at, completed_at, deleted_at, estimated, updated_at)
VALUES (
    %(uid)s, %(cluster_uid)s, %(namespace)s, %(name)s, %(group)s, %(user)s, %(user_verified)s,
    %(ipus)s,
    %(instances)s, %(workers)s, %(status)s, %(reason)s, %(message)s, %(restart_count)s,
    %(partitions)s::jsonb, %(spec)s::jsonb, %(conditions)s::jsonb, %(labels)s::jsonb,
    %(applied)s::jsonb, %(applied_by)s, %(running)s::jsonb,
    %(created_at)s, %(started_at)s, %(completed_at)s, %(deleted_at)s, false, %(updated_at)s)
ON CONFLICT (uid) DO UPDATE SET
    "group" = CASE WHEN excluded."group" = excluded.namespace
                   THEN known."group" ELSE excluded."group" END,
    "user" = CASE WHEN excluded."user" = '' THEN known."user" ELSE excluded."user" END,
    user_verified = CASE WHEN excluded."user" = '' THEN known.user_verified
                         ELSE excluded.user_verified END,
    ipus = excluded.ipus,
    instances = excluded.instances,
    workers = excluded.workers,
    status = excluded.status,
    reason = excluded.reason,
    message = excluded.message,
    restart_count = GREATEST(known.restart_count, excluded.restart_count),
    partitions = excluded.partitions,
    spec = excluded.spec,
    conditions = excluded.conditions,
    labels = excluded.labels,
    applied = CASE WHEN excluded.applied_by <> '' OR known.applied = '{}'
                   THEN excluded.applied ELSE known.applied END,
    applied_by = CASE WHEN excluded.applied_by <> '' THEN excluded.applied_by
                      ELSE known.applied_by END,
    running = CASE WHEN %(is_whole)s OR known.running = '{}' THEN excluded.running
                   ELSE known.running || %(policies)s::jsonb END,
    started_at = LEAST(known.started_at, excluded.started_at),
    completed_at = COALESCE(known.completed_at, excluded.completed_at),
    deleted_at = CASE WHEN known.estimated THEN excluded.deleted_at
                      ELSE COALESCE(known.deleted_at, excluded.deleted_at) END,
    estimated = false,
    updated_at = excluded.updated_at
"""
# The outcome of an attempt that has ended is final; an attempt that a deletion closed may go on if
# the job turns out to be there.
_ATTEMPT = """
INSERT INTO jobs_jobattempt AS known (
    job_id, instance, attempt, outcome, reason, exit_code, message, log, began_at, ended_at)
SELECT id, %(instance)s, %(attempt)s, %(outcome)s, %(reason)s, %(exit_code)s, %(message)s,
       %(log)s, %(began_at)s,
       COALESCE(%(ended_at)s,
                CASE WHEN deleted_at IS NOT NULL THEN GREATEST(%(began_at)s, deleted_at) END)
FROM jobs_jobrecord WHERE uid = %(uid)s
ON CONFLICT (job_id, instance, attempt) DO UPDATE SET
    outcome = excluded.outcome,
    reason = excluded.reason,
    exit_code = excluded.exit_code,
    message = excluded.message,
    log = excluded.log,
    ended_at = excluded.ended_at
WHERE known.outcome NOT IN ('Completed', 'Failed')
"""
_EARLIER_ATTEMPTS = """
UPDATE jobs_jobattempt AS attempt SET ended_at = GREATEST(attempt.began_at, %(began_at)s)
FROM jobs_jobrecord AS job
WHERE attempt.job_id = job.id AND job.uid = %(uid)s AND attempt.instance = %(instance)s
  AND attempt.attempt < %(attempt)s AND attempt.ended_at IS NULL
"""
# Within a state the last particular cause stays: why a job waited is known when it no longer does.
# It keeps its first message.
_TRANSITION = """
INSERT INTO jobs_jobtransition AS known (job_id, at, state, reason, message)
SELECT id, %(at)s, %(state)s, %(reason)s, %(message)s FROM jobs_jobrecord WHERE uid = %(uid)s
ON CONFLICT (job_id, at, state) DO UPDATE SET reason = excluded.reason, message = excluded.message
WHERE known.reason <> excluded.reason
  AND NOT (starts_with(excluded.reason, 'IPUJob') AND NOT starts_with(known.reason, 'IPUJob'))
"""
_INFERRED_TRANSITION = """
INSERT INTO jobs_jobtransition (job_id, at, state, reason, message)
SELECT job.id, %(at)s, %(state)s, %(reason)s, %(message)s FROM jobs_jobrecord AS job
WHERE job.uid = %(uid)s AND NOT EXISTS (
    SELECT FROM jobs_jobtransition AS old WHERE old.job_id = job.id AND old.state = %(state)s)
"""
_VANISHED = """
UPDATE jobs_jobrecord SET
    deleted_at = GREATEST(created_at, %(seen_until)s), estimated = true, updated_at = %(now)s
WHERE cluster_uid = %(cluster_uid)s AND deleted_at IS NULL AND uid <> ALL(%(present)s)
RETURNING id
"""
_KNOWN = "SELECT count(*) FROM jobs_jobrecord WHERE uid = ANY(%s)"
_OPEN_ATTEMPTS = """
UPDATE jobs_jobattempt AS attempt SET ended_at = GREATEST(attempt.began_at, job.deleted_at)
FROM jobs_jobrecord AS job
WHERE attempt.job_id = job.id AND job.id = ANY(%(jobs)s) AND attempt.ended_at IS NULL
"""
_OPEN_ATTEMPTS_OF_DELETED = """
UPDATE jobs_jobattempt AS attempt SET ended_at = GREATEST(attempt.began_at, job.deleted_at)
FROM jobs_jobrecord AS job
WHERE attempt.job_id = job.id AND job.uid = %(uid)s AND attempt.ended_at IS NULL
"""


def store(cursor: Cursor[Any], rows: Sequence[JobRow], cluster_uid: str, at: datetime) -> None:
    """Write rows in the order in which they were seen; the same rows again change nothing."""
    _run(cursor, _JOB, [_job_values(row, cluster_uid, at) for row in rows])
    attempts = [asdict(attempt) | {"uid": row.uid} for row in rows for attempt in row.attempts]
    _run(cursor, _EARLIER_ATTEMPTS, [attempt for attempt in attempts if attempt["attempt"]])
    _run(cursor, _ATTEMPT, attempts)
    changes = [(row.uid, transition) for row in rows for transition in row.transitions]
    # Observed values come first: they leave no room for inferred values.
    for sql, is_inferred in ((_TRANSITION, False), (_INFERRED_TRANSITION, True)):
        chosen = [
            (uid, transition)
            for uid, transition in changes
            if transition.is_inferred is is_inferred
        ]
        _run(cursor, sql, [asdict(transition) | {"uid": uid} for uid, transition in chosen])
    gone = [{"uid": row.uid} for row in rows if row.deleted_at is not None]
    _run(cursor, _OPEN_ATTEMPTS_OF_DELETED, gone)


def close_vanished(cursor: Cursor[Any], absence: VanishedObjects) -> int:
    """End, estimated, every job of the cluster that a full list no longer shows; how many."""
    cursor.execute(_VANISHED, asdict(absence) | {"present": [*absence.present]})
    jobs = [found[0] for found in cursor.fetchall()]
    if jobs:
        cursor.execute(_OPEN_ATTEMPTS, {"jobs": jobs})
    return len(jobs)


def _run(cursor: Cursor[Any], sql: str, values: Iterable[dict[str, Any]]) -> None:
    batch = [*values]
    if batch:
        cursor.executemany(sql, batch)


def _job_values(row: JobRow, cluster_uid: str, at: datetime) -> dict[str, Any]:
    values: dict[str, Any] = {
        name: getattr(row, name)
        for name in (
            "uid",
            "namespace",
            "name",
            "group",
            "user",
            "user_verified",
            "status",
            "reason",
            "message",
            "restart_count",
            "created_at",
            "started_at",
            "completed_at",
            "deleted_at",
        )
    }
    values |= row.size._asdict()
    documents = {
        name: getattr(row, name) for name in ("partitions", "spec", "conditions", "labels")
    }
    running = row.running
    documents |= {"applied": row.applied.manifest, "policies": running.policies}
    documents |= {"running": running.spec}
    values |= {name: json.dumps(each, ensure_ascii=False) for name, each in documents.items()}
    values |= {"applied_by": row.applied.by, "is_whole": running.is_whole}
    return values | {"cluster_uid": cluster_uid, "updated_at": at}


class JobRecorder:
    """Records every IPUJob.

    `group_of` returns the group of a namespace; `authors` says which users are verified (None: no
    user); `recorded` is called with the UIDs of jobs, in the transaction that writes their records.
    """

    name = "ipujobs"
    scope = Scope(IPUJOBS)
    selection = "all"
    manifest: type[Any] = dict

    def __init__(
        self,
        group_of: Callable[[str], str],
        authors: AuthorTrust | None = None,
        recorded: Callable[[Cursor[Any], Collection[str]], object] = lambda *_: None,
    ) -> None:
        self._group_of, self._recorded = group_of, recorded
        self._authors = authors or AuthorTrust()

    def read(
        self,
        kind: str,
        manifest: Any,
        faults: list[Fault],  # noqa: ARG002  # nothing in a job is refused
        at: datetime,
        since: datetime | None = None,  # noqa: ARG002  # a job's end has no uncertainty
    ) -> JobRow:
        """Make the row of a job."""
        group = self._group_of(namespace_of(manifest))
        row = row_of(manifest, group, at, is_deleted=kind == "DELETED")
        return replace(row, user_verified=self._authors.covers(row.user, row.namespace))

    def subject(self, row: JobRow) -> Subject:
        """Name the job of a row."""
        return Subject(row.uid, row.namespace, row.name)

    def write(
        self, cursor: Cursor[Any], rows: Sequence[JobRow], cluster_uid: str, at: datetime
    ) -> None:
        """Write jobs with their attempts and transitions."""
        store(cursor, rows, cluster_uid, at)
        self._recorded(cursor, {row.uid for row in rows})

    def unrecorded(self, cursor: Cursor[Any], rows: Sequence[JobRow]) -> int:
        """Return how many of the jobs came since the last record."""
        uids = {row.uid for row in rows}
        (known,) = cursor.execute(_KNOWN, [[*uids]]).fetchone() or (0,)
        return len(uids) - int(known)

    def vanish(self, cursor: Cursor[Any], absence: VanishedObjects) -> int:
        """End the jobs that a full list no longer shows."""
        return close_vanished(cursor, absence)

    async def committed(self, rows: Sequence[JobRow]) -> None:
        """Do nothing: no component waits for jobs."""
