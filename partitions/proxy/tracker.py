"""domain: tracker entries as text, spread over ConfigMaps, changed by small patches.

A key is one holding of a partition: `<job UID>.<instance>.<serial>`. A job that releases and
requests again gets another serial, so the tombstone of the earlier holding stays unchanged.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec

from ipuhub.partition import Phase, format_time
from partitions.errors import EntryTooLarge, UnreadableEntry
from partitions.proxy.lifecycle import TrackerEntry, choose_partition_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from partitions.proxy.lifecycle import Holder, Request

MAX_ENTRY_BYTES = 600
MAX_SHARD_BYTES = 64_000
# Names, id and times at their longest leave this much for controller and label together.
MAX_CONTROLLER_LENGTH = 120
_CUT = "…"
LARGEST: Final = 2**31 - 1
"""Largest number of an entry: recorders store 32 bits."""
_YEARS: Final = range(1970, 9999)
_IN_THE_KEY: Final = frozenset({"uid", "instance", "serial"})
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
_Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
_STRICT: Final[dict[Any, Any]] = {
    "str": str,
    "int": _Count,
    "bool": bool,
    "Phase": Phase,
    "datetime": _Moment,
    "datetime | None": _Moment | None,
}
"""The values that a field of an entry with this annotation may have."""
_FIELDS: Final = [each for each in fields(TrackerEntry) if each.name not in _IN_THE_KEY]
_TIMES: Final = [each.name for each in _FIELDS if _STRICT[each.type] in {_Moment, _Moment | None}]


def _name_of(name: str) -> str:
    """Return the name under which a field is stored."""
    first, *rest = ("asked" if name == "scope" else name).split("_")
    return first + "".join(word.capitalize() for word in rest)


_STORED: Final = msgspec.json.Decoder(
    msgspec.defstruct(
        "Stored",
        [
            (each.name, _STRICT[each.type], *(() if each.default is MISSING else (each.default,)))
            for each in _FIELDS
        ],
        rename=_name_of,
        kw_only=True,
        gc=False,
    )
)
"""Decodes the value of a key. Fields of newer versions are skipped."""


def next_serial(last: TrackerEntry | None, now: datetime) -> int:
    """A serial for a new holding: its time in ms, so that no key is ever used twice.

    Recorders know holdings by their keys, long after the tombstones are gone.
    """
    serial = int(now.timestamp() * 1000)
    return serial if last is None else max(serial, last.serial + 1)


def free_id(wanted: TrackerEntry | Request, draft: Draft, listed: Iterable[str]) -> str:
    """Return an id that neither the tracker nor a controller's list has, for the holder `asked`."""
    return choose_partition_id(
        name=wanted.name,
        namespace=wanted.namespace,
        instance=wanted.instance,
        uid=wanted.uid,
        taken=draft.ids_in_use() | set(listed),
    )


def encode_entry(entry: TrackerEntry) -> str:
    """Readable JSON of at most 600 bytes; a message that does not fit is cut. A NUL character in it
    becomes U+FFFD: PostgreSQL stores none, so the holding would never be recorded.

    Raises EntryTooLarge when names and addresses alone are longer.
    """
    text = _dump(entry, entry.message)
    if len(text.encode()) <= MAX_ENTRY_BYTES:
        return text
    fits, too_long = -1, len(entry.message)
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if len(_dump(entry, _cut(entry.message, middle)).encode()) <= MAX_ENTRY_BYTES:
            fits = middle
        else:
            too_long = middle
    if fits < 0:
        raise EntryTooLarge(f"the entry of partition {entry.id} exceeds {MAX_ENTRY_BYTES} bytes")
    return _dump(entry, _cut(entry.message, fits))


def decode_entry(key: str, text: str) -> TrackerEntry:
    """Return what `encode_entry` wrote. Raise UnreadableEntry if a value has the wrong type, is out
    of range or contradicts the key: nothing in the proxy or the recorder has to expect it."""
    try:
        uid, instance, serial = key.rsplit(".", 2)
        found: Any = _STORED.decode(text)
        times = {name: _moment(getattr(found, name)) for name in _TIMES}
        if found.phase is Phase.WAITING:
            raise ValueError("the phase waiting is never stored")
        values = msgspec.structs.asdict(found) | times
        if any("\0" in value for value in (key, *values.values()) if isinstance(value, str)):
            raise ValueError("a text has a NUL character")
        entry = TrackerEntry(uid=uid, instance=int(instance), serial=int(serial), **values)
        if entry.key != key or not 0 <= entry.instance <= LARGEST:
            raise ValueError("the key is not <job UID>.<instance>.<serial>")
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise UnreadableEntry(f"tracker key {key}: {error}") from error
    return entry


