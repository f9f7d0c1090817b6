"""io: the SQLite file of the embedded API: the objects, and the changes that watches resume from.

A change stores the previous version of its object. The next change of the same object, or the
object itself, has the new version. So each write stores its object twice, once in each table.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Kind = Literal["ADDED", "MODIFIED", "DELETED"]
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS objects (bucket TEXT, namespace TEXT, name TEXT,
    body BLOB NOT NULL, PRIMARY KEY (bucket, namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (id INTEGER PRIMARY KEY, revision INTEGER);
INSERT OR IGNORE INTO counter VALUES (0, 1);
CREATE TABLE IF NOT EXISTS changes (revision INTEGER PRIMARY KEY, type TEXT NOT NULL,
    bucket TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    previous INTEGER, before BLOB, last BLOB);
"""
_REMOVE: Final = "DELETE FROM objects WHERE bucket=? AND namespace=? AND name=?"
_FORGOTTEN_AT_ONCE: Final = 256


class StoredChange(NamedTuple):
    """One change: `before` is the version `previous` of the object, None where it was made; `last`
    is a removed object as of its removal."""

    revision: int
    type: Kind
    bucket: str
    namespace: str
    name: str
    previous: int | None
    before: bytes | None
    last: bytes | None


class StoreFile:
    """The file of one store. Each write is one transaction with its change and the revision."""

    def __init__(self, path: Path) -> None:
        self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        # NORMAL: a commit is handed to the kernel before the answer, which is what outliving a
        # killed process needs; an fsync per write would only add the loss of power.
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=NORMAL")
        self._file.executescript(_TABLES)
        self._forgotten = 0

    def close(self) -> None:
        """Close the file; nothing is lost without it."""
        self._file.close()

    def revision(self) -> int:
        """Return the number of the last write."""
        found: int = self._file.execute("SELECT revision FROM counter").fetchone()[0]
        return found

    def objects(self) -> Iterator[tuple[str, str, str, bytes]]:
        """Yield bucket, namespace, name and body of each object."""
        yield from self._file.execute("SELECT bucket, namespace, name, body FROM objects")

    def changes(self) -> list[StoredChange]:
        """Return the changes that are kept, the newest first: without a hole up to the last write.

        A file of an older version lacks changes that were not kept.
        """
        rows: list[StoredChange] = []
        expected = self.revision()
        for row in self._file.execute("SELECT * FROM changes ORDER BY revision DESC"):
            if row[0] != expected:
                break
            rows.append(StoredChange(*row))
            expected -= 1
        return rows

    def write(self, change: StoredChange, body: bytes | None) -> None:
        """Store the object's `body`, None: remove it, with its change and the revision."""
        self._file.execute("BEGIN IMMEDIATE")
        try:
            key = (change.bucket, change.namespace, change.name)
            if body is None:
                self._file.execute(_REMOVE, key)
            else:
                self._file.execute(
                    "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", (*key, body)
                )
            self._file.execute(
                "INSERT OR REPLACE INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?)", change
            )
            self._file.execute("UPDATE counter SET revision=?", (change.revision,))
            self._file.execute("COMMIT")
        except BaseException:
            if self._file.in_transaction:
                self._file.execute("ROLLBACK")
            raise

    def forget(self, revision: int) -> None:
        """Let the changes up to `revision` go, many at once."""
        if revision - self._forgotten >= _FORGOTTEN_AT_ONCE:
            self._file.execute("DELETE FROM changes WHERE revision <= ?", (revision,))
            self._forgotten = revision
