"""io: reads recorded jobs and their state, limited to what the user may see."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from django.db import connection
from django.db.models import Model
from django.http import Http404

from ipuhub.models import AuditEntry
from ipuhub.recording.shapes import CHECKPOINT_TABLE
from ipuhub.web.keyset import Order
from jobs.ipujob.conditions import FINISHED, JobState
from jobs.models import (
    DURATION_SECONDS,
    ENDED_AT,
    EarlierFailure,
    JobAttempt,
    JobEvent,
    JobPast,
    JobRecord,
    JobTransition,
    Run,
)
from jobs.operator.observer import ASKING, BY_AGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from django.db.models import Field, QuerySet

    from ipuhub.web.access import Scope

_M = TypeVar("_M", bound=Model)
WATCH = "ipujobs"  # the checkpoint of the jobs' recorder
_LOOKED_AT: Final = 1000  # jobs that ended last; of these, jobs of one size count
_TYPICAL: Final = 50
_EARLIER: Final = 3
_EARLIER_DAYS: Final = 30
_RUNS_EACH_WAY: Final = 3
_MANIFESTS: Final = ("applied", "running")  # shown on one tab of a job
_LARGE = ("spec", "conditions", "labels", "partitions", *_MANIFESTS)  # for one job, not for fifty


SORTS: Final = {
    "created": Order(("created_at", "id")),
    "name": Order(("name", "id")),
    "ipus": Order(("ipus", "id")),
    "ended": Order(("ended_at", "created_at", "id"), has_missing=True),
    "user": Order(("user", "created_at", "id")),
    "duration": Order(("seconds", "created_at", "id"), has_missing=True),
}
"""The orders of the list, each served by an index."""


def visible_jobs(scope: Scope) -> QuerySet[JobRecord]:
    """All jobs that `scope` covers, in no order."""
    if scope.namespaces is None:
        return JobRecord.objects.all()
    return JobRecord.objects.filter(namespace__in=sorted(scope.namespaces))


def listed_jobs(scope: Scope) -> QuerySet[JobRecord]:
    """Return the jobs without the columns that a list does not show, with `ended_at` and their
    duration in `seconds`."""
    visible = visible_jobs(scope).defer(*_LARGE)
    return visible.annotate(ended_at=ENDED_AT, seconds=DURATION_SECONDS)


def groups_of(scope: Scope, uids: Iterable[str]) -> dict[str, str]:
    """Return by UID the groups for which recorded jobs count. Costs one query."""
    return dict(visible_jobs(scope).filter(uid__in=sorted(uids)).values_list("uid", "group"))


def jobs_with_uid(scope: Scope, uid: str) -> QuerySet[JobRecord]:
    """Return the job with this UID, or none, even if the URL's value is no UID."""
    if "\0" in uid:  # no text in PostgreSQL has it
        return JobRecord.objects.none()
    return visible_jobs(scope).filter(uid=uid)