def _moment(found: datetime | None) -> datetime | None:
    """Return the instant in UTC. Raise ValueError where it leaves no room to add a duration."""
    moment = None if found is None else found.astimezone(UTC)
    if moment is not None and moment.year not in _YEARS:
        raise ValueError(f"the year {moment.year} is out of range")
    return moment


@dataclass(frozen=True, slots=True)
class Shard:
    """One ConfigMap of the tracker; an empty `resource_version`: it does not exist yet."""

    name: str
    resource_version: str
    data: Mapping[str, str] = field(default_factory=dict)

    @property
    def budget_used(self) -> int:
        """Bytes of the shard when each of its entries has grown to its limit."""
        return sum(_budget(key, text) for key, text in self.data.items())

    def with_changes(self, changes: Mapping[str, str | None], resource_version: str) -> Shard:
        """The shard after a merge patch of `changes` (None deletes) was accepted."""
        data = {key: text for key, text in {**self.data, **changes}.items() if text is not None}
        return replace(self, resource_version=resource_version, data=data)


@dataclass(frozen=True, slots=True)
class Tracker:
    """The content of the tracker's ConfigMaps at one moment.

    `newest_keys` has the key of each holder's last entry. `unreadable` values stay where they
    are; they may come from a newer version or from a person.
    """

    name: str
    shards: Mapping[str, Shard]
    entries: Mapping[str, TrackerEntry]
    newest_keys: Mapping[Holder, str]
    unreadable: frozenset[str]

    @classmethod
    def read(cls, name: str, shards: Iterable[Shard]) -> Tracker:
        """Take in ConfigMaps; `name` is the name of the first."""
        by_name = {shard.name: shard for shard in shards}
        entries: dict[str, TrackerEntry] = {}
        unreadable = set()
        for shard in by_name.values():
            for key, text in shard.data.items():
                try:
                    entries[key] = decode_entry(key, text)
                except UnreadableEntry:
                    unreadable.add(key)
        newest = {e.holder: e.key for e in sorted(entries.values(), key=lambda entry: entry.serial)}
        return cls(name, by_name, entries, newest, frozenset(unreadable))

    @property
    def revision(self) -> str:
        """Changes whenever any entry changes."""
        shards = sorted(self.shards.values(), key=lambda shard: shard.name)
        return "-".join(shard.resource_version for shard in shards) or "0"

    def newest(self, holder: Holder) -> TrackerEntry | None:
        """The entry of the holder's last partition, its tombstone included."""
        key = self.newest_keys.get(holder)
        return None if key is None else self.entries[key]

    def ordered(self) -> list[TrackerEntry]:
        """All entries; entries of one holder in order of creation."""
        return sorted(self.entries.values(), key=lambda entry: (*entry.holder, entry.serial))


