"""io: the transactions of a recording: rows and checkpoint are written together."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

import psycopg

from ipuhub.database import session_options
from ipuhub.patientpostgres.connection import connect
from ipuhub.recording import recorder as fault_table
from ipuhub.recording.recorder import Fault, VanishedObjects
from ipuhub.recording.shapes import Checkpoint, is_reached

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from ipuhub.recording.buffer import Batch
    from ipuhub.recording.recorder import Recorder

Row = TypeVar("Row")
_COLUMNS: Final = "epoch, cluster_uid, resource_version, selection, position_at, namespace"
_TAKE_OVER: Final = f"""
INSERT INTO ipuhub_watchcheckpoint AS known
    (name, cluster_uid, resource_version, epoch, selection, namespace, holder)
VALUES (%s, '', '', 1, '', '', %s)
ON CONFLICT (name) DO UPDATE SET epoch = known.epoch + 1, holder = excluded.holder
RETURNING {_COLUMNS}
"""  # noqa: S608  # no value is pasted in
_RIVAL: Final = """
SELECT holder FROM ipuhub_watchcheckpoint
WHERE name = %s AND position_at > now() - %s * interval '1 second' FOR UPDATE
"""
_READ: Final = f"SELECT {_COLUMNS} FROM ipuhub_watchcheckpoint WHERE name = %s"  # noqa: S608
_MOVE: Final = """
UPDATE ipuhub_watchcheckpoint SET resource_version = %s, position_at = %s, lag_seconds = %s
WHERE name = %s AND epoch = %s
"""
_LISTED: Final = """
UPDATE ipuhub_watchcheckpoint SET resource_version = %s, position_at = %s, listed_at = %s,
    cluster_uid = %s, selection = %s, namespace = %s