_ASKING_SQL: Final = (
    "({0}.reason = ANY(%(asking)s) AND {0}.deleted_at IS NULL AND {0}.completed_at IS NULL)"
)
_COVERED_SQL: Final = (
    "(%(namespaces)s::text[] IS NULL OR {0}.namespace = ANY(%(namespaces)s::text[]))"
)
# How long the completed jobs ran, of those the reader may see that ended last.
_RUNS: Final = f"""
SELECT e.ipus, e.completed_at, extract(epoch FROM e.completed_at - e.started_at)::float AS seconds
FROM (SELECT * FROM {{jobs}} c WHERE c.completed_at IS NOT NULL AND {_COVERED_SQL.format("c")}
  ORDER BY c.completed_at DESC LIMIT {_LOOKED_AT}) e
WHERE e.status = %(completed)s AND e.started_at IS NOT NULL
"""  # noqa: S608  # no value is pasted in
_RUN: Final = "o.id, o.uid, o.status, o.created_at, o.started_at, o.completed_at, o.deleted_at"
_SAME_NAME: Final = "o.name = j.name AND o.namespace = j.namespace"
_FIND: Final = f"""
SELECT {{columns}},
  (SELECT coalesce(jsonb_agg(to_jsonb(a) ORDER BY a.id), '[]')::text
    FROM {{attempts}} a WHERE a.job_id = j.id) AS told_attempts,
  (SELECT coalesce(jsonb_agg(to_jsonb(t) ORDER BY t.id), '[]')::text
    FROM {{transitions}} t WHERE t.job_id = j.id) AS told_transitions,
  (SELECT coalesce(jsonb_agg(to_jsonb(v) ORDER BY v.last_at, v.id), '[]')::text
    FROM {{events}} v WHERE v.job_id = j.id) AS told_events,
  (SELECT count(*) FROM {{audit}} r WHERE r.uid = j.uid) AS requests,
  (SELECT position_at FROM {CHECKPOINT_TABLE} WHERE name = %(watch)s) AS watched_at,
  -- How many jobs of all namespaces ask for IPUs before this one, as waiting_order() orders them.
  CASE WHEN {_ASKING_SQL.format("j")} THEN
    CASE WHEN j.status <> %(by_age)s THEN 0 ELSE
      (SELECT count(*) FROM {{jobs}} o WHERE o.id <> j.id AND {_ASKING_SQL.format("o")}
        AND (o.status <> %(by_age)s OR (o.created_at, o.uid) < (j.created_at, j.uid)))
    END END AS asking_before,
  CASE WHEN {_ASKING_SQL.format("j")} THEN
    ARRAY(SELECT ended.seconds FROM ({_RUNS}) ended WHERE ended.ipus = j.ipus
      ORDER BY ended.completed_at DESC LIMIT {_TYPICAL})
    END AS typical_seconds,
  CASE WHEN j.status = %(failed)s THEN
    ARRAY(SELECT jsonb_build_array(e.uid, e.name)::text FROM {{jobs}} e
      WHERE e.namespace = j.namespace AND e.reason = j.reason AND e.status = %(failed)s
        AND e.completed_at < j.completed_at
        AND e.completed_at > j.completed_at - interval '{_EARLIER_DAYS} days'
      ORDER BY e.completed_at DESC LIMIT {_EARLIER})
    END AS earlier,
  -- Of jobs of one name the next begins after the one before is gone: their rows are in this order.
  (SELECT coalesce(jsonb_agg(to_jsonb(n) ORDER BY n.id DESC), '[]')::text FROM (
    (SELECT {_RUN} FROM {{jobs}} o WHERE {_SAME_NAME} AND o.id < j.id
      ORDER BY o.id DESC LIMIT {_RUNS_EACH_WAY})
    UNION ALL
    (SELECT {_RUN} FROM {{jobs}} o WHERE {_SAME_NAME} AND o.id > j.id
      ORDER BY o.id LIMIT {_RUNS_EACH_WAY})) n) AS told_runs
FROM {{jobs}} j
WHERE j.uid = %(uid)s AND {_COVERED_SQL.format("j")}
"""  # noqa: S608  # no value is pasted in
_TABLES: Final = {
    "jobs": JobRecord._meta.db_table,  # noqa: SLF001  # of Django's documented API
    "attempts": JobAttempt._meta.db_table,  # noqa: SLF001
    "transitions": JobTransition._meta.db_table,  # noqa: SLF001
    "events": JobEvent._meta.db_table,  # noqa: SLF001
    "audit": AuditEntry._meta.db_table,  # noqa: SLF001
}


def _find_sql(*without: str) -> str:
    names = [each.column for each in _fields(JobRecord) if each.name not in without]
    return _FIND.format(columns=", ".join(f'j."{name}"' for name in names), **_TABLES)


def find_newest(scope: Scope, namespace: str, name: str) -> str | None:
    """Return the UID of the newest job of this name; None if `scope` covers no such job."""
    if "\0" in namespace + name:  # no text in PostgreSQL has it
        return None
    named = visible_jobs(scope).filter(namespace=namespace, name=name)
    return named.order_by("-created_at", "-id").values_list("uid", flat=True).first()


