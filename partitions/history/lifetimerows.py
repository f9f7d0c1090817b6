"""domain: one ConfigMap of the tracker as the recorder of partition lifetimes reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from partitions.errors import UnreadableEntry
from partitions.proxy.lifecycle import Phase
from partitions.proxy.tracker import decode_entry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from partitions.proxy.tracker import TrackerEntry

LARGEST = 2**31 - 1  # of an integer column


@dataclass(frozen=True, slots=True)
class UnreadableText:
    """A value that is no entry: a newer version wrote it, or a person."""

    key: str
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class ShardRow:
    """What one ConfigMap shows: entries, and what cannot be read. A deleted one shows nothing."""

    uid: str
    namespace: str
    name: str
    entries: tuple[TrackerEntry, ...] = ()
    unreadable: tuple[UnreadableText, ...] = ()

    @property
    def keys(self) -> list[str]:
        """Every key that is there, read or not: none of these has vanished."""
        return [entry.key for entry in self.entries] + [one.key for one in self.unreadable]


def shard_of(config_map: Mapping[str, Any], *, is_deleted: bool = False) -> ShardRow:
    """Read a ConfigMap; never raises for what stands in it."""
    meta = config_map.get("metadata") or {}
    uid, namespace, name = (str(meta.get(part, "")) for part in ("uid", "namespace", "name"))
    if is_deleted:
        return ShardRow(uid, namespace, name)
    entries, unreadable = [], []
    for key, text in (config_map.get("data") or {}).items():
        try:
            entries.append(_storable(decode_entry(key, text)))
        except UnreadableEntry as error:
            unreadable.append(UnreadableText(key, str(text), str(error)))
    return ShardRow(uid, namespace, name, tuple(entries), tuple(unreadable))


def _storable(entry: TrackerEntry) -> TrackerEntry:
    """The entry, if the database can hold it; raises UnreadableEntry."""
    numbers = (entry.instance, entry.attempt, entry.size)
    if not all(0 <= number <= LARGEST for number in numbers):
        raise UnreadableEntry(f"tracker key {entry.key}: a number is out of range")
    texts = (entry.key, entry.namespace, entry.name, entry.id, entry.controller)
    if "\x00" in "".join((*texts, entry.reason, entry.message)):
        raise UnreadableEntry(f"tracker key {entry.key}: a text has a NUL character")
    return entry


def tombstones(entries: tuple[TrackerEntry, ...]) -> list[str]:
    """Keys of the released holdings that wait for a recorder's word."""
    return [one.key for one in entries if one.phase is Phase.RELEASED and not one.recorded]
