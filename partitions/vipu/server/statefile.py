"""io: the file in which vipu-server stores its partitions.

The file is written as a whole, synced and renamed into place, and its folder synced, before any
answer is sent. A controller that is killed at any instruction finds either the old or the new
state. A file that cannot be parsed is never overwritten: it may be the only record of who holds
which IPUs.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from partitions.vipu.server.records import record_from_json, record_to_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from partitions.vipu.server.records import PartitionRecord

FORMAT = "ipuhub-vipu-server"
VERSION = 1


class StateFileError(Exception):
    """The state file cannot be used; the sentence names it and says what to do."""


class StateFile:
    """The state file of one controller; only one process at a time may hold it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._lines: dict[str, tuple[PartitionRecord, str]] = {}

    def open(self) -> None:
        """Make the folder and lock the file; raises StateFileError when another process has it."""
        lock_path = self.path.with_name(self.path.name + ".lock")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateFileError(
                f"cannot use the state file {self.path}: {error.strerror} ({error.filename})"
            ) from error
        try:
            # The kernel drops this lock with the process, kill -9 included.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise StateFileError(
                f"another vipu-server uses the state file {self.path}: "
                "stop it, or choose another --storage"
            ) from error
        self._lock = lock

    def close(self) -> None:
        """Let another process have the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def load(self) -> list[PartitionRecord]:
        """The stored partitions, none when there is no file yet.

        Raises StateFileError when the file is unreadable, damaged or of a newer version.
        """
        try:
            data = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateFileError(
                f"cannot read the state file {self.path}: {error.strerror}"
            ) from error
        except ValueError as error:
            raise self._damaged(f"it is not JSON ({error})") from error
        return self._records(data)

    def save(self, records: Iterable[PartitionRecord]) -> None:
        """Replace the stored partitions by these; they survive a crash once this returns.

        Raises OSError when the disk refuses; the old state then still stands.
        """
        # A line a partition: readable, and without the slow path that json's indentation takes.
        self._lines = {record.id: (record, self._line(record)) for record in records}
        lines = ",\n".join(line for _, line in self._lines.values())
        text = f'{{"format": "{FORMAT}", "version": {VERSION}, "partitions": [\n{lines}\n]}}\n'
        temporary = self.path.with_name(self.path.name + ".new")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
        self._sync_folder()

    def _line(self, record: PartitionRecord) -> str:
        """The record as text; records never change, so the last save's texts still hold."""
        known = self._lines.get(record.id)
        if known is not None and known[0] is record:
            return known[1]
        return json.dumps(record_to_json(record))

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _records(self, data: Any) -> list[PartitionRecord]:
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise self._damaged("vipu-server did not write it")
        version = data.get("version")
        if version != VERSION:
            raise StateFileError(
                f"the state file {self.path} has version {version}; this vipu-server reads "
                f"{VERSION}: start the version that wrote it, or choose another --storage"
            )
        try:
            records = [record_from_json(partition) for partition in data["partitions"]]
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(f"a partition in it cannot be read ({error!r})") from error
        if len({record.id for record in records}) != len(records):
            raise self._damaged("it holds one partition twice")
        return records

    def _damaged(self, why: str) -> StateFileError:
        return StateFileError(
            f"the state file {self.path} is damaged: {why}. It was left as it is: restore it from "
            "a backup, or move it away to start without partitions"
        )