def find_job(scope: Scope, uid: str, *, manifests: bool = False) -> JobRecord:
    """Return a job with its `past` in one query. Raise Http404 if `scope` covers no such job: a
    foreign job is as unknown as none.

    `manifests`: with the applied and the running manifest. Otherwise each of them is read when it
    is used, with another query.

    Written as SQL: Django takes 16 ms of processor time to put these subqueries together, and each
    open page of a job asks every three seconds.
    """
    if "\0" in uid:  # no text in PostgreSQL has it
        raise Http404(NO_JOB)
    given = {
        "uid": uid,
        "namespaces": None if scope.namespaces is None else sorted(scope.namespaces),
        "watch": WATCH,
        "asking": sorted(ASKING),
        "by_age": BY_AGE,
        "completed": JobState.COMPLETED.value,
        "failed": JobState.FAILED.value,
    }
    sql = _FIND_WITH_MANIFESTS if manifests else _FIND_PLAIN
    job = next(iter(JobRecord.objects.raw(sql, given)), None)
    if job is None:
        raise Http404(NO_JOB)
    past = {name: vars(job).pop(name) for name in _OF_PAST}
    job.past = JobPast(
        attempts=_rows(JobAttempt, json.loads(past["told_attempts"])),
        transitions=_rows(JobTransition, json.loads(past["told_transitions"])),
        watched_at=past["watched_at"],
        asking_before=past["asking_before"],
        typical_seconds=past["typical_seconds"] or (),
        earlier=[EarlierFailure(*json.loads(each)) for each in past["earlier"] or ()],
        requests=past["requests"],
        events=_rows(JobEvent, json.loads(past["told_events"])),
        runs=[_run(job, row) for row in json.loads(past["told_runs"])],
    )
    return job


def _run(of: JobRecord, row: dict[str, Any]) -> Run:
    known = {each.attname: each for each in _fields(JobRecord)}
    other = JobRecord(**{name: known[name].to_python(value) for name, value in row.items()})
    ended_at = other.completed_at or other.deleted_at
    times = other.created_at, other.started_at, ended_at
    return Run(other.uid, state_of(other), *times, is_later=other.pk > of.pk)


@dataclass(frozen=True, slots=True)
class TypicalRun:
    """The median run time of the last `jobs` completed jobs of a size."""

    seconds: float
    jobs: int


_TYPICAL_RUNS: Final = f"""
SELECT waiting.uid, percentile_cont(0.5) WITHIN GROUP (ORDER BY ended.seconds), count(*)
FROM {{jobs}} waiting JOIN (
  SELECT r.ipus, r.seconds,
    row_number() OVER (PARTITION BY r.ipus ORDER BY r.completed_at DESC) AS number
  FROM ({_RUNS}) r
) ended ON ended.ipus = waiting.ipus AND ended.number <= {_TYPICAL}
WHERE waiting.uid = ANY(%(uids)s) AND {_COVERED_SQL.format("waiting")}
GROUP BY waiting.uid
"""  # noqa: S608  # no value is pasted in
_TYPICAL_RUNS_SQL: Final = _TYPICAL_RUNS.format(**_TABLES)


def typical_runs(scope: Scope, uids: Iterable[str]) -> dict[str, TypicalRun]:
    """Return for each of these jobs how long such jobs ran, as `find_job` has it, in one query;
    nothing for sizes of which no job has completed."""
    with connection.cursor() as cursor:
        cursor.execute(_TYPICAL_RUNS_SQL, typical_parameters(scope, uids))
        return {uid: TypicalRun(seconds, jobs) for uid, seconds, jobs in cursor.fetchall()}


TYPICAL_CELL: Final = f"""
(SELECT coalesce(json_object_agg(t.uid, json_build_array(t.seconds, t.jobs)), '{{}}')::text
FROM ({_TYPICAL_RUNS_SQL}) AS t (uid, seconds, jobs))"""  # noqa: S608  # no value is pasted in
"""A column for another query: the same with the same parameters, for `typical_from`."""


def typical_parameters(scope: Scope, uids: Iterable[str]) -> dict[str, Any]:
    """Return the parameters of TYPICAL_CELL."""
    return {
        "uids": sorted(uids),
        "namespaces": None if scope.namespaces is None else sorted(scope.namespaces),
        "completed": JobState.COMPLETED.value,
    }


def typical_from(text: str) -> dict[str, TypicalRun]:
    """Return the runs by UID in the text of a TYPICAL_CELL."""
    return {uid: TypicalRun(*run) for uid, run in json.loads(text).items()}


_OF_PAST: Final = (
    "told_attempts",
    "told_transitions",
    "told_events",
    "watched_at",
    "asking_before",
    "typical_seconds",
    "earlier",
    "requests",
    "told_runs",
)


def _rows(model: type[_M], records: Sequence[dict[str, Any]]) -> list[_M]:
    fields = _fields(model)
    return [
        model(**{each.attname: each.to_python(row[each.attname]) for each in fields})
        for row in records
    ]


