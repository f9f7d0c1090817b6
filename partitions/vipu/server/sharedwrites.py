"""io: the state of a controller and its file: a change takes effect once it is stored.

Changes that arrive while the file is being written share the next write: a sync of the disk takes
as long for one change as for many.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from partitions.vipu.errors import NotStored
from partitions.vipu.server.records import PartitionRecord
from partitions.vipu.server.state import Draft, Removed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime
    from typing import TypeAlias

    from partitions.vipu.server.state import State
    from partitions.vipu.server.statefile import StateFile

    # Puts a new record, or takes a record away; raises VipuError before it does either.
    Change: TypeAlias = Callable[[Draft], None]

log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class _Waiting:
    """A change whose caller waits until it is on disk, or refused."""

    change: Change
    is_done: bool = False
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Since when the state file cannot be written, and why."""

    since: datetime
    reason: str


class SharedWrites:
    """Changes a state from many threads; `state` is what is on disk.

    Readers need no lock: the state is replaced whole, never changed. `unwritten` is set from a
    write that failed to the next one that does not.
    """

    def __init__(self, file: StateFile, state: State, clock: Callable[[], datetime]) -> None:
        self.file = file
        self.state = state
        self.unwritten: Unwritten | None = None
        # Called when writes begin to fail, and when one succeeds again.
        self.on_failure: Callable[[Unwritten | None], None] = _nothing
        self._clock = clock
        # Called with the ids of changed partitions after each write, one call at a time.
        self.on_change: Callable[[Collection[str]], None] = _nothing
        # Called with a draft in which IPUs became free, taken or closed, to change what follows
        # from that; what it returns is called once the draft is stored.
        self.settle: Callable[[Draft], Callable[[], None]] = _settled
        self._writing = threading.Lock()
        self._queueing = threading.Lock()
        self._queue: list[_Waiting] = []

    @property
    def waiting(self) -> int:
        """Return the number of changes that wait for the next write."""
        return len(self._queue)

    def write(self, change: Change) -> None:
        """Store a change, together with all others that are waiting; raises what it raises, or
        NotStored."""
        mine = _Waiting(change)
        with self._queueing:
            self._queue.append(mine)
        with self._writing:
            if not mine.is_done:
                self._write_all(self._taken())
        if mine.error is not None:
            raise mine.error

    def _taken(self) -> Sequence[_Waiting]:
        with self._queueing:
            taken, self._queue = self._queue, []
            return taken

    def _write_all(self, batch: Sequence[_Waiting]) -> None:
        """Make the changes the truth, on disk first: an answer must never outrun the file."""
        draft = Draft(self.state)
        for waiting in batch:
            try:
                waiting.change(draft)
            except Exception as error:  # noqa: BLE001  # it goes to its caller
                waiting.error = error
        failure = self._saved(draft)
        for waiting in batch:
            waiting.error = waiting.error or failure
            waiting.is_done = True

    def _saved(self, draft: Draft) -> Exception | None:
        """Settle a draft, store it and make it what is; what keeps the controller from it."""
        tell = _nobody
        try:
            if draft.occupancy is not self.state.occupancy:
                tell = self.settle(draft)
            if draft.changes:
                self.file.save(draft.changes, draft.state)
        except OSError as error:
            log.warning("state file not written", path=str(self.file.path), error=str(error))
            self._note(str(error))
            return NotStored(f"the controller cannot write its state file: {error}")
        except Exception as error:  # noqa: BLE001  # it goes to all who wait
            return error
        if draft.changes:
            self._note("")
        self.state = draft.state
        partitions = (
            change for change in draft.changes if isinstance(change, PartitionRecord | Removed)
        )
        if changed := {change.id for change in partitions}:
            self.on_change(changed)
        tell()
        return None

    def _note(self, problem: str) -> None:
        """Take note of the outcome of a write, "" if it has succeeded."""
        before = self.unwritten
        since = before.since if before else self._clock()
        self.unwritten = Unwritten(since, problem) if problem else None
        if (before is None) != (self.unwritten is None):
            self.on_failure(self.unwritten)


def _settled(draft: Draft) -> Callable[[], None]:
    """Change nothing."""
    del draft
    return _nobody


def _nobody() -> None:
    """Do nothing."""


def _nothing(change: object) -> None:
    """Ignore a change: no observer is set."""
    del change
