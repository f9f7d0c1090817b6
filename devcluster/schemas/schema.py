"""domain: structural schemas: pruning, defaulting and the door to validation.

A schema is an `openAPIV3Schema`; built-in kinds use the same machinery with `$ref` into a table of
definitions, `x-quantity` for quantities and `x-omit-empty` for what is dropped when empty.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from devcluster.schemas.structural import structural_errors
from devcluster.schemas.validation import Validator
from devcluster.status import FieldError, join_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["OBJECT_META", "OMIT_EMPTY", "FieldError", "Schema", "join_errors", "structural_errors"]

OMIT_EMPTY = "x-omit-empty"
_TEXT = {"type": "string"}
_TIME = {"type": "string", "format": "date-time"}
_TEXTS_BY_NAME = {"type": "object", "additionalProperties": _TEXT, OMIT_EMPTY: True}
_OWNER = {
    "type": "object",
    "required": ["apiVersion", "kind", "name", "uid"],
    "properties": {
        **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _TEXT),
        "controller": {"type": "boolean"},
        "blockOwnerDeletion": {"type": "boolean"},
    },
}
OBJECT_META: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "properties": {
            **dict.fromkeys(
                (
                    "name",
                    "generateName",
                    "namespace",
                    "selfLink",
                    "uid",
                    "resourceVersion",
                    "clusterName",
                ),
                _TEXT,
            ),
            "generation": {"type": "integer"},
            "creationTimestamp": _TIME,
            "deletionTimestamp": _TIME,
            "deletionGracePeriodSeconds": {"type": "integer"},
            "labels": _TEXTS_BY_NAME,
            "annotations": _TEXTS_BY_NAME,
            "ownerReferences": {"type": "array", "items": _OWNER, OMIT_EMPTY: True},
            "finalizers": {"type": "array", "items": _TEXT, OMIT_EMPTY: True},
            "managedFields": {
                "type": "array",
                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
    }
)
"""The schema of metadata, which every resource has whatever its own schema says."""

_TYPE_META = {"apiVersion": _TEXT, "kind": _TEXT}
_IMPLIED = {**_TYPE_META, "metadata": OBJECT_META}


class Schema:
    """One kind's schema. `definitions` resolves `{"$ref": name}`; `is_resource`: the root has
    apiVersion, kind and metadata even when the schema does not name them.
    """

    def __init__(
        self,
        openapi_v3_schema: Mapping[str, Any],
        definitions: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        is_resource: bool = True,
    ) -> None:
        self._definitions = definitions or {}
        root = self._resolve(openapi_v3_schema)
        self._root = self._with_type_meta(root) if is_resource else root
        self._has_defaults = any(map(_has_default, (self._root, *self._definitions.values())))
        self._validator = Validator(self._resolve)

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Removes fields that the schema does not know, in place; returns their paths."""
        unknown: list[str] = []
        self._prune(obj, self._root, "", unknown)
        return unknown

    def default(self, obj: dict[str, Any]) -> None:
        """Drops nulls of fields that are not nullable and what is never stored empty (labels,
        finalizers, maps of built-in kinds), then fills in defaults, in place.
        """
        self._drop_nulls(obj, self._root)
        if self._has_defaults:
            self._default(obj, self._root)

    def validate(self, obj: Mapping[str, Any]) -> list[FieldError]:
        """Every fault of the object in the API server's words; empty when it is valid."""
        return self._validator.errors(obj, self._root)

    def validate_part(self, obj: Mapping[str, Any], name: str) -> list[FieldError]:
        """The faults of one top-level field, with the words of a server that checks just it."""
        schema = (self._root.get("properties") or {}).get(name)
        if name not in obj or schema is None:
            return []
        return [
            FieldError(
                name if error.field in {"<nil>", ""} else f"{name}.{error.field}",
                error.type,
                error.message,
            )
            for error in self._validator.errors(obj[name], schema)
        ]

    def _resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema itself, behind a reference and with what an embedded resource implies."""
        while "$ref" in schema:
            schema = self._definitions[schema["$ref"]]
        if schema.get("x-kubernetes-embedded-resource"):
            return self._with_type_meta(schema)
        return schema

    @staticmethod
    def _with_type_meta(schema: Mapping[str, Any]) -> Mapping[str, Any]:
        given = schema.get("properties") or {}
        own = {key: value for key, value in given.items() if key not in _IMPLIED}
        metadata: dict[str, Any] = dict(OBJECT_META)
        narrowed = (given.get("metadata") or {}).get("properties") or {}
        if narrowed:
            members = {**OBJECT_META["properties"]}
            for key, value in narrowed.items():
                members[key] = {**members.get(key, {}), **value}
            metadata["properties"] = members
        return {**schema, "properties": {**_TYPE_META, "metadata": metadata, **own}}

    def _members(
        self, value: Any, schema: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any, Mapping[str, Any] | None]]:
        """(path suffix, value, its schema or None when unknown) of everything one level down."""
        if isinstance(value, list):
            items = schema.get("items")
            for at, item in enumerate(value):
                yield f"[{at}]", item, self._resolve(items) if items else None
        elif isinstance(value, dict):
            properties = schema.get("properties") or {}
            additional = schema.get("additionalProperties")
            for key, item in value.items():
                known = properties.get(key, additional if key not in properties else None)
                if known is True:
                    known = {"x-kubernetes-preserve-unknown-fields": True}
                yield f".{key}", item, self._resolve(known) if known else None

    def _prune(self, value: Any, schema: Mapping[str, Any], path: str, unknown: list[str]) -> None:
        gone = []
        for suffix, item, known in self._members(value, schema):
            if known is not None:
                if isinstance(item, (dict, list)):
                    self._prune(item, known, f"{path}{suffix}", unknown)
            elif isinstance(value, dict) and not _keeps_unknown(schema):
                gone.append(suffix[1:])
                unknown.append(f"{path}{suffix}".removeprefix("."))
        for key in gone:
            del value[key]

    def _drop_nulls(self, value: Any, schema: Mapping[str, Any]) -> None:
        dropped = []
        for suffix, item, known in self._members(value, schema):
            if known is None:
                continue
            if isinstance(item, (dict, list)):
                self._drop_nulls(item, known)
                if not item and known.get(OMIT_EMPTY):
                    dropped.append(suffix[1:])
            elif item is None and isinstance(value, dict) and not known.get("nullable"):
                dropped.append(suffix[1:])
        for key in dropped:
            del value[key]

    def _default(self, value: Any, schema: Mapping[str, Any]) -> None:
        if isinstance(value, dict):
            for key, unresolved in (schema.get("properties") or {}).items():
                if key not in value and unresolved.get("default") is not None:
                    value[key] = _copied(unresolved["default"])
        for _suffix, item, known in self._members(value, schema):
            if known is not None and isinstance(item, (dict, list)):
                self._default(item, known)


def _keeps_unknown(schema: Mapping[str, Any]) -> bool:
    """Whether unknown members stay: by the extension, or below a schema that says no type."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return True
    return not schema.get("type") and "properties" not in schema


def _has_default(schema: Any) -> bool:
    """Whether this schema or one inside it has a default."""
    if not isinstance(schema, dict):
        return False
    inner = (*(schema.get("properties") or {}).values(), schema.get("items"))
    below = (*inner, schema.get("additionalProperties"))
    return schema.get("default") is not None or any(map(_has_default, below))


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