WHERE name = %s AND epoch = %s
"""
_GAP: Final = """
INSERT INTO ipuhub_watchgap (watch, began_at, ended_at, cause, shows_loss)
VALUES (%s, %s, %s, %s, %s)
"""
_GAPS: Final = """
SELECT count(*), max(ended_at) FROM ipuhub_watchgap WHERE watch = %s AND shows_loss
"""
# What one object brings about, and no repetition cures: data, constraints, limits of the program.
_REFUSED: Final = ("22", "23", "54")
# What Postgres says of statements that were written for newer tables than it has.
_OLDER_TABLES: Final = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.InvalidColumnReference,  # ON CONFLICT without its unique index
)
_ROWS_AT_ONCE: Final = 2_000
_OF_DJANGO: Final = {"assume_role", "isolation_level", "pool", "server_side_binding"}
_SESSION: Final = {
    "connect_timeout": 10,
    "application_name": "ipuhub-prober",
    # A database host that vanished without a word is noticed within half a minute.
    "tcp_user_timeout": 25_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
}
_SESSION_OPTIONS: Final = (
    "-c statement_timeout=20s -c idle_in_transaction_session_timeout=60s -c timezone=UTC"
)
"""A connection that is lost on its way must not keep its locks, for which its successor waits."""


_NONE_SHOWN: Final = "the list then showed the same objects, none gone and none new"
_LEASE: Final = " (Lease "
_ALIVE_SECONDS: Final = 180.0
"""An idle watch moves its position about once a minute."""

UNREADABLE: Final = "unreadable"
"""Fault of an object that cannot be read, so that nobody knows whether it was recorded."""


class Gaps(NamedTuple):
    """The number of stored gaps of a watch, and the end of the newest."""

    stored: int = 0
    newest: datetime | None = None


class Fenced(Exception):  # noqa: N818  # it is no error of this process
    """Another recorder took this watch over; nothing was written."""


class ActiveRivalError(Fenced):
    """A prober under another Lease records this watch, and is alive; nothing was written."""


def holder_of(name: str, lease: str) -> str:
    """Return the recording process as a checkpoint names it: the process and, if it uses leader
    election, its Lease."""
    return f"{name}{_LEASE}{lease})" if lease else name


class PositionConflict(Exception):  # noqa: N818  # it is no error of this process
    """Postgres is at another position than this recorder left it: go on from there."""


def connection_arguments(database: Mapping[str, Any]) -> dict[str, Any]:
    """psycopg's arguments for an entry of Django's DATABASES."""
    names = {
        "dbname": "NAME",
        "user": "USER",
        "password": "PASSWORD",
        "host": "HOST",
        "port": "PORT",
    }
    given = {key: database.get(name) for key, name in names.items()}
    options = {k: v for k, v in database.get("OPTIONS", {}).items() if k not in _OF_DJANGO}
    session = session_options(options, _SESSION_OPTIONS)
    return {**_SESSION, **session, **{k: v for k, v in given.items() if v}}


class Store(Generic[Row]):
    """One recorder's own connection to Postgres. Blocking: for one thread at a time.

    Every method may raise psycopg.Error, after which `reopen` comes first.
    """

    def __init__(
        self, arguments: Mapping[str, Any], recorder: Recorder[Row], holder: str = ""
    ) -> None:
        self._arguments = dict(arguments)
        self._recorder = recorder
        self._holder = holder
        self._connection: psycopg.Connection[Any] | None = None
        self.checkpoint = Checkpoint(0)
        self.gaps = Gaps()

    def take_over(self) -> Checkpoint:
        """Become the only recorder of this watch, and say how far it was recorded.

        Raises ActiveRivalError where a prober records it that no Lease of ours ends.
        """
        with self._connected().transaction(), self._connected().cursor() as cursor:
            self._refuse_rival(cursor)
            cursor.execute(_TAKE_OVER, [self._recorder.name, self._holder])
            checkpoint = Checkpoint(*(cursor.fetchone() or ()))
            gaps = self._read_gaps(cursor)
        # Not before the commit: an epoch that Postgres never kept would look like another prober's
        # when the take-over is tried again.
        self.checkpoint, self.gaps = checkpoint, gaps
        return checkpoint

    def _refuse_rival(self, cursor: psycopg.Cursor[Any]) -> None:
        """Two probers under one Lease never work at once; of two Leases both would, and each would
        end what only the other sees."""
        cursor.execute(_RIVAL, [self._recorder.name, _ALIVE_SECONDS])
        found = cursor.fetchone()
        lease, rival = (_lease_of(holder) for holder in (self._holder, found[0] if found else ""))
        if lease and rival and lease != rival:
            raise ActiveRivalError(
                f"the prober of Lease {rival} records into this database, and this prober would "
                f"end its records: give both the same IPUHUB_NAMESPACE and IPUHUB_LEASE_PREFIX "
                f"(this prober: Lease {lease}), or stop the other; it counts as stopped after "
                f"{_ALIVE_SECONDS:g} s"
            )

    def commit(self, batch: Batch[Row]) -> list[Fault]:
        """Write a batch and move the checkpoint; return the faults of refused rows.

        Raises Fenced when another recorder took over.
        """
        recorder, known = self._recorder, self.checkpoint
        at = batch.position_at
        connection = self._connected()
        with connection.transaction(), connection.cursor() as cursor:
            # First, so that a take-over waits for this transaction, or this transaction for it.
            values = [batch.resource_version, at, batch.lag_seconds, recorder.name, known.epoch]
            _fenced(cursor, _MOVE, values)
            refused = self._write(cursor, batch.rows, known.cluster_uid, at)
            fault_table.store(cursor, recorder.name, [*batch.faults, *refused], at)
        self.checkpoint = replace(known, resource_version=batch.resource_version, position_at=at)
        return refused

    def replace(
        self, batch: Batch[Row], present: Sequence[str], cluster_uid: str, cause: str
    ) -> tuple[int, list[Fault]]:
        """Write a full list: all rows, the end of what vanished, the gap and the checkpoint.

        If the list equals the recorded objects, nothing was lost in the gap: the record counts as
        complete. Returns how many vanished, and the faults of refused rows. Raises Fenced.
        """
        recorder, known, at = self._recorder, self.checkpoint, batch.position_at
        # What the list lacks may have gone while it was asked for, and come then, too.
        now = batch.answered_at or at
        connection = self._connected()
        name, selection = recorder.name, recorder.selection
        with connection.transaction(), connection.cursor() as cursor:
            values = [batch.resource_version, at, at, cluster_uid, selection]
            values += [recorder.scope.namespace or "", name, known.epoch]
            _fenced(cursor, _LISTED, values)
            came = recorder.unrecorded(cursor, batch.rows)
            refused: list[Fault] = []
            for first in range(0, len(batch.rows), _ROWS_AT_ONCE):
                part = batch.rows[first : first + _ROWS_AT_ONCE]
                refused += self._write(cursor, part, cluster_uid, at)
            seen_until, watched = known.position_at or now, known.namespace
            vanished = 0
            if known.cluster_uid and known.cluster_uid != cluster_uid:
                # The other cluster's objects are out of sight: their rows end, estimated.
                absence = VanishedObjects((), known.cluster_uid, seen_until, now, watched)
                vanished += recorder.vanish(cursor, absence)
            absence = VanishedObjects(present, cluster_uid, seen_until, now, watched)
            vanished += recorder.vanish(cursor, absence)
            loss = bool(came or vanished or not self._is_comparable(batch, cluster_uid))
            if known.position_at is not None:
                explanation = cause if loss else f"{cause}; {_NONE_SHOWN}"
                cursor.execute(_GAP, [name, known.position_at, now, explanation, loss])
            fault_table.store(cursor, name, [*batch.faults, *refused], now)
            gaps = self._read_gaps(cursor)
        self.gaps = gaps
        version = batch.resource_version
        namespace = recorder.scope.namespace or ""
        self.checkpoint = Checkpoint(known.epoch, cluster_uid, version, selection, at, namespace)
        return vanished, refused

    def _is_comparable(self, batch: Batch[Row], cluster_uid: str) -> bool:
        """Return whether a full list that lacks nothing and adds nothing says that nothing was
        missed."""
        known = self.checkpoint
        return (
            (known.cluster_uid, known.selection) == (cluster_uid, self._recorder.selection)
            and is_reached(known.resource_version, batch.resource_version)
            and not any(fault.code == UNREADABLE for fault in batch.faults)
        )

    def reopen(self, unsure: str = "") -> None:
        """Connect again, and make sure that Postgres is where it was left.

        `unsure` is the version of a commit whose outcome is unknown. Raises Fenced or
        PositionConflict.
        """
        self.close()
        with self._connected().cursor() as cursor:
            cursor.execute(_READ, [self._recorder.name])
            found = Checkpoint(*(cursor.fetchone() or (0,)))
        checkpoint = self.checkpoint
        if not checkpoint.epoch:  # not taken over yet
            return
        if found.epoch != checkpoint.epoch:
            raise Fenced
        self.checkpoint = found
        if found.resource_version not in {checkpoint.resource_version, unsure}:
            raise PositionConflict

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = connect(self._arguments, autocommit=True)
        return self._connection

    def _read_gaps(self, cursor: psycopg.Cursor[Any]) -> Gaps:
        cursor.execute(_GAPS, [self._recorder.name])
        return Gaps(*(cursor.fetchone() or ()))

    def _write(
        self, cursor: psycopg.Cursor[Any], rows: Sequence[Row], cluster_uid: str, at: datetime
    ) -> list[Fault]:
        """Write rows; where Postgres refuses them, halves of them, down to the row at fault."""
        if not rows:
            return []
        try:
            with cursor.connection.transaction():
                self._recorder.write(cursor, rows, cluster_uid, at)
        except (psycopg.Error, UnicodeError, OverflowError) as error:
            if not is_refusal(error):
                raise
            if len(rows) == 1:
                subject = self._recorder.subject(rows[0])
                return [Fault(subject, "refused", f"Postgres refused it: {error}", repr(rows[0]))]
            half = len(rows) // 2
            refused = self._write(cursor, rows[:half], cluster_uid, at)
            return refused + self._write(cursor, rows[half:], cluster_uid, at)
        return []


def is_refusal(error: Exception) -> bool:
    """Return whether PostgreSQL refused the data itself, so that a retry cannot succeed."""
    if not isinstance(error, psycopg.Error):
        return isinstance(error, UnicodeError | OverflowError)
    state = error.sqlstate or ""
    return state.startswith(_REFUSED) or (not state and isinstance(error, psycopg.DataError))


def explain(error: psycopg.Error) -> str:
    """Return why PostgreSQL fails, in one line, with the remedy where it is known."""
    if isinstance(error, _OLDER_TABLES):  # without the statement, which may be a page long
        message = error.diag.message_primary
        return f"the tables are older than this program, run `manage.py migrate`: {message}"
    return " ".join(str(error).split()) or type(error).__name__


def _fenced(cursor: psycopg.Cursor[Any], sql: str, values: list[Any]) -> None:
    cursor.execute(sql, values)
    if cursor.rowcount == 0:
        raise Fenced


def _lease_of(holder: str) -> str:
    return holder.rpartition(_LEASE)[2].removesuffix(")") if _LEASE in holder else ""
