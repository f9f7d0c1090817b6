"""Changes of one value in a manifest, for tests of values of wrong types."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Path = tuple[str | int, ...]


def paths_of(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of a value and of all values in it."""
    yield path
    if isinstance(value, dict | list):
        items: Any = value.items() if isinstance(value, dict) else enumerate(value)
        for name, below in items:
            yield from paths_of(below, (*path, name))


def with_value(job: dict[str, Any], path: Path, value: object) -> dict[str, Any]:
    """Return the manifest with `value` in a place."""
    changed: Any = copy.deepcopy(job)
    node = changed
    for name in path[:-1]:
        node = node[name]
    node[path[-1]] = value
    return dict(changed)
