"""io: the events of a controller, in its log and for administrators."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

KEPT: Final = 1000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Event:
    """One change, with facts such as the agent and the partition."""

    at: datetime
    what: str
    facts: Mapping[str, str]


class Events:
    """The last changes since the start, the oldest first; safe to call from many threads."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept = deque[Event](maxlen=KEPT)
        self._count = 0

    def note(self, what: str, *, is_bad: bool = False, **facts: object) -> None:
        """Keep a change, and write it to the log; `is_bad` as a warning."""
        (log.warning if is_bad else log.info)(what, **facts)
        event = Event(self._clock(), what, {name: str(fact) for name, fact in facts.items()})
        with self._lock:
            self._kept.append(event)
            self._count += 1

    def last(self) -> tuple[list[Event], int]:
        """The events that are kept, and how many older events are not."""
        with self._lock:
            return list(self._kept), self._count - len(self._kept)
