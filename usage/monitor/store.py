"""io: the monitor's queries: which pods to check, and the effect of the API server's answers.

The queries block: use one thread at a time.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import msgspec
import psycopg

from ipuhub.patientpostgres.connection import connect
from ipuhub.recording.shapes import CHECKPOINT_TABLE
from usage.pods.lifetimes import last_seen
from usage.pods.rows import MONITOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

FEW: Final = 20
"""Up to so many pods of one namespace are asked for by name; for more it is listed."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """The row of a running pod without news for too long, as it was read."""

    uid: str
    namespace: str
    name: str
    updated_at: datetime
    seen_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one namespace: about each suspect by name, or for a list of all pods."""

    namespace: str
    suspects: tuple[Suspect, ...]

    @property
    def is_list(self) -> bool:
        """Return whether a list is less work than single questions."""
        return len(self.suspects) > FEW


@dataclass(frozen=True, slots=True)
class Answer:
    """The API server's answer: the UIDs of the question's pods that are `present`.

    They existed at `asked_at` at least. All others were gone at `at`, when all answers had arrived,
    and at the latest at the server's version `revision`.
    """

    question: Question
    present: frozenset[str]
    revision: str
    asked_at: datetime
    at: datetime

    @property
    def alive(self) -> list[Suspect]:
        """The suspects that are alive."""
        return [suspect for suspect in self.question.suspects if suspect.uid in self.present]

    @property
    def gone(self) -> list[Suspect]:
        """The suspects that are not: another pod of the same name is no proof of life."""
        return [suspect for suspect in self.question.suspects if suspect.uid not in self.present]


def questions_for(suspects: Iterable[Suspect]) -> list[Question]:
    """Return one question for each namespace with suspects."""
    ordered = sorted(suspects, key=lambda suspect: (suspect.namespace, suspect.name, suspect.uid))
    return [
        Question(namespace, tuple(members))
        for namespace, members in groupby(ordered, key=lambda suspect: suspect.namespace)
    ]


@dataclass(frozen=True, slots=True)
class WatchState:
    """The position up to which the prober has recorded pods; epoch 0: it never has."""

    epoch: int = 0
    cluster_uid: str = ""
    resource_version: str = ""
    namespace: str = ""
    position_at: datetime | None = None


def is_probers(watch: WatchState, answer: Answer, cluster_uid: str, stale_seconds: float) -> bool:
    """Return whether the prober is about to record the ends of pods that are gone by `answer`.

    That is so if it is at work (its position is fresh), follows this namespace of this cluster, and
    has not reached the version at which the pods were gone. A position beyond that version means
    that it missed the end: only the monitor can close the row.
    """
    if watch.position_at is None or watch.cluster_uid != cluster_uid:
        return False
    if watch.namespace not in {"", answer.question.namespace}:
        return False
    if (answer.at - watch.position_at).total_seconds() > stale_seconds:
        return False
    versions = (watch.resource_version, answer.revision)
    if not all(version.isdecimal() for version in versions):
        return True
    return int(watch.resource_version) < int(answer.revision)


_SUSPECTS: Final = """
SELECT uid, namespace, pod_name, updated_at, seen_at FROM usage_podlifetime
WHERE finished_at IS NULL AND cluster_uid = %(cluster_uid)s
  AND GREATEST(updated_at, seen_at) < %(before)s
ORDER BY GREATEST(updated_at, seen_at), uid LIMIT %(limit)s
"""
_WATCH: Final = f"""
SELECT epoch, cluster_uid, resource_version, namespace, position_at
FROM {CHECKPOINT_TABLE} WHERE name = 'pods'
"""  # noqa: S608  # no value is pasted in
# All who write rows lock the checkpoint first: the position stands still for this transaction, a
# prober that takes over waits, and no two writers wait for each other.
_WATCH_HELD: Final = _WATCH + "FOR NO KEY UPDATE"
_GIVEN: Final = """
FROM jsonb_to_recordset(%(rows)s::jsonb)
    AS given (uid text, updated_at timestamptz, seen_at timestamptz)
WHERE known.uid = given.uid AND known.finished_at IS NULL
  AND known.cluster_uid = %(cluster_uid)s
  AND (known.updated_at, known.seen_at) IS NOT DISTINCT FROM (given.updated_at, given.seen_at)
"""
_SEE: Final = f"UPDATE usage_podlifetime AS known SET seen_at = %(at)s {_GIVEN}"  # noqa: S608
_POSITION: Final = last_seen("%(position_at)s::timestamptz", "%(watched)s::text")
_CLOSE: Final = f"""
UPDATE usage_podlifetime AS known SET
    finished_at = GREATEST(known.scheduled_at, {_POSITION}),
    end_source = %(source)s, estimated = true, updated_at = %(at)s,
    uncertainty_seconds = GREATEST(0, ceil(extract(epoch FROM %(at)s - {_POSITION})))
{_GIVEN}"""  # noqa: S608  # text of this program
_ROUND: Final = """
INSERT INTO usage_monitorround
    (cluster_uid, began_at, ended_at, checked, present, closed, "left", problem)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (cluster_uid) DO UPDATE SET began_at = excluded.began_at,
    ended_at = excluded.ended_at, checked = excluded.checked, present = excluded.present,
    closed = excluded.closed, "left" = excluded."left", problem = excluded.problem
"""


