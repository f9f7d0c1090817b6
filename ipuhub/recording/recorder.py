"""io: what a kind of record has to say of itself, so that `Recording` can keep it.

A recorder says which objects it watches, makes a row of each, and writes rows. It needs no state:
all it is told may come twice, and rows written again must change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ipuhub.recording.shapes import Fault, ObjectMeta, Subject

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from psycopg import Cursor

    from ipuhub.kube.watch import Scope

__all__ = ["Absence", "Fault", "ObjectMeta", "Recorder", "Subject"]

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Absence:
    """What a full list showed: rows of `cluster_uid` that are not `present` have vanished.

    They were last known at `seen_until`; they went some time between then and `now`. Until then
    only the namespace `watched` was (empty: all of them).
    """

    present: Collection[str]
    cluster_uid: str
    seen_until: datetime
    now: datetime
    watched: str = ""


class Recorder(Protocol[Row]):
    """One kind of record. `write` and `vanish` run inside the transaction of the checkpoint."""

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
        """Make a row of an object, None where it is none of ours.

        `kind` is ADDED, MODIFIED or DELETED (LISTED from a full list), `at` when it was heard.
        What is heard happened after `since`, where that is known. What is broken in it goes to
        `faults`. Raises ValueError where no row can be made.
        """

    def subject(self, row: Row) -> Subject:
        """Who a row is, for the fault of one that Postgres refuses."""

    def write(
        self, cursor: Cursor[Any], rows: Sequence[Row], cluster_uid: str, at: datetime
    ) -> None:
        """Write rows in the order in which they were seen, several of one object among them.

        Data that Postgres refuses may raise: the rows are then tried in smaller parts.
        """

    def unrecorded(self, cursor: Cursor[Any], rows: Sequence[Row]) -> int:
        """Return of how many of `rows` there is no record yet: they came since the last one."""

    def vanish(self, cursor: Cursor[Any], absence: Absence) -> int:
        """End what a full list no longer shows; return how many."""

    async def committed(self, rows: Sequence[Row]) -> None:
        """Hear what is committed now. A crash can come before: not the place for what must be."""
