"""io: the object store: in memory, written through to one SQLite file, with a bounded watch
history.

A write is committed to the file before it is visible in memory or to watches, so every acknowledged
write survives a crash. One counter, the revision, numbers all writes of all objects; it never
decreases, not even across a restart. The file also contains the history of changes, so a watch from
before a restart can resume.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from devcluster.status import expired
from devcluster.storage.storefile import StoredChange, StoreFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from devcluster.storage.storefile import Kind

# JSON in the history; a history of large objects (the partitions' tracker) ends earlier. Some
# thousand changes: a watch that is a minute behind finds them all, and a busy cluster's memory is
# full soon.
HISTORY_BYTES = 8 * 2**20
# JSON of the versions that are kept decoded, too: most of what watches in step read.
DECODED_BYTES = 3 * 2**20
# Each request reads all of these: they are kept decoded as long as they are there.
_ALWAYS_DECODED = ("rbac.authorization.k8s.io", "customresourcedefinitions.apiextensions.k8s.io")
Key = tuple[str, str]
"""(namespace or "", name)."""


class Decoded:
    """A cache of the last decoded versions, up to DECODED_BYTES of JSON.

    Decoded, an object takes five times the memory of its JSON. Without a limit, a list of
    everything would leave all objects decoded, and memory would grow with everything that was ever
    read.
    """

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._bytes = 0

    def keep(self, item: Item) -> None:
        """Count in `item`, which is decoded since now, and let the first versions go."""
        item.keeper = self
        self._items.append(item)
        self._bytes += len(item.data)
        while self._bytes > DECODED_BYTES:
            first = self._items.popleft()
            self._bytes -= len(first.data)
            first.decoded = None


@dataclass(slots=True, eq=False)
class Item:
    """One version of one object; `body` must not be changed, `data` is its JSON.

    Without `keeper` a decoded body is kept as long as the item.
    """

    key: Key
    revision: int
    decoded: dict[str, Any] | None
    data: bytes
    keeper: Decoded | None = None

    @property
    def body(self) -> dict[str, Any]:
        """The object."""
        if self.decoded is not None:
            return self.decoded
        body: dict[str, Any] = orjson.loads(self.data)
        self.decoded = body
        if self.keeper is not None:
            self.keeper.keep(self)
        return body

    def copy(self) -> dict[str, Any]:
        """A copy of the body for the caller to change."""
        copied: dict[str, Any] = orjson.loads(self.data)
        return copied


@dataclass(frozen=True, slots=True)
class Change:
    """One write; the item of a DELETED is the last state with the deletion's revision."""

    revision: int
    type: Kind
    bucket: str
    item: Item
    previous: Item | None


@dataclass(slots=True)
class _Bucket:
    """The objects of one resource and what is known of its past (changes after `floor`)."""

    floor: int
    items: dict[Key, Item] = field(default_factory=dict)
    changes: deque[Change] = field(default_factory=deque)
    order: list[Key] | None = None

    def sorted_keys(self) -> list[Key]:
        if self.order is None:
            self.order = sorted(self.items)
        return self.order


