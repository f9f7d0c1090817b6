"""domain: objects by namespace and name, found also by computed index values."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ipuhub.kube.types import Manifest

ObjectKey: TypeAlias = tuple[str, str]
"""(namespace, name); the namespace of cluster-wide objects is the empty string."""


def key_of(manifest: Manifest) -> ObjectKey:
    """Return the key of an object."""
    metadata = manifest["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


class IndexedStore:
    """A map of objects with indexes that follow each change.

    An indexer returns the values under which an object is to be found. It must not raise: it
    sees whatever the API server accepted.
    """

    def __init__(self, indexers: Mapping[str, Callable[[Manifest], Iterable[str]]]) -> None:
        self._indexers = dict(indexers)
        self._objects: dict[ObjectKey, Manifest] = {}
        self._values: dict[ObjectKey, list[tuple[str, str]]] = {}
        # Dicts keep insertion order, which makes answers repeatable.
        self._index: dict[tuple[str, str], dict[ObjectKey, Manifest]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: ObjectKey) -> Manifest | None:
        """Return the object or None."""
        return self._objects.get(key)

    def all(self) -> list[Manifest]:
        """All objects."""
        return list(self._objects.values())

    def by_index(self, index: str, value: str) -> list[Manifest]:
        """Objects for which indexer `index` gave `value`. Raises KeyError for no such indexer."""
        if index not in self._indexers:
            raise KeyError(f"no index {index!r}; there are {sorted(self._indexers)}")
        return list(self._index.get((index, value), {}).values())

    def put(self, manifest: Manifest) -> None:
        """Store an object in the place of its predecessor."""
        key = key_of(manifest)
        self._unindex(key)
        self._objects[key] = manifest
        values = [
            (index, value)
            for index, indexer in self._indexers.items()
            for value in dict.fromkeys(indexer(manifest))
        ]
        self._values[key] = values
        for entry in values:
            self._index.setdefault(entry, {})[key] = manifest

    def remove(self, key: ObjectKey) -> Manifest | None:
        """Forget an object; return it, or None."""
        self._unindex(key)
        return self._objects.pop(key, None)

    def _unindex(self, key: ObjectKey) -> None:
        for entry in self._values.pop(key, ()):
            found = self._index[entry]
            del found[key]
            if not found:
                del self._index[entry]
