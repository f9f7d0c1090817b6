"""A watch cache that follows the fake API server as slowly, or as badly, as a test wants."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from jobs.operator.observer import BY_UID, by_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from tests.fakes.kube import Change, FakeKube, Manifest

    Handler = Callable[[Manifest | None, Manifest | None], None]

RELIST_SECONDS = 60.0
STALL_SECONDS = 45.0  # longer than an operator waits for its own writes to show up


@dataclass
class Feed:
    """The behaviour of an operator's watches.

    `drop`: the event of this number never arrives, until the resource is listed again a minute
    later. `stall`: the watch stands still at that event. `lag` gives the seconds each event of a
    resource takes. `from_past`: how old the first lists are (seconds), and for how long.
    """

    drop: int | None = None
    stall: int | None = None
    lag: Callable[[str, datetime], float] = field(default=lambda _plural, _now: 0.0)
    from_past: float = 0.0


class LogCache:
    """Follows one resource by the server's log of changes."""

    def __init__(
        self, kube: FakeKube, plural: str, trim: Callable[[Manifest], Manifest] | None = None
    ) -> None:
        self._kube = kube
        self._plural = plural
        self._trim = trim or (lambda manifest: manifest)
        self._store: dict[tuple[str, str], Manifest] = {}
        self._at = 0
        self._relist_at: datetime | None = None
        self._born = kube.now()
        self._version = 0
        self.handlers: list[Handler] = []

    @property
    def resource_version(self) -> str:
        return str(self._version)

    def get(self, namespace: str, name: str) -> Manifest | None:
        return self._store.get((namespace, name))

    def by_index(self, index: str, value: str) -> list[Manifest]:
        if index == BY_UID:
            return [m for m in self._store.values() if m["metadata"]["uid"] == value]
        return [m for m in self._store.values() if value in by_job(m)]

    def all(self) -> list[Manifest]:
        return list(self._store.values())

    def relist(self, older_by: float = 0.0) -> None:
        """Takes in everything up to a moment, however the events before it were treated."""
        now, log = self._kube.now(), self._kube.changes
        seen: dict[tuple[str, str], Manifest] = {}
        self._at = 0
        while self._at < len(log) and (now - log[self._at].at).total_seconds() >= older_by:
            change = log[self._at]
            self._at += 1
            self._version = change.version
            if change.plural == self._plural:
                seen.pop(change.place, None)
                if not change.is_gone:
                    seen[change.place] = self._trim(change.manifest)
        for place in [place for place in self._store if place not in seen]:
            self._put(place, None)
        for place, manifest in seen.items():
            if self._store.get(place) is not manifest:
                self._put(place, manifest)

    def advance(self, feed: Feed) -> None:
        """Takes in what arrives now."""
        now, log = self._kube.now(), self._kube.changes
        if self._relist_at is not None and now >= self._relist_at:
            self._relist_at = None
            self.relist()
        while self._at < len(log):
            change, number = log[self._at], self._at
            if self._is_late(change, number, feed, now):
                return
            self._at += 1
            self._version = change.version
            if change.plural != self._plural:
                continue
            if number == feed.drop:
                self._relist_at = now + timedelta(seconds=RELIST_SECONDS)
                continue
            place = change.place
            self._put(place, None if change.is_gone else self._trim(change.manifest))

    @property
    def is_behind(self) -> bool:
        """Something is still to arrive."""
        return self._at < len(self._kube.changes) or self._relist_at is not None

    def _is_late(self, change: Change, number: int, feed: Feed, now: datetime) -> bool:
        if (now - self._born).total_seconds() < feed.from_past:
            return True
        if number == feed.stall and change.plural == self._plural:
            return (now - change.at).total_seconds() < STALL_SECONDS
        return (now - change.at).total_seconds() < feed.lag(self._plural, now)

    def _put(self, place: tuple[str, str], new: Manifest | None) -> None:
        old = self._store.pop(place, None)
        if new is not None:
            self._store[place] = new
        if old is None and new is None:
            return
        for handler in self.handlers:
            handler(old, new)
