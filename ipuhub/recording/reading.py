"""io: makes a batch of what a watch or a list showed; nothing that is shown stops it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from ipuhub.recording.buffer import Batch
from ipuhub.recording.decoding import BOOKMARK, subject_of
from ipuhub.recording.recorder import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ipuhub.recording.decoding import Change
    from ipuhub.recording.recorder import Recorder

Row = TypeVar("Row")
log = structlog.get_logger(__name__)


class Reader(Generic[Row]):
    """Asks a recorder for the row of each change; what it cannot read becomes a fault."""

    def __init__(self, recorder: Recorder[Row]) -> None:
        self._recorder = recorder

    def read(
        self,
        changes: Sequence[Change],
        at: datetime,
        position_at: datetime | None = None,
        since: datetime | None = None,
    ) -> Batch[Row]:
        """Make a batch of changes heard `at`, in their order; the last one gives its position.

        `position_at`: the time before which all is known at that position, where it is another.
        `since`: all of the changes happened after this.
        """
        version = changes[-1].resource_version
        batch: Batch[Row] = Batch(version, position_at or at, events=len(changes))
        read, rows, faults = self._recorder.read, batch.rows, batch.faults
        for change in changes:
            if change.manifest is None:
                self._keep_fault(change, faults)
                continue
            try:
                row = read(change.kind, change.manifest, faults, at, since)
            # One object must never stop the recording of all others.
            except Exception as error:  # noqa: BLE001
                faults.append(_unreadable(change, error))
                continue
            if row is not None:
                rows.append(row)
        return batch

    def read_page(self, changes: Sequence[Change], at: datetime) -> tuple[Batch[Row], list[str]]:
        """Make a batch of a page of a list, and tell the UIDs of all that are there."""
        batch = self.read(changes, at) if changes else Batch("", at)
        subjects = (change.subject or subject_of(change.manifest) for change in changes)
        return batch, [subject.uid for subject in subjects]

    def _keep_fault(self, change: Change, faults: list[Fault]) -> None:
        if change.kind != BOOKMARK and change.fault is not None:
            faults.append(change.fault)


def _unreadable(change: Change, error: Exception) -> Fault:
    subject = subject_of(change.manifest)
    if not isinstance(error, ValueError):
        log.error("a recorder failed on an object", uid=subject.uid, exc_info=error)
    return Fault(subject, "unreadable", f"{type(error).__name__}: {error}")
