"""domain: what makes an openAPIV3Schema structural, and the reasons why one is not.

A CRD whose schema has such errors is refused (422).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from devcluster.schemas.validation import Validator, compile_pattern
from devcluster.status import FieldError, forbidden_field, invalid_value, required, unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = "spec.validation.openAPIV3Schema"
_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = ("$ref", "patternProperties", "definitions", "dependencies", "id")
_NESTED = ("allOf", "anyOf", "oneOf")
_EMPTY_IN_LOGIC = ("description", "title", "type")
_UNDEFINED_IN_LOGIC = (
    "default",
    "additionalProperties",
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
)


def structural_errors(openapi_v3_schema: Mapping[str, Any], path: str = ROOT) -> list[FieldError]:
    """Why the schema is not structural (or uses what no CRD may use); empty when it is fine."""
    errors = list(_root_errors(openapi_v3_schema, path))
    if not errors:
        errors = list(_errors(openapi_v3_schema, path))
    return errors


def _root_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if not schema.get("type"):
        yield required(f"{path}.type", "must not be empty at the root")
    elif schema["type"] != "object":
        yield invalid_value(f"{path}.type", schema["type"], "must be object at the root")
    yield from _resource_errors(schema, path)


def _resource_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    properties = schema.get("properties") or {}
    for name in ("apiVersion", "kind"):
        kind = (properties.get(name) or {}).get("type", "string")
        if kind != "string":
            yield invalid_value(f"{path}.properties[{name}].type", kind, "must be string")
    metadata = properties.get("metadata") or {}
    if metadata.get("type", "object") != "object":
        yield invalid_value(f"{path}.properties[metadata].type", metadata["type"], "must be object")
    if set(metadata.get("properties") or {}) - {"name", "generateName"}:
        yield forbidden_field(
            f"{path}.properties[metadata]",
            "must not specify anything other than name and generateName, but metadata is "
            "implicitly specified",
        )


def _errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    yield from _keyword_errors(schema, path)
    yield from _extension_errors(schema, path)
    yield from _list_type_errors(schema, path)
    if "default" in schema:
        yield from _default_errors(schema, path)
    for below, where, wanted in _members(schema, path):
        if not _has_type(below):
            yield required(f"{where}.type", f"must not be empty for specified {wanted}")
        yield from _errors(below, where)
    for name in _NESTED:
        for at, alternative in enumerate(schema.get(name) or []):
            if not _is_int_or_string_pattern(schema, name):
                yield from _logic_errors(alternative, f"{path}.{name}[{at}]")
    if "not" in schema:
        yield from _logic_errors(schema["not"], f"{path}.not")


def _keyword_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    kind = schema.get("type")
    if kind and kind not in _TYPES:
        yield unsupported(f"{path}.type", kind, _TYPES)
    for name in _UNSUPPORTED:
        if name in schema:
            yield forbidden_field(f"{path}.{name}", f"{name} is not supported")
    if schema.get("uniqueItems"):
        yield forbidden_field(
            f"{path}.uniqueItems",
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        )
    if "properties" in schema and "additionalProperties" in schema:
        yield forbidden_field(
            f"{path}.additionalProperties",
            "additionalProperties and properties are mutual exclusive",
        )
    if kind == "array" and "items" not in schema:
        yield required(f"{path}.items", "must be specified")
    try:
        compile_pattern(schema.get("pattern") or "")
    except re.error as error:
        detail = f"must be a valid regular expression, but isn't: {error}"
        yield invalid_value(f"{path}.pattern", schema["pattern"], detail)


def _extension_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    preserve = "x-kubernetes-preserve-unknown-fields"
    if schema.get(preserve) is False:
        yield invalid_value(f"{path}.{preserve}", value=False, detail="must be true or undefined")
    if not schema.get("x-kubernetes-embedded-resource"):
        return
    if not schema.get("properties") and not schema.get(preserve):
        yield required(
            f"{path}.properties",
            "must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields",
        )
    if schema.get("type") != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        yield invalid_value(f"{path}.type", schema.get("type", ""), detail)
    yield from _resource_errors(schema, path)


def _list_type_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if schema.get("x-kubernetes-list-type") != "map":
        return
    items = schema.get("items") or {}
    keys = schema.get("x-kubernetes-list-map-keys") or []
    if not keys:
        yield required(
            f"{path}.x-kubernetes-list-map-keys",
            "must not be empty if x-kubernetes-list-type is map",
        )
    for key in keys:
        member = (items.get("properties") or {}).get(key)
        if member is None:
            detail = "entries must all be names of item properties"
            yield invalid_value(f"{path}.x-kubernetes-list-map-keys", key, detail)
        elif key not in (items.get("required") or []) and "default" not in member:
            yield required(
                f"{path}.items.properties[{key}].default",
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be "
                "a required property",
            )


def _default_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    value = schema["default"]
    if value is None:
        return
    where = f"{path}.default"
    if _has_unknown(value, schema):
        yield invalid_value(where, value, "must not have unknown fields")
    for error in Validator(lambda known: known).errors(value, schema):
        field = where if not error.field else f"{where}.{error.field}"
        yield FieldError(field, error.type, error.message)


def _has_unknown(value: Any, schema: Mapping[str, Any]) -> bool:
    if isinstance(value, list):
        return any(_has_unknown(item, schema.get("items") or {}) for item in value)
    properties = schema.get("properties")
    if not isinstance(value, dict) or not properties:
        return False
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return False
    return any(
        key not in properties or _has_unknown(item, properties[key]) for key, item in value.items()
    )


def _members(schema: Mapping[str, Any], path: str) -> Iterator[tuple[Mapping[str, Any], str, str]]:
    """Each specified schema one level down, its path, and what the server calls its kind."""
    for name, below in (schema.get("properties") or {}).items():
        is_implied = name == "metadata" and not below.get("type")
        if not is_implied:
            yield below, f"{path}.properties[{name}]", "object fields"
    if isinstance(schema.get("items"), dict):
        yield schema["items"], f"{path}.items", "array items"
    if isinstance(schema.get("additionalProperties"), dict):
        where = f"{path}.additionalProperties"
        yield schema["additionalProperties"], where, "object fields"


def _has_type(schema: Mapping[str, Any]) -> bool:
    return bool(
        schema.get("type")
        or schema.get("x-kubernetes-int-or-string")
        or schema.get("x-kubernetes-preserve-unknown-fields")
    )


def _is_int_or_string_pattern(schema: Mapping[str, Any], name: str) -> bool:
    """The one place where types may stand in a junctor: beside x-kubernetes-int-or-string."""
    return bool(schema.get("x-kubernetes-int-or-string")) and name in {"anyOf", "allOf"}


def _logic_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Below anyOf, allOf, oneOf and not only value rules may stand, no structure."""
    for name in _EMPTY_IN_LOGIC:
        if schema.get(name):
            yield forbidden_field(f"{path}.{name}", "must be empty to be structural")
    for name in _UNDEFINED_IN_LOGIC:
        if name in schema:
            yield forbidden_field(f"{path}.{name}", "must be undefined to be structural")
    for name, below in (schema.get("properties") or {}).items():
        yield from _logic_errors(below, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from _logic_errors(schema["items"], f"{path}.items")
    for name in _NESTED:
        for at, alternative in enumerate(schema.get(name) or []):
            yield from _logic_errors(alternative, f"{path}.{name}[{at}]")
    if "not" in schema:
        yield from _logic_errors(schema["not"], f"{path}.not")