class Draft:
    """A tracker with changes that are not written yet; each change sees the changes before it."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._entries = dict(tracker.entries)
        self._newest = dict(tracker.newest_keys)
        self._texts: dict[str, str | None] = {}
        self._homes: dict[str, str] = {}
        self._room: dict[str, int] = {}
        self._ids: set[str] = set()
        self._coming: dict[str, TrackerEntry] | None = None

    def entries(self) -> Iterable[TrackerEntry]:
        """All entries as they would be."""
        return self._entries.values()

    def newest(self, holder: Holder) -> TrackerEntry | None:
        """The entry of the holder's last partition, its tombstone included."""
        key = self._newest.get(holder)
        return None if key is None else self._entries[key]

    def get(self, key: str) -> TrackerEntry | None:
        """The entry of that key."""
        return self._entries.get(key)

    def ids_in_use(self) -> set[str]:
        """Ids of the partitions that are not released."""
        if not self._ids:
            self._ids = {e.id for e in self._entries.values() if e.phase is not Phase.RELEASED}
        return self._ids

    def coming(self) -> Collection[TrackerEntry]:
        """The entries whose partitions are to be made."""
        if self._coming is None:
            self._coming = {e.key: e for e in self._entries.values() if e.is_coming}
        return self._coming.values()

    def put(self, entry: TrackerEntry) -> TrackerEntry:
        """Add or replace; returns the entry as it will be read back. Raises EntryTooLarge."""
        text = encode_entry(entry)
        stored = decode_entry(entry.key, text)
        self._entries[stored.key] = stored
        self._texts[stored.key] = text
        self._ids = set()
        self._note_coming(stored.key, stored)
        last = self.newest(stored.holder)
        if last is None or last.serial < stored.serial:
            self._newest[stored.holder] = stored.key
        return stored

    def replace(self, entry: TrackerEntry, new: TrackerEntry | None) -> None:
        """Replace `entry` by `new` (None: remove it) if the tracker still has it."""
        if self.get(entry.key) != entry:
            return
        if new is None:
            self.drop(entry.key)
        else:
            self.put(new)

    def drop(self, key: str) -> None:
        """Delete an entry."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._texts[key] = None
        self._ids = set()
        self._note_coming(key, None)
        if self._newest[entry.holder] == key:
            del self._newest[entry.holder]
            rest = [other for other in self._entries.values() if other.holder == entry.holder]
            if rest:
                self._newest[entry.holder] = max(rest, key=lambda entry: entry.serial).key

    def _note_coming(self, key: str, entry: TrackerEntry | None) -> None:
        if self._coming is None:
            return
        self._coming.pop(key, None)
        if entry is not None and entry.is_coming:
            self._coming[key] = entry

    def patches(self) -> dict[str, dict[str, str | None]]:
        """The changed keys by shard; None deletes. Values that stay the same are left out."""
        if not self._texts:
            return {}
        self._locate()
        patches: dict[str, dict[str, str | None]] = {}
        for key, text in self._texts.items():
            home = self._homes.get(key)
            if home is None:
                if text is None:
                    continue  # made and dropped within one draft
                home = self._find_home(key)
            shard = self._tracker.shards.get(home)
            if text != (shard.data.get(key) if shard else None):
                patches.setdefault(home, {})[key] = text
        return patches

    def committed(self, shards: Mapping[str, Shard]) -> Tracker:
        """The tracker once all patches are accepted; `shards` as the server answered."""
        unreadable = self._tracker.unreadable
        return Tracker(self._tracker.name, shards, self._entries, self._newest, unreadable)

    def _locate(self) -> None:
        shards = self._tracker.shards.values()
        self._homes = {key: shard.name for shard in shards for key in shard.data}
        self._room = {shard.name: MAX_SHARD_BYTES - shard.budget_used for shard in shards}

    def _find_home(self, key: str) -> str:
        needed = _budget(key, "")
        name, number = self._tracker.name, 0
        while self._room.setdefault(name, MAX_SHARD_BYTES) < needed:
            number += 1
            name = f"{self._tracker.name}-{number}"
        self._room[name] -= needed
        self._homes[key] = name
        return name


def _budget(key: str, text: str) -> int:
    """Bytes to set aside: an entry may grow, by an error text, without moving."""
    return len(key.encode()) + max(len(text.encode()), MAX_ENTRY_BYTES)


def _cut(message: str, length: int) -> str:
    return message[:length] + _CUT if length else ""


def _dump(entry: TrackerEntry, message: str) -> str:
    found: dict[str, Any] = {
        "namespace": entry.namespace,
        "name": entry.name,
        "attempt": entry.attempt,
        "id": entry.id,
        "size": entry.size,
        "phase": entry.phase.value,
        "controller": entry.controller,
        "label": entry.label,
        "reservedAt": format_time(entry.reserved_at),
    }
    if not entry.label:
        del found["label"]
    # Left out where they say nothing, to leave the room to the message.
    optional = {
        "activeAt": format_time(entry.active_at),
        "releasedAt": format_time(entry.released_at),
        "recorded": entry.recorded,
        "numGcds": entry.num_gcds,
        "numReplicas": entry.num_replicas,
        "asked": entry.scope,
        "terms": entry.terms,
        "mayCome": entry.may_come,
        "missedAt": format_time(entry.missed_at),
        "hasCome": entry.has_come,
        "lostAt": format_time(entry.lost_at),
        "podKey": entry.pod_key,
        "reason": str(entry.reason),
        "message": message.replace("\0", "\ufffd"),
    }
    found |= {key: value for key, value in optional.items() if value}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
