"""io: buffer between the thread that generates a response and the connection of its reader.

The thread runs ahead of a slow reader and is free for the next request; unread data waits in
unlinked files. All responses share one budget for such data. Without budget, a response continues
at the pace of its reader.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from threading import Condition, Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

IN_MEMORY_BYTES: Final = 256 * 1024
"""Memory that each answer may use, regardless of the others."""

TAKEN_BYTES: Final = 256 * 1024
_SEGMENT_BYTES: Final = 4 * 1024 * 1024


class ReaderGone(Exception):  # noqa: N818  # the reader's doing
    """The reader of this response has disconnected."""


class Budget:
    """Bytes that all responses together may buffer in files.

    A single response gets at most an eighth, so that a slow reader cannot use up the budget.
    """

    def __init__(self, size: int) -> None:
        self.share = size // 8
        self._left = size
        self._lock = Lock()

    @property
    def remaining(self) -> int:
        return self._left

    def take(self, size: int) -> bool:
        """Take so many, or none."""
        with self._lock:
            if size > self._left:
                return False
            self._left -= size
            return True

    def give(self, size: int) -> None:
        with self._lock:
            self._left += size


@dataclass(slots=True)
class _Segment:
    file: SpooledTemporaryFile[bytes]
    written: int = 0
    read: int = 0

    def append(self, block: bytes) -> None:
        self.file.seek(self.written)
        self.file.write(block)
        self.written += len(block)

    def take(self, size: int) -> bytes:
        self.file.seek(self.read)
        block = self.file.read(size)
        self.read += len(block)
        return block


class ResponseBuffer:
    """The body of one response. `wake` is called in the thread when a waiting reader can
    continue."""

    def __init__(self, budget: Budget, wake: Callable[[], None]) -> None:
        self._budget, self._wake = budget, wake
        self._changed = Condition()
        self._segments: deque[_Segment] = deque()
        self._pending = 0
        self._borrowed = 0
        self._reader_waits = True
        self._has_ended = self._is_gone = False
        self.error: BaseException | None = None

    def put(self, block: bytes) -> None:
        """Add a block; wait for the reader if there is no budget. Raise ReaderGone if it
        disconnected."""
        with self._changed:
            while not self._is_gone and not self._has_room(len(block)):
                self._changed.wait()
            if self._is_gone:
                raise ReaderGone
            if not self._segments or self._segments[-1].written >= _SEGMENT_BYTES:
                file = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  # `leave` closes it
                self._segments.append(_Segment(file))
            self._segments[-1].append(block)
            self._pending += len(block)
            self._wake_reader()

    def end(self, error: BaseException | None = None) -> None:
        """Mark the end of the body; with an error, abort the response."""
        with self._changed:
            self._has_ended, self.error = True, error
            self._wake_reader()

    def take(self) -> bytes | None:
        """Return available data, up to TAKEN_BYTES; b"" if there is none yet, None at the end.

        After b"" the next block wakes the reader.
        """
        with self._changed:
            if not self._segments:
                self._reader_waits = not self._has_ended
                return None if self._has_ended else b""
            first = self._segments[0]
            block = first.take(TAKEN_BYTES)
            if first.read == first.written:
                first.file.close()
                self._segments.popleft()
            self._pending -= len(block)
            self._give_back()
            self._changed.notify()
            return block

    def leave(self) -> None:
        """Mark the reader as gone, and release all buffers."""
        with self._changed:
            self._is_gone = True
            for segment in self._segments:
                segment.file.close()
            self._segments.clear()
            self._pending = 0
            self._give_back()
            self._changed.notify()

    def _has_room(self, size: int) -> bool:
        more = self._pending + size - IN_MEMORY_BYTES - self._borrowed
        if more <= 0 or not self._pending:  # a block larger than any bound must pass, alone
            return True
        if self._borrowed + more > self._budget.share or not self._budget.take(more):
            return False
        self._borrowed += more
        return True

    def _give_back(self) -> None:
        needed = max(0, self._pending - IN_MEMORY_BYTES)
        if self._borrowed > needed:
            self._budget.give(self._borrowed - needed)
            self._borrowed = needed

    def _wake_reader(self) -> None:
        if self._reader_waits:
            self._reader_waits = False
            self._wake()
