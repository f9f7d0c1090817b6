"""io: watches: the filtered changes of one resource as a stream of events with bookmarks."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from devcluster.status import StatusError, expired
from devcluster.storage.store import Item
from ipuhub.concurrency import wait_set

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Any

    from devcluster.schemas.kinds import Kind
    from devcluster.storage.store import Change, Store

BOOKMARK_SECONDS: Final = 60.0
_BACKLOG: Final = 20_000


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """The request for a watch: `revision` None starts with all present objects as ADDED.

    `matches` judges an object; `render` makes the JSON of an item as the client wants it.
    """

    kind: Kind
    namespace: str
    revision: int | None
    matches: Callable[[dict[str, Any]], bool]
    render: Callable[[Item], bytes]
    bookmarks: bool
    seconds: float


class _Watcher:
    """The changes that a client has not been sent yet."""

    def __init__(self) -> None:
        self.changes: deque[Change] = deque()
        self.news = asyncio.Event()
        self.is_behind = False

    def add(self, change: Change) -> None:
        if len(self.changes) >= _BACKLOG:
            self.is_behind = True
        else:
            self.changes.append(change)
        self.news.set()


class Watchers:
    """Hands each change to the watches of its resource."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._open: dict[str, set[_Watcher]] = defaultdict(set)
        self.closing = asyncio.Event()
        store.listeners.append(self._on_change)

    def close(self) -> None:
        """End all watches."""
        self.closing.set()
        for watchers in self._open.values():
            for watcher in watchers:
                watcher.news.set()

    async def stream(self, request: WatchRequest) -> AsyncIterator[bytes]:
        """Yield lines of JSON until the time is up, the server stops or the client is lost."""
        watcher = _Watcher()
        bucket = request.kind.resource_name
        loop = asyncio.get_running_loop()
        end = loop.time() + request.seconds
        try:
            lines, sent = self._start(request, watcher)
        except StatusError as error:
            yield _line("ERROR", orjson.dumps(error.body()))
            return
        try:
            bookmark_at = loop.time() + BOOKMARK_SECONDS
            if lines:
                yield b"".join(lines)
            while not self.closing.is_set():
                wait = min(end, bookmark_at if request.bookmarks else end) - loop.time()
                await wait_set(watcher.news, wait)
                watcher.news.clear()
                if watcher.changes:
                    sent = watcher.changes[-1].revision
                    yield b"".join(_drain(watcher, request))
                if watcher.is_behind:
                    behind = expired("the watch fell behind: list again")
                    yield _line("ERROR", orjson.dumps(behind.body()))
                    return
                is_over = loop.time() >= end
                if request.bookmarks and (is_over or loop.time() >= bookmark_at):
                    sent = max(sent, self._store.revision)
                    yield bookmark(request.kind, sent)
                    bookmark_at = loop.time() + BOOKMARK_SECONDS
                if is_over:
                    return
        finally:
            self._open[bucket].discard(watcher)

    def _start(self, request: WatchRequest, watcher: _Watcher) -> tuple[list[bytes], int]:
        """Register before the first await, so that no change falls between past and future."""
        bucket = request.kind.resource_name
        lines: list[bytes] = []
        if request.revision is None:
            items = self._store.items(bucket, request.namespace)
            lines = [_line("ADDED", request.render(i)) for i in items if request.matches(i.body)]
        else:
            for change in self._store.changes_since(bucket, request.revision):
                lines += event(change, request)
        self._open[bucket].add(watcher)
        return lines, self._store.revision

    def _on_change(self, change: Change) -> None:
        for watcher in self._open[change.bucket]:
            watcher.add(change)


def event(change: Change, request: WatchRequest) -> list[bytes]:
    """Return the event line of a change, or none when the filter never saw the object.

    An object that leaves the filter is DELETED for the client, an object that enters it is ADDED.
    """
    item, previous = change.item, change.previous
    if request.revision is not None and change.revision <= request.revision:
        return []  # a watch from a future revision is silent until then
    if request.namespace and item.key[0] != request.namespace:
        return []
    is_in = change.type != "DELETED" and request.matches(item.body)
    was_in = previous is not None and request.matches(previous.body)
    if is_in:
        return [_line("MODIFIED" if was_in else "ADDED", request.render(item))]
    if previous is None or not was_in:
        return []
    before = previous.body
    metadata = {**before["metadata"], "resourceVersion": str(change.revision)}
    body = {**before, "metadata": metadata}
    last = Item(previous.key, change.revision, body, orjson.dumps(body))
    return [_line("DELETED", request.render(last))]


def bookmark(kind: Kind, revision: int) -> bytes:
    """Return a BOOKMARK line: the client has seen everything up to `revision`."""
    body = {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": {"resourceVersion": str(revision), "creationTimestamp": None},
    }
    return _line("BOOKMARK", orjson.dumps(body))


def _drain(watcher: _Watcher, request: WatchRequest) -> list[bytes]:
    lines: list[bytes] = []
    while watcher.changes:
        lines += event(watcher.changes.popleft(), request)
    return lines


def _line(kind: str, data: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + data + b"}\n"
