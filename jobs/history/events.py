"""io: keeps the Kubernetes Events of jobs and their pods, which the cluster forgets after an hour.

It needs no checkpoint: after a start it reads what the cluster still has, and the same Event again
changes nothing. Without the right to read Events jobs are recorded as before, only without these.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
import structlog

from ipuhub.backoff import Backoff, jitter
from ipuhub.kube.errors import ApiError, Gone
from ipuhub.kube.resources import EVENTS
from ipuhub.kube.watch import Scope, Watch
from jobs.history.rows import LARGEST, cleaned
from jobs.ipujob.fields import whole_number
from jobs.ipujob.names import KIND, metadata, namespace_of, parse_time, uid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from ipuhub.kube.client import KubeClient
    from jobs.ipujob.names import Manifest

log = structlog.get_logger(__name__)
MOST: Final = 200
"""Events kept of a job: warnings before the rest, the newest of each."""
_WAITING: Final = 5_000  # of whose jobs there is no record yet, or while PostgreSQL is away
_PATIENCE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 1.0
_LONGEST: Final = 1024  # characters of a message, as events.k8s.io/v1 has it
_OF_POD: Final = re.compile(r"(?P<job>.+)-(launcher|worker-\d+)")
_KINDS: Final = (KIND, "Pod")
_BACKOFF: Final = Backoff(1.0, 60.0)


@dataclass(frozen=True, slots=True)
class EventRow:
    """An Event. `job_uid` of one about a job; else `job` names that of the pod `pod`."""

    uid: str
    namespace: str
    job: str
    job_uid: str
    pod: str
    type: str
    reason: str
    message: str
    count: int
    first_at: datetime
    last_at: datetime


def event_row_of(manifest: Manifest, now: datetime) -> EventRow | None:
    """Return the row of an Event as heard at `now`; None: it is about no job and no job's pod."""
    clean: Manifest = cleaned(manifest)
    about = clean.get("involvedObject")
    about = about if isinstance(about, dict) else {}
    name = str(about.get("name") or "")
    of_pod = _OF_POD.fullmatch(name) if about.get("kind") == "Pod" else None
    if of_pod is None and about.get("kind") != KIND:
        return None
    series = clean.get("series")
    series = series if isinstance(series, dict) else {}
    times = [clean.get(key) for key in ("firstTimestamp", "eventTime")]
    first = _first_time(*times, metadata(clean).get("creationTimestamp")) or now
    last = _first_time(series.get("lastObservedTime"), clean.get("lastTimestamp")) or first
    count = whole_number(clean.get("count")) or whole_number(series.get("count")) or 1
    return EventRow(
        uid=uid_of(clean),
        namespace=namespace_of(clean),
        job=of_pod["job"] if of_pod else name,
        job_uid="" if of_pod else str(about.get("uid") or ""),
        pod=name if of_pod else "",
        type="Warning" if clean.get("type") == "Warning" else "Normal",
        reason=str(clean.get("reason") or "")[:_LONGEST],
        message=str(clean.get("message") or "")[:_LONGEST],
        count=max(1, min(count, LARGEST)),
        first_at=first,
        last_at=max(first, last),
    )


def _first_time(*texts: object) -> datetime | None:
    found = (parse_time(text) for text in texts if isinstance(text, str))
    return next((each for each in found if each is not None), None)


# A pod is the job's of its name that was there then: of two jobs of one name the newer one.
_STORE: Final = """
INSERT INTO jobs_jobevent AS known
    (job_id, uid, pod, type, reason, message, count, first_at, last_at)
SELECT id, %(uid)s, %(pod)s, %(type)s, %(reason)s, %(message)s, %(count)s, %(first_at)s,
    %(last_at)s
FROM jobs_jobrecord
WHERE CASE WHEN %(job_uid)s <> '' THEN uid = %(job_uid)s
      ELSE namespace = %(namespace)s AND name = %(job)s
       AND created_at <= %(last_at)s + interval '1 minute' END
ORDER BY created_at DESC LIMIT 1
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


class EventFollower:
    """Follows the Events of all jobs and their pods and keeps them, until cancelled.

    `database` are psycopg's arguments, `clock` gives aware UTC times. `problem` says why it does
    not (empty: it does).
    """

    def __init__(
        self, client: KubeClient, database: Mapping[str, Any], clock: Callable[[], datetime]
    ) -> None:
        self.problem = ""
        self._client, self._database, self._clock = client, dict(database), clock
        self._waiting: dict[str, tuple[EventRow, datetime]] = {}
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Follow both kinds of Events, and write what comes."""
        async with asyncio.TaskGroup() as group:
            for kind in _KINDS:
                group.create_task(
                    self._follow(Scope(EVENTS, field_selector=f"involvedObject.kind={kind}"))
                )
            group.create_task(self._write())

    async def _follow(self, scope: Scope) -> None:
        failures = 0
        while True:
            try:
                await self._list_and_watch(scope)
                failures = 0
            except Gone:
                failures = 0
            except ApiError as error:
                self._say(str(error))
                await asyncio.sleep(_BACKOFF.delay_seconds(failures, jitter()))
                failures += 1

    async def _list_and_watch(self, scope: Scope) -> None:
        found = await self._client.list(
            EVENTS, field_selector=scope.field_selector, keep=self._offered
        )
        self._say("")
        watch = Watch(self._client, scope, found.resource_version)
        async for event in watch.events():
            if event.type in {"ADDED", "MODIFIED"}:  # deleted by age, or with its namespace
                self._offer(event.object)

    def _offered(self, manifest: Manifest) -> Manifest:
        """Take an Event of a list, of which then nothing has to be kept."""
        self._offer(manifest)
        return {}

    def _offer(self, manifest: Manifest) -> None:
        now = self._clock()
        row = event_row_of(manifest, now)
        if row is not None and row.uid and len(self._waiting) < _WAITING:
            self._waiting[row.uid] = row, now
            self._news.set()

    async def _write(self) -> None:
        """Write what waits about once a second; the job of an Event may be recorded after it."""
        while True:
            await self._news.wait()
            await asyncio.sleep(_PAUSE_SECONDS)
            self._news.clear()
            taken, self._waiting = self._waiting, {}
            try:
                left = await asyncio.to_thread(self._store, [row for row, _ in taken.values()])
            except psycopg.Error as error:
                log.warning("events not kept yet", problem=str(error).strip())
                left = set(taken)
            now = self._clock()
            for uid, (row, since) in taken.items():
                is_young = (now - since).total_seconds() < _PATIENCE_SECONDS
                if uid in left and is_young and uid not in self._waiting:
                    self._waiting[uid] = row, since
            if self._waiting:
                self._news.set()

    def _store(self, rows: Iterable[EventRow]) -> set[str]:
        with psycopg.connect(**self._database) as connection, connection.cursor() as cursor:
            return store_events(cursor, rows)

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem:
                log.warning("events of jobs are not kept", problem=problem)
            else:
                log.info("events of jobs are kept")
