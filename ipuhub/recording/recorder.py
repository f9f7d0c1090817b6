"""io: the interface of a recorder, which `Recording` drives, and the record of faults.

A recorder says which objects it watches, turns each into a row, and writes rows. It needs no state:
everything can come twice, and rows written again must change nothing. An object that could not be
recorded as it is gets one fault row per kind of fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ipuhub.recording.shapes import Fault, ObjectMeta, Subject

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from psycopg import Cursor

    from ipuhub.kube.watch import Scope

__all__ = ["Fault", "ObjectMeta", "Recorder", "Subject", "VanishedObjects"]
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class VanishedObjects:
    """The result of a full list: rows of `cluster_uid` that are not `present` have vanished.

    They were last known at `seen_until`; they went some time between then and `now`. Until then
    only the namespace `watched` was (empty: all of them).
    """

    present: Collection[str]
    cluster_uid: str
    seen_until: datetime
    now: datetime
    watched: str = ""


class Recorder(Protocol[Row]):
    """A kind of record. `write` and `vanish` run inside the transaction of the checkpoint."""

    name: str
    """Name of the checkpoint, of the metrics and of the readiness check."""

    scope: Scope
    """What is watched."""

    selection: str
    """What is kept of it, in words that change when that changes: then it is listed anew."""

    manifest: type[Any]
    """What an object is decoded to: `dict`, or a msgspec Struct with `metadata: ObjectMeta`."""

    def read(
        self,
        kind: str,
        manifest: Any,
        faults: list[Fault],
        at: datetime,
        since: datetime | None = None,
    ) -> Row | None:
        """Make a row of an object, None if it does not concern this recorder.

        `kind` is ADDED, MODIFIED or DELETED (LISTED from a full list), `at` is when it was
        received. It happened after `since`, if that is known. Invalid parts go to `faults`. Raises
        ValueError if no row can be made.
        """

    def subject(self, row: Row) -> Subject:
        """Return the identity of a row, for the fault of a row that PostgreSQL refuses."""

    def write(
        self, cursor: Cursor[Any], rows: Sequence[Row], cluster_uid: str, at: datetime
    ) -> None:
        """Write rows in the order in which they were seen, several of one object among them.

        Data that Postgres refuses may raise: the rows are then tried in smaller parts.
        """

    def unrecorded(self, cursor: Cursor[Any], rows: Sequence[Row]) -> int:
        """Return of how many of `rows` there is no record yet: they came since the last record."""

    def vanish(self, cursor: Cursor[Any], absence: VanishedObjects) -> int:
        """End what a full list no longer shows; return how many."""

    async def committed(self, rows: Sequence[Row]) -> None:
        """Handle a commit. A crash can come before this call, so nothing essential may depend on
        it."""


LONGEST_EXCERPT: Final = 2_000
# The same fault seen again (a restart, a relist, the next change of the object) is no new fault.
_STORE: Final = """
INSERT INTO ipuhub_recordfault AS known
    (watch, uid, namespace, name, code, message, excerpt, count, first_at, last_at)
VALUES (%(watch)s, %(uid)s, %(namespace)s, %(name)s, %(code)s, %(message)s, %(excerpt)s, 1,
    %(at)s, %(at)s)
ON CONFLICT (watch, uid, code) DO UPDATE SET
    namespace = excluded.namespace, name = excluded.name, message = excluded.message,
    excerpt = excluded.excerpt, count = known.count + 1, last_at = excluded.last_at
WHERE (known.message, known.excerpt) IS DISTINCT FROM (excluded.message, excluded.excerpt)
"""


def store(cursor: Cursor[Any], watch: str, faults: Iterable[Fault], at: datetime) -> None:
    """Keep faults of the recorder `watch`; the same again changes nothing."""
    # Of several in one batch the last wins.
    latest = {(fault.subject.uid, fault.code): fault for fault in faults}
    values = [_values(watch, fault, at) for fault in latest.values()]
    if values:
        cursor.executemany(_STORE, values)


def _values(watch: str, fault: Fault, at: datetime) -> dict[str, Any]:
    subject = fault.subject
    return {
        "watch": watch,
        "uid": storable(subject.uid),
        "namespace": storable(subject.namespace),
        "name": storable(subject.name),
        "code": fault.code,
        "message": storable(fault.message),
        "excerpt": storable(fault.excerpt[:LONGEST_EXCERPT]),
        "at": at,
    }


def storable(text: str) -> str:
    """`text` as Postgres takes it: NUL characters and lone surrogates become U+FFFD."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