class MonitorStore:
    """The monitor's own connection. Every method can raise psycopg.Error; the next call reconnects.

    A row is changed only if it has not changed since it was read, so newer writes of a prober or
    another monitor stay.
    """

    def __init__(self, arguments: Mapping[str, Any], stale_seconds: float) -> None:
        self._arguments = {**arguments, "application_name": "ipuhub-monitor"}
        self._stale_seconds = stale_seconds
        self._connection: psycopg.Connection[Any] | None = None

    def suspects(self, cluster_uid: str, before: datetime, limit: int) -> list[Suspect]:
        """Return running pods of the cluster without a record since `before`, oldest first."""
        values = {"cluster_uid": cluster_uid, "before": before, "limit": limit}
        with self._transaction() as cursor:
            return [Suspect(*row) for row in cursor.execute(_SUSPECTS, values).fetchall()]

    def watch(self) -> WatchState:
        """Return how far the prober has read."""
        with self._transaction() as cursor:
            return _watch(cursor.execute(_WATCH).fetchone())

    def settle(self, answer: Answer, cluster_uid: str, epoch: int) -> tuple[int, int, int]:
        """Record which pods exist and end those that are gone; return how many exist, ended, were
        left.

        No pod is ended if the prober is about to do so, or if another prober took over since
        `epoch` was read: it lists everything again.
        """
        with self._transaction() as cursor:
            watch = _watch(cursor.execute(_WATCH_HELD).fetchone())
            self._see(cursor, answer, cluster_uid)
            gone = answer.gone
            if not gone:
                return len(answer.alive), 0, 0
            if watch.epoch != epoch or is_probers(watch, answer, cluster_uid, self._stale_seconds):
                return len(answer.alive), 0, len(gone)
            covers = watch.cluster_uid == cluster_uid
            values = {
                "rows": _encode(gone),
                "cluster_uid": cluster_uid,
                "at": answer.at,
                "source": MONITOR,
                "watched": watch.namespace,
                "position_at": _position(watch, answer) if covers else None,
            }
            closed = cursor.execute(_CLOSE, values).rowcount
            return len(answer.alive), closed, len(gone) - closed

    def keep_round(self, *values: object) -> None:
        """Store the round for pages; `values` in the order of the columns."""
        with self._transaction() as cursor:
            cursor.execute(_ROUND, values)

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _see(self, cursor: psycopg.Cursor[Any], answer: Answer, cluster_uid: str) -> None:
        if answer.alive:
            rows = _encode(answer.alive)
            cursor.execute(_SEE, {"rows": rows, "cluster_uid": cluster_uid, "at": answer.asked_at})

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Cursor[Any]]:
        try:
            if self._connection is None:
                self._connection = connect(self._arguments, autocommit=True)
            with self._connection.transaction(), self._connection.cursor() as cursor:
                yield cursor
        except psycopg.Error:
            self.close()
            raise


def _position(watch: WatchState, answer: Answer) -> datetime | None:
    """The watch's position as a sighting; none where it is past the version they were gone at."""
    versions = (watch.resource_version, answer.revision)
    if not all(version.isdecimal() for version in versions):
        return None
    return watch.position_at if int(versions[0]) < int(versions[1]) else None


def _watch(row: Sequence[Any] | None) -> WatchState:
    return WatchState(*row) if row else WatchState()


def _encode(suspects: Sequence[Suspect]) -> str:
    ordered = sorted(suspects, key=lambda suspect: suspect.uid)
    rows = [{"uid": s.uid, "updated_at": s.updated_at, "seen_at": s.seen_at} for s in ordered]
    return msgspec.json.encode(rows).decode()
