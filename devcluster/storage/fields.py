"""domain: the fields of an object as server-side apply defines them: paths, and merging by paths.

A path is the elements of `fieldsV1` one below the other: `f:name` of a field, `k:{...}` of a list
item by its keys, `v:...` of a member of a set. Atomic lists and maps are one field.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devcluster.schemas.schema import Schema

Path = tuple[str, ...]
_FREE: Final[Mapping[str, Any]] = {}


class Fields:
    """Objects of one kind, field by field."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def flat(self, obj: Mapping[str, Any]) -> dict[Path, Any]:
        """Return each field of the object with its value; of a list's item also the item."""
        found: dict[Path, Any] = {}
        self._flatten(obj, self._schema.root, (), found)
        return found

    def merge(self, live: Any, config: Any) -> Any:
        """Return `live` with the fields of `config`; it shares parts with both."""
        return self._merge(live, config, self._schema.root)

    def without(self, obj: Mapping[str, Any], paths: Iterable[Path]) -> Any:
        """Return the object without these fields."""
        remaining: Any = obj
        for path in paths:
            remaining = self._without(remaining, self._schema.root, path)
        return remaining

    def _flatten(
        self, value: Any, schema: Mapping[str, Any], path: Path, found: dict[Path, Any]
    ) -> None:
        members = self._members(value, schema)
        if not members:
            found[path] = value
            return
        if path and path[-1].startswith("k:"):
            found[path] = True
        for element, (child, below) in members.items():
            self._flatten(child, below, (*path, element), found)

    def _merge(self, live: Any, config: Any, schema: Mapping[str, Any]) -> Any:
        ours, theirs = self._members(live, schema), self._members(config, schema)
        if ours is None or theirs is None or type(live) is not type(config):
            return config
        merged = {element: child for element, (child, _) in ours.items()}
        for element, (child, below) in theirs.items():
            known = element in merged
            merged[element] = self._merge(merged[element], child, below) if known else child
        return _rebuilt(live, merged)

    def _without(self, value: Any, schema: Mapping[str, Any], path: Path) -> Any:
        members = self._members(value, schema) or {}
        if not path or path[0] not in members:
            return value
        remaining = {element: child for element, (child, _) in members.items()}
        if len(path) == 1:
            del remaining[path[0]]
        else:
            child, below = members[path[0]]
            remaining[path[0]] = self._without(child, below, path[1:])
        return _rebuilt(value, remaining)

    def _members(
        self, value: Any, schema: Mapping[str, Any]
    ) -> dict[str, tuple[Any, Mapping[str, Any]]] | None:
        """Return what is one level down by its element; None for what is one field."""
        if isinstance(value, dict) and schema.get("x-kubernetes-map-type") != "atomic":
            known, other = schema.get("properties") or {}, schema.get("additionalProperties")
            return {f"f:{k}": (v, self._below(known.get(k, other))) for k, v in value.items()}
        if not isinstance(value, list):
            return None
        kind, below = schema.get("x-kubernetes-list-type"), self._below(schema.get("items"))
        if kind == "set":
            return {f"v:{_json(each)}": (each, below) for each in value}
        keys = schema.get("x-kubernetes-list-map-keys") or []
        if kind != "map" or not all(isinstance(each, dict) for each in value):
            return None
        return {_key_of(each, keys, below): (each, below) for each in value}

    def _below(self, schema: Any) -> Mapping[str, Any]:
        return self._schema.resolve(schema) if isinstance(schema, dict) else _FREE


def _key_of(item: dict[str, Any], keys: list[str], schema: Mapping[str, Any]) -> str:
    """Return the element of a list's item; a key that it lacks has the schema's default."""
    known = schema.get("properties") or {}
    found = {key: item.get(key, _default_of(known.get(key) or {})) for key in keys}
    return f"k:{_json({key: value for key, value in found.items() if value is not None})}"


def _default_of(schema: Mapping[str, Any]) -> Any:
    return schema.get("x-key-default", schema.get("default"))


def _rebuilt(value: Any, members: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {element[2:]: child for element, child in members.items()}
    return list(members.values())


def to_tree(paths: Iterable[Path]) -> dict[str, Any]:
    """Return paths as `fieldsV1` has them."""
    tree: dict[str, Any] = {}
    members = set(paths)
    for path in sorted(members):
        node = tree
        for depth, element in enumerate(path, 1):
            node = node.setdefault(element, {})
            if depth < len(path) and path[:depth] in members:
                node["."] = {}
    return tree


def from_tree(tree: Mapping[str, Any], above: Path = ()) -> set[Path]:
    """Return the paths of a `fieldsV1`."""
    found: set[Path] = set()
    for element, below in tree.items():
        if element == ".":
            found.add(above)
        else:
            found |= from_tree(below, (*above, element)) if below else {(*above, element)}
    return found


def path_text(path: Path) -> str:
    """Return a path as people read it: `.spec.containers[name="a"].image`."""
    return "".join(map(_element_text, path))


def _element_text(element: str) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{text}"
    if kind == "v:":
        return f"[={text}]"
    return f"[{','.join(f'{key}={_json(value)}' for key, value in json.loads(text).items())}]"


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
