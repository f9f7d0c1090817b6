"""domain: reads the values at many paths of one manifest.

The operator checks over a hundred fields of every job at each pass. Most of them, and most of their
parents, are not set: `FieldTree` follows only what is set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Place = tuple[int, ...]
Values = list[tuple[Place, Any]]
_ENTRIES: Final = "[*]"


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """The last part of a path, and the way to it."""

    before: _Step | None
    name: str
    is_list: bool


@cache
def _step(path: str) -> _Step:
    before, _, name = path.rpartition(".")
    is_list = name.endswith(_ENTRIES)
    return _Step(_step(before) if before else None, name.removesuffix(_ENTRIES), is_list)


@dataclass(slots=True, eq=False)
class FieldTree:
    """Many paths, by the parts that they share."""

    path: str = ""
    members: dict[str, FieldTree] = field(default_factory=dict)
    entries: FieldTree | None = None

    @classmethod
    def of(cls, paths: Iterable[str]) -> FieldTree:
        """The tree of these paths."""
        top = cls()
        for path in paths:
            node = top
            for part in path.split("."):
                node = node.members.setdefault(part.removesuffix(_ENTRIES), cls())
                if part.endswith(_ENTRIES):
                    node.entries = node.entries or cls()
                    node = node.entries
            node.path = path
        return top

    def set_in(self, value: Any, place: Place = ()) -> Iterator[tuple[str, Place, Any]]:
        """Path, place and value of each field of the tree that is set: null only as an entry."""
        if self.path:
            yield self.path, place, value
        if isinstance(value, dict):
            for name, below in self.members.items():
                found = value.get(name)
                if found is not None:
                    yield from below.set_in(found, place)
        elif self.entries is not None and isinstance(value, list):
            for index, entry in enumerate(value):
                yield from self.entries.set_in(entry, (*place, index))


class Fields:
    """A manifest, read by paths such as `spec.containers[*].image`."""

    def __init__(self, manifest: Mapping[str, Any], tree: FieldTree) -> None:
        self._top: Values = [((), manifest)]
        self._known: dict[_Step, Values] = {}
        self._set: dict[str, Values] = {}
        for path, place, value in tree.set_in(manifest):
            self._set.setdefault(path, []).append((place, value))

    def set_at(self, path: str) -> Values:
        """The values at a path of the tree where it is set, with their places."""
        return self._set.get(path, [])

    def at(self, path: str) -> Values:
        """Return the values at `path` with their places: the index of each `[*]`.

        A field that is not set, or whose parent is not an object, is None; a list that is not set
        has no entries.
        """
        return self._at(_step(path))

    def first(self, path: str) -> Any:
        """The value at a path without `[*]`."""
        return self.at(path)[0][1]

    def _at(self, step: _Step) -> Values:
        found = self._known.get(step)
        if found is None:
            parents = self._at(step.before) if step.before is not None else self._top
            found = self._known[step] = _children(parents, step)
        return found


def _children(parents: Values, step: _Step) -> Values:
    name = step.name
    if step.is_list:
        return [
            ((*place, index), entry)
            for place, parent in parents
            if isinstance(parent, dict) and isinstance(entries := parent.get(name), list)
            for index, entry in enumerate(entries)
        ]
    return [
        (place, parent.get(name) if isinstance(parent, dict) else None) for place, parent in parents
    ]


def written(path: str, place: Place) -> str:
    """The path with its indices: `spec.containers[0].image`."""
    for index in place:
        path = path.replace(_ENTRIES, f"[{index}]", 1)
    return path
