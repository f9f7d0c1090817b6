"""io: writes core/v1 Events: counts repeats instead of writing new Events, and limits their
rate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

import structlog

from ipuhub.kube.errors import ApiError, NotFound
from ipuhub.kube.resources import EVENTS
from ipuhub.times import format_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ipuhub.kube.client import KubeClient
    from ipuhub.kube.resources import Manifest

log = structlog.get_logger(__name__)
K = TypeVar("K")
V = TypeVar("V")

_SAME_FOR: Final = timedelta(minutes=10)
_BURST: Final = 25  # Events of one object at once; then one Event in five minutes, as in client-go
_REFILL: Final = timedelta(minutes=5)
_REMEMBERED: Final = 4096
_MESSAGE_BYTES: Final = 1024  # the API's limit
_NAME_LENGTH: Final = 253


@dataclass(slots=True)
class _Seen:
    namespace: str
    name: str
    count: int
    last_at: datetime


@dataclass(slots=True)
class _Budget:
    remaining: float
    at: datetime

    def amount(self, now: datetime) -> float:
        return min(_BURST, self.remaining + (now - self.at) / _REFILL)


class EventRecorder:
    """Writes Events in the name of `component`. `clock` gives aware UTC times."""

    def __init__(self, client: KubeClient, component: str, clock: Callable[[], datetime]) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._seen: dict[tuple[str, ...], _Seen] = {}
        self._budgets: dict[str, _Budget] = {}
        self.dropped = 0
        """Events not written: over an object's budget, or refused by the server."""

    async def record(
        self,
        regarding: Manifest,
        *,
        type: str = "Normal",  # noqa: A002  # the API's word
        reason: str,
        message: str,
        at: datetime | None = None,
    ) -> None:
        """Say `message` about `regarding`. The same again within 10 minutes is counted up.

        `at`: when it happened; None: now. Never raises ApiError: an Event that cannot be written is
        logged and dropped.
        """
        now = at or self._clock()
        identity = _identity(regarding)
        text = _cut(message)
        if not self._may_write(identity, now):
            self.dropped += 1
            return
        key = (identity, type, reason, text)
        try:
            seen = self._seen.get(key)
            if seen is not None and now - seen.last_at < _SAME_FOR and await self._count(seen, now):
                _remember(self._seen, key, seen)
                return
            event = {**self._about(regarding, now), "type": type, "reason": reason, "message": text}
            created = await self._client.create(EVENTS, event)
        except ApiError as error:
            self.dropped += 1
            log.warning("event not written", reason=reason, about=identity, problem=str(error))
            return
        metadata = created["metadata"]
        fresh = _Seen(metadata["namespace"], metadata["name"], 1, now)
        _remember(self._seen, key, fresh)
        self._forget_old(now)

    def _forget_old(self, now: datetime) -> None:
        """Drop what would not be counted up any more; the oldest stand first."""
        while now - next(iter(self._seen.values())).last_at >= _SAME_FOR:
            del self._seen[next(iter(self._seen))]

    def _may_write(self, identity: str, now: datetime) -> bool:
        budget = self._budgets.pop(identity, None) or _Budget(_BURST, now)
        budget.remaining = budget.amount(now)
        budget.at = now
        _remember(self._budgets, identity, budget)
        if budget.remaining < 1:
            return False
        budget.remaining -= 1
        self._forget_full(now)
        return True

    def _forget_full(self, now: datetime) -> None:
        """Drop budgets that are full again; the least recently used are first.

        A budget that was just used is not full.
        """
        while next(iter(self._budgets.values())).amount(now) >= _BURST:
            del self._budgets[next(iter(self._budgets))]

    async def _count(self, seen: _Seen, now: datetime) -> bool:
        seen.count += 1
        change = {"count": seen.count, "lastTimestamp": format_time(now)}
        try:
            await self._client.patch(EVENTS, seen.name, change, seen.namespace)
        except NotFound:
            return False  # Events expire after an hour, and with their namespace
        seen.last_at = now
        return True

    def _about(self, regarding: Manifest, now: datetime) -> Manifest:
        metadata = regarding["metadata"]
        suffix = f".{uuid4().hex[:16]}"
        involved = {
            "apiVersion": regarding.get("apiVersion"),
            "kind": regarding.get("kind"),
            **{key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")},
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": metadata["name"][: _NAME_LENGTH - len(suffix)].rstrip(".-") + suffix,
                # Events of cluster-wide objects live in "default"; kubectl looks there.
                "namespace": metadata.get("namespace") or "default",
            },
            "involvedObject": {key: value for key, value in involved.items() if value},
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._component,
            "firstTimestamp": format_time(now),
            "lastTimestamp": format_time(now),
            "count": 1,
        }


def _identity(regarding: Manifest) -> str:
    metadata = regarding["metadata"]
    namespace = metadata.get("namespace", "")
    return metadata.get("uid") or f"{regarding.get('kind')} {namespace}/{metadata['name']}"


def _cut(message: str) -> str:
    """Cut a message to the API's limit, between characters."""
    raw = message.encode()
    if len(raw) <= _MESSAGE_BYTES:
        return message
    return raw[: _MESSAGE_BYTES - 3].decode(errors="ignore") + "..."


def _remember(entries: dict[K, V], key: K, value: V) -> None:
    """Put an entry last; if there are too many, drop the least recently used."""
    entries.pop(key, None)
    if len(entries) >= _REMEMBERED:
        del entries[next(iter(entries))]
    entries[key] = value