def _fields(model: type[Model]) -> Sequence[Field[Any, Any]]:
    return model._meta.concrete_fields  # noqa: SLF001  # of Django's documented API


_FIND_PLAIN: Final = _find_sql(*_MANIFESTS)
_FIND_WITH_MANIFESTS: Final = _find_sql()

NAMED: Final = ("namespace", "group", "user")
"""The names of all owners of jobs."""
# Jumps from each value to the next in the index of its column: there are few among many jobs.
_VALUES: Final = """
{kind}_values AS (
  (SELECT "{kind}" AS value FROM {jobs} ORDER BY "{kind}" LIMIT 1)
  UNION ALL
  SELECT (SELECT j."{kind}" FROM {jobs} j WHERE j."{kind}" > v.value ORDER BY j."{kind}" LIMIT 1)
  FROM {kind}_values v WHERE v.value IS NOT NULL
)"""
# Jumps from each owner in these namespaces to the next, in the index `job_owner`. To ask of each
# value of all whether it is theirs took a second among 100,000 jobs, mostly of other namespaces.
_OWNERS: Final = """
owners AS (
  SELECT first.* FROM unnest(%(namespaces)s::text[]) AS covered (namespace), LATERAL (
    SELECT j.namespace, j."group", j."user" FROM {jobs} j WHERE j.namespace = covered.namespace
    ORDER BY j."group", j."user" LIMIT 1) first
  UNION ALL
  SELECT next.* FROM owners o, LATERAL (
    SELECT j.namespace, j."group", j."user" FROM {jobs} j
    WHERE j.namespace = o.namespace AND (j."group", j."user") > (o."group", o."user")
    ORDER BY j."group", j."user" LIMIT 1) next
)"""
_OWNED: Final = '{kind}_values AS (SELECT DISTINCT "{kind}" AS value FROM owners)'
_LIKE: Final = """
(SELECT '{kind}', v.value FROM {kind}_values v
WHERE v.value <> '' AND strpos(lower(v.value), lower(%(text)s)) > 0
ORDER BY v.value <> %(text)s, v.value LIMIT %(most)s)"""


def _names_sql(*values: str) -> str:
    likes = " UNION ALL ".join(_LIKE.format(kind=kind) for kind in NAMED)
    return f"WITH RECURSIVE {', '.join(values)} {likes}"


_LIKE_SQL: Final = _names_sql(*(_VALUES.format(kind=kind, **_TABLES) for kind in NAMED))
_COVERED_LIKE_SQL: Final = _names_sql(
    _OWNERS.format(**_TABLES), *(_OWNED.format(kind=kind) for kind in NAMED)
)


def names_like(scope: Scope, text: str, most: int) -> list[tuple[str, str]]:
    """Return kind and name of the namespaces, groups and users of jobs that `scope` covers with the
    text in their names, at most so many of a kind, the exact one first. Costs one query."""
    given: dict[str, Any] = {"text": text, "most": most}
    sql = _LIKE_SQL
    if scope.namespaces is not None:
        sql, given["namespaces"] = _COVERED_LIKE_SQL, sorted(scope.namespaces)
    with connection.cursor() as cursor:
        cursor.execute(sql, given)
        return [(kind, name) for kind, name in cursor.fetchall()]


def newest_names(scope: Scope, most: int) -> list[str]:
    """Return the names of the newest of so many jobs, each once."""
    rows = visible_jobs(scope).order_by("-created_at", "-id").values_list("name", flat=True)
    return list(dict.fromkeys(rows[:most]))


NO_JOB = "Job not found, or you do not have access to its namespace."
DELETED = "Deleted"
DELETED_EARLY = "Deleted before it ended."
ENDED = tuple(state.value for state in FINISHED)
STATES = (*(state.value for state in JobState), DELETED)


class Remembered(Protocol):
    """The facts of a recorded job that decide its state."""

    status: str
    deleted_at: datetime | None


def state_of(job: Remembered) -> str:
    """Return the state that pages show: a job that was deleted while it ran does not run."""
    return DELETED if _deleted_early(job) else job.status


def message_of(job: Remembered, last: str) -> str:
    """Return the message to show if `last` was its last message; the message of a deleted job is
    outdated."""
    if not _deleted_early(job):
        return last
    return f"{DELETED_EARLY} Last message: {last}" if last else DELETED_EARLY


def _deleted_early(job: Remembered) -> bool:
    return bool(job.deleted_at) and job.status not in ENDED