class Store:
    """All objects of a cluster. Not thread safe: it belongs to one event loop."""

    def __init__(self, path: Path, *, history: int = 10_000) -> None:
        self.listeners: list[Callable[[Change], None]] = []
        self._history = history
        self._past: deque[tuple[str, int]] = deque()  # bucket, bytes
        self._past_bytes = 0
        self._decoded = Decoded()
        self._buckets: dict[str, _Bucket] = {}
        self._file = StoreFile(path)
        self.revision = self._file.revision()
        self._start = self.revision
        self._load()

    def close(self) -> None:
        """Close the file; nothing is lost without it."""
        self._file.close()

    def get(self, bucket: str, namespace: str, name: str) -> Item | None:
        """The object, or None."""
        return self._bucket(bucket).items.get((namespace, name))

    def items(self, bucket: str, namespace: str = "") -> list[Item]:
        """The objects ordered by namespace and name; no namespace: of all namespaces."""
        found = self._bucket(bucket)
        keys = found.sorted_keys()
        return [found.items[key] for key in keys if not namespace or key[0] == namespace]

    def items_at(self, bucket: str, revision: int, namespace: str = "") -> list[Item]:
        """The objects as they were at `revision`; StatusError 410 when that is forgotten."""
        found = self._bucket(bucket)
        self._check_known(found, revision)
        if not found.changes or found.changes[-1].revision <= revision:
            return self.items(bucket, namespace)
        then = dict(found.items)
        for change in reversed(found.changes):
            if change.revision <= revision:
                break
            if change.previous is None:
                then.pop(change.item.key, None)
            else:
                then[change.item.key] = change.previous
        return [then[key] for key in sorted(then) if not namespace or key[0] == namespace]

    def changes_since(self, bucket: str, revision: int) -> list[Change]:
        """Return the changes after `revision`, oldest first; StatusError 410 when forgotten."""
        found = self._bucket(bucket)
        self._check_known(found, revision)
        newer: list[Change] = []
        for change in reversed(found.changes):
            if change.revision <= revision:
                break
            newer.append(change)
        return newer[::-1]

    def put(self, bucket: str, body: dict[str, Any]) -> Item:
        """Create or replace an object; the stored object has the next resourceVersion."""
        found = self._bucket(bucket)
        item = _item(body, self.revision + 1)
        previous = found.items.get(item.key)
        change = Change(item.revision, "MODIFIED" if previous else "ADDED", bucket, item, previous)
        self._write(change)
        found.items[item.key] = item
        self._age(bucket, item, previous)
        if previous is None:
            found.order = None
        self._publish(change)
        return item

    def remove(
        self, bucket: str, namespace: str, name: str, last: dict[str, Any] | None = None
    ) -> Item:
        """Remove an object that exists; return `last`, or its last state, as of the removal."""
        found = self._bucket(bucket)
        previous = found.items[(namespace, name)]
        removed = _item(last or previous.body, self.revision + 1)
        change = Change(removed.revision, "DELETED", bucket, removed, previous)
        self._write(change)
        del found.items[removed.key]
        found.order = None
        self._decoded.keep(removed)
        self._age(bucket, None, previous)
        self._publish(change)
        return removed

    def buckets(self) -> list[str]:
        """The resources that have, or had, objects."""
        return list(self._buckets)

    def _bucket(self, name: str) -> _Bucket:
        found = self._buckets.get(name)
        if found is None:
            found = self._buckets[name] = _Bucket(self._start)
        return found

    def _load(self) -> None:
        for bucket, namespace, name, data in self._file.objects():
            revision = int(orjson.loads(data)["metadata"]["resourceVersion"])
            item = self._loaded(bucket, (namespace, name), revision, data)
            self._bucket(bucket).items[item.key] = item
        self._load_changes()

    def _load_changes(self) -> None:
        """Put the history together from its end: what a change made is before the next change."""
        after = {(name, key): i for name, b in self._buckets.items() for key, i in b.items.items()}
        changes: list[Change] = []
        for row in self._file.changes():
            place, key = (row.bucket, (row.namespace, row.name)), (row.namespace, row.name)
            item = after.get(place)
            if row.last is not None:
                item = self._loaded(row.bucket, key, row.revision, row.last)
            if item is None or item.revision != row.revision:
                break
            previous = None
            if row.before is not None and row.previous is not None:
                previous = self._loaded(row.bucket, key, row.previous, row.before)
                after[place] = previous
            else:
                after.pop(place, None)
            changes.append(Change(row.revision, row.type, row.bucket, item, previous))
        self._start = changes[-1].revision - 1 if changes else self.revision
        for found in self._buckets.values():
            found.floor = self._start
        for change in reversed(changes):
            self._keep(change)

    def _loaded(self, bucket: str, key: Key, revision: int, data: bytes) -> Item:
        keeper = None if bucket.endswith(_ALWAYS_DECODED) else self._decoded
        return Item(key, revision, None, data, keeper)

    def _write(self, change: Change) -> None:
        previous, is_gone = change.previous, change.type == "DELETED"
        row = StoredChange(
            change.revision,
            change.type,
            change.bucket,
            *change.item.key,
            previous.revision if previous else None,
            previous.data if previous else None,
            change.item.data if is_gone else None,
        )
        self._file.write(row, None if is_gone else change.item.data)
        self.revision = change.revision

    def _publish(self, change: Change) -> None:
        self._keep(change)
        for listener in tuple(self.listeners):
            listener(change)

    def _keep(self, change: Change) -> None:
        """Add to the history, and let what is too old go."""
        self._bucket(change.bucket).changes.append(change)
        size = len(change.item.data)
        self._past.append((change.bucket, size))
        self._past_bytes += size
        while len(self._past) > self._history or self._past_bytes > HISTORY_BYTES:
            bucket, size = self._past.popleft()
            self._past_bytes -= size
            oldest = self._buckets[bucket]
            oldest.floor = oldest.changes.popleft().revision
            self._file.forget(oldest.floor)

    def _age(self, bucket: str, present: Item | None, past: Item | None) -> None:
        """Let the decoded form go in its turn: of what each request reads only the `past`'s."""
        aging = past if bucket.endswith(_ALWAYS_DECODED) else present
        if aging is not None:
            self._decoded.keep(aging)

    def _check_known(self, found: _Bucket, revision: int) -> None:
        if revision < found.floor:
            raise expired(f"too old resource version: {revision} ({found.floor})")


def _item(body: dict[str, Any], revision: int) -> Item:
    metadata = {**body["metadata"], "resourceVersion": str(revision)}
    body = {**body, "metadata": metadata}
    key = (metadata.get("namespace", ""), metadata["name"])
    return Item(key, revision, body, orjson.dumps(body))
