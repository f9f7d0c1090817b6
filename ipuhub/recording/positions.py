"""io: the time of a watch position, never later than the time up to which the watch is complete.

An event can be old when it is read: it waited in the server's history during an outage, or in
buffers while the reader was busy. So the time of reading is no evidence. The server's response is:
at the time of a request the server is at some version, and a watch that has reached that version
has delivered everything that happened before the request.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from ipuhub.kube.errors import ApiError
from ipuhub.recording.shapes import is_reached

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

log = structlog.get_logger(__name__)
_PROMPT: Final = timedelta(seconds=1)
"""Delay after which a change is on an undisturbed watch. It is never zero, because a server sends a
hundred changes at once and the reader gets only the first of them now."""

_DRAINED: Final = timedelta(milliseconds=10)
"""A reader that waits this long for the next line has read everything before."""

_TICK_SECONDS: Final = 0.25
"""Interval at which the loop is checked: a wait during which it was paused does not count."""


@dataclass(frozen=True, slots=True)
class ServerPosition:
    """The server's answer: everything that happened before `asked_at` is in `version`."""

    asked_at: datetime
    version: str


class PositionClock:
    """Dates the positions of one watch that continues from `version`, known complete at `known_at`.

    `revision` requests the server's current version. Bracket each wait for the watch by `asking`
    and `heard`; call `opening` before each connection.
    """

    def __init__(
        self,
        clock: Callable[[], datetime],
        revision: Callable[[], Awaitable[str]],
        version: str,
        known_at: datetime,
    ) -> None:
        self._clock, self._revision = clock, revision
        self._version, self._known_at = version, known_at
        self._happened_after = known_at
        self._asked_at = self._drained_at = clock()
        self._is_behind = True
        self._mark = ServerPosition(known_at, version)
        self._ticked_at = self._asked_at
        self._ticking: asyncio.TimerHandle | None = None
        self._questioning: asyncio.Task[None] | None = None
        self._questioned_at: datetime | None = None

    @property
    def position(self) -> tuple[str, datetime]:
        """The version that the watch came to, and the time before which all is known there."""
        return self._version, self._known_at

    @property
    def happened_after(self) -> datetime:
        """Return the time after which the last change received happened, even if it came late."""
        return self._happened_after

    async def opening(self) -> str:
        """Ask the server for its version, which is returned: older lines may follow."""
        self._is_behind = True
        if self._ticking is None:
            self._ticked_at = self._clock()
            self._tick_later()
        await self._ask()
        return self._mark.version

    def asking(self) -> None:
        """Note that the reader has read everything and waits for more."""
        self._asked_at = self._clock()
        if self._asked_at - self._drained_at > _PROMPT:
            self._note_delay(self._asked_at)

    def heard(self, version: str) -> tuple[datetime, datetime]:
        """The watch came to `version`: the time now, and the time before which all is known."""
        now, was_behind, before = self._clock(), self._is_behind, self._known_at
        waited, self._version = now - self._asked_at, version
        if waited >= _DRAINED:
            self._drained_at = now
        self._judge(now, waited)
        if not self._is_behind:
            self._known_at = max(self._known_at, self._drained_at - _PROMPT)
        # Received late, it may be as old as the unknown time before.
        self._happened_after = before if was_behind else self._known_at
        return now, self._known_at

    def close(self) -> None:
        """Ask no more."""
        for task in (self._questioning, self._ticking):
            if task is not None:
                task.cancel()

    def _tick_later(self) -> None:
        # A callback, no task: after a standstill it comes before the reader that has woken, too.
        self._ticking = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        """Detect whether the process was paused (by its machine or scheduler): a reader that seems
        to have waited then has not read the events of that time."""
        now = self._clock()
        if now - self._ticked_at > _PROMPT:
            self._asked_at = now
            self._note_delay(now)
        self._ticked_at = now
        self._tick_later()

    def _note_delay(self, now: datetime) -> None:
        """Note a delay: what is read next can be as old as the last time without a delay."""
        self._is_behind, self._drained_at = True, now
        self._question()

    def _judge(self, now: datetime, waited: timedelta) -> None:
        """See whether the watch has come to what the server said, and whether that was just now."""
        mark = self._mark
        if not self._is_behind or not is_reached(mark.version, self._version):
            return
        self._known_at = max(self._known_at, mark.asked_at)
        if now - mark.asked_at <= _PROMPT or waited > _PROMPT:
            self._is_behind, self._drained_at = False, now
        else:  # as much may be under way again
            self._question()

    def _question(self) -> None:
        """Ask the server in the background: one request at a time, with a pause between two."""
        now, last = self._clock(), self._questioned_at
        if self._questioning is None and (last is None or now - last >= _PROMPT):
            self._questioned_at = now
            self._questioning = asyncio.create_task(self._try())

    async def _try(self) -> None:
        try:
            await self._ask()
        except ApiError as error:  # tried again with the next message
            log.info("the position's time stays: the server does not say its own", why=str(error))
        finally:
            self._questioning = None

    async def _ask(self) -> None:
        asked_at = self._clock()
        self._mark = ServerPosition(asked_at, await self._revision())
        self._judge(self._clock(), timedelta(0))
