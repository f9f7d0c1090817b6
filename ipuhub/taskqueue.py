"""glue: PostgreSQL as Celery's broker: tasks wait in a table that every pod can reach.

A task is queued in its caller's transaction. A worker claims a message for some time and deletes it
when its task starts. If the worker dies, the message can be claimed again after that time.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty
from typing import TYPE_CHECKING, Any, Final

from django.db import (
    DatabaseError,
    InterfaceError,
    OperationalError,
    ProgrammingError,
    connection,
)
from kombu.transport import TRANSPORT_ALIASES, virtual

from ipuhub.patientpostgres.connection import SILENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

URL: Final = "postgresql-table://localhost"
CLAIM_SECONDS: Final = 600
POLLING_SECONDS: Final = 1.0
"""Interval at which an idle worker polls; a poll is one indexed query."""

_PUT: Final = """
INSERT INTO ipuhub_taskmessage (queue, body, queued_at) VALUES (%s, %s, now())
"""
# Only periodic tasks expire: while no worker runs, one of each kind waits, and not one a period.
_DROP_EXPIRED: Final = """
DELETE FROM ipuhub_taskmessage
WHERE queue = %s AND (claimed_until IS NULL OR claimed_until < now())
  AND (body::jsonb #>> '{headers,expires}')::timestamptz < now()
"""
_CLAIM: Final = """
UPDATE ipuhub_taskmessage SET claimed_until = now() + %s * interval '1 second'
WHERE id = (
    SELECT id FROM ipuhub_taskmessage
    WHERE queue = %s AND (claimed_until IS NULL OR claimed_until < now())
    ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, body
"""
_DONE: Final = "DELETE FROM ipuhub_taskmessage WHERE id = %s"
_GIVE_BACK: Final = "UPDATE ipuhub_taskmessage SET claimed_until = NULL WHERE id = %s"
_COUNT: Final = "SELECT count(*) FROM ipuhub_taskmessage WHERE queue = %s"
_HAS_TABLE: Final = "SELECT 1 FROM ipuhub_taskmessage LIMIT 1"
_PURGE: Final = "DELETE FROM ipuhub_taskmessage WHERE queue = %s"


@dataclass
class Contact:
    """The last contact with PostgreSQL (`problem`: why it does not answer; empty: it does).

    `missing` returns why there is more to wait for than the queue's table, or nothing.
    """

    problem: str = ""
    look: Callable[[], None] = lambda: None
    missing: Callable[[], str] = lambda: ""


CONTACT: Final = Contact()


class QoS(virtual.QoS):
    """The messages that are claimed here; they stay in the table until they are acknowledged."""

    def ack(self, delivery_tag: str) -> None:
        """Delete the message: its task starts."""
        self.channel.settle(_DONE, delivery_tag)
        super().ack(delivery_tag)  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give the message back, or delete it."""
        self.channel.settle(_GIVE_BACK if requeue else _DONE, delivery_tag)
        super().ack(delivery_tag)  # type: ignore[no-untyped-call]


class Channel(virtual.Channel):
    """Messages of queues in one table."""

    QoS = QoS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call]
        self._claimed: dict[str, int] = {}

    def settle(self, statement: str, delivery_tag: str) -> None:
        """Run `statement` on a claimed message, once."""
        number = self._claimed.pop(delivery_tag, None)
        if number is not None:
            _run(statement, [number])

    def _put(self, queue: str, message: dict[str, Any], **_options: Any) -> None:
        if message.get("headers", {}).get("expires"):
            _run(_DROP_EXPIRED, [queue])
        _run(_PUT, [queue, json.dumps(message)])

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        del timeout
        found = _run(_CLAIM, [CLAIM_SECONDS, queue])
        if not found:
            raise Empty
        ((number, body),) = found
        message: dict[str, Any] = json.loads(body)
        self._claimed[message["properties"]["delivery_tag"]] = number
        return message

    def _restore(self, message: Any) -> None:
        self.settle(_GIVE_BACK, message.delivery_tag)

    def _restore_at_beginning(self, message: Any) -> None:
        self._restore(message)

    def _size(self, queue: str) -> int:
        return int(_run(_COUNT, [queue])[0][0])

    def _purge(self, queue: str) -> int:
        size = self._size(queue)
        _run(_PURGE, [queue])
        return size


class Transport(virtual.Transport):
    """The queue as Celery sees it."""

    Channel = Channel
    polling_interval = POLLING_SECONDS
    driver_type = "postgresql"
    driver_name = "psycopg"
    connection_errors: Any = (
        *virtual.Transport.connection_errors,
        OperationalError,
        InterfaceError,
    )
    channel_errors: Any = (*virtual.Transport.channel_errors, DatabaseError)

    def drain_events(self, connection: Any, timeout: Any = None, **_: Any) -> Any:
        """Look for tasks, for `timeout` seconds."""
        CONTACT.look()
        return super().drain_events(connection, timeout)  # type: ignore[no-untyped-call]

    def establish_connection(self) -> Any:
        """Raise OperationalError until PostgreSQL answers and is migrated; Celery tries again."""
        CONTACT.look()
        _find_table()
        return super().establish_connection()  # type: ignore[no-untyped-call]


def register() -> None:
    """Let Celery find the queue under `URL`."""
    TRANSPORT_ALIASES[URL.partition(":")[0]] = f"{__name__}:Transport"


def try_database() -> None:
    """Find out whether PostgreSQL answers, for `CONTACT`."""
    with suppress(DatabaseError, InterfaceError):
        _find_table()


def _find_table() -> None:
    """Raise OperationalError without a table: in a new installation the dashboard makes it, while
    workers start."""
    try:
        _run(_HAS_TABLE, [], CONTACT.missing)
    except ProgrammingError as error:
        CONTACT.problem = f"waiting for migrations: {' '.join(str(error).split())}"
        raise OperationalError(CONTACT.problem) from error
    if CONTACT.problem:
        raise OperationalError(CONTACT.problem)


def _run(
    statement: str, parameters: list[Any], missing: Callable[[], str] = lambda: ""
) -> list[tuple[Any, ...]]:
    """Run a statement on this thread's connection; a broken connection is closed, for the next
    try."""
    try:
        with connection.cursor() as cursor, connection.connection.at_most(SILENCE_SECONDS):
            cursor.execute(statement, parameters)
            found = cursor.fetchall() if cursor.description else []
            problem = missing()
    except (InterfaceError, OperationalError) as error:
        CONTACT.problem = " ".join(str(error).split()) or type(error).__name__
        if not connection.in_atomic_block:
            connection.close()
        raise
    CONTACT.problem = problem
    return found
