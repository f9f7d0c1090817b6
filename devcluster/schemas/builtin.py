"""domain: schemas and merge keys of the built-in kinds, from a generated table of their fields.

`builtin_schemas.json` (made by `manage.py make_builtin_schemas`) holds, by type name, its fields
as `name` (required: `name!`) to one of string, integer, number, boolean, time, bytes, quantity,
intOrString, any, another type's name, `[T]` for a list and `{T}` for a map.

`field_facts.json` holds what the Python models, which that table is made from, do not say.
Source: the Kubernetes API reference (patchStrategy and patchMergeKey of each field; the types
Quantity and IntOrString).
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from devcluster.schemas.schema import OMIT_EMPTY, Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from devcluster.status import FieldError

_FACTS: Final = json.loads(Path(__file__).with_name("field_facts.json").read_text(encoding="utf-8"))
MERGE_KEYS: Final[Mapping[str, str]] = _FACTS["mergeKeys"]
"""`Type.field` of lists that merge -> by which key; empty: texts that merge as a set."""
QUANTITIES: Final[frozenset[str]] = frozenset(_FACTS["quantities"])
"""Texts, or maps of texts, that are quantities; a JSON number is accepted too."""
INT_OR_STRING: Final[frozenset[str]] = frozenset(_FACTS["intOrString"])
LIST_KEYS: Final[Mapping[str, list[str]]] = _FACTS["listKeys"]
"""`Type.field` of lists whose items server-side apply tells apart by more than the merge key."""
ATOMIC_MAPS: Final[frozenset[str]] = frozenset(_FACTS["atomicMaps"])
"""Types, and `Type.field`, that server-side apply replaces as a whole."""
KEY_DEFAULTS: Final[Mapping[str, str]] = _FACTS["keyDefaults"]
"""Default values of missing keys of list items."""
REPLACED_TYPES: Final[Mapping[str, str]] = _FACTS["replacedTypes"]
"""Fields whose Python model says less than the API takes."""
SCHEMAS_FILE = Path(__file__).with_name("builtin_schemas.json")
_SCALARS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "string": {"type": "string"},
        "integer": {"type": "integer"},
        "number": {"type": "number"},
        "boolean": {"type": "boolean"},
        "time": {"type": "string", "format": "date-time"},
        "bytes": {"type": "string", "format": "byte"},
        "quantity": {"x-quantity": True},
        "intOrString": {"x-kubernetes-int-or-string": True},
        "any": {"x-kubernetes-preserve-unknown-fields": True, "nullable": True},
    }
)
_ROOT_NAMES = MappingProxyType(
    {
        ("v1", "Event"): "CoreV1Event",
        ("authentication.k8s.io/v1", "TokenRequest"): "AuthenticationV1TokenRequest",
    }
)
_JSON_TYPES = MappingProxyType(
    {
        "integer": "number",
        "number": "number",
        "boolean": "bool",
        "object": "object",
        "array": "array",
        "null": "null",
    }
)
_GO_TYPES = MappingProxyType({"integer": "int64", "number": "float64", "boolean": "bool"})


@cache
def definitions() -> Mapping[str, Mapping[str, Any]]:
    """Every type as an object schema; `$ref` holds the bare name of another type."""
    table: dict[str, dict[str, str]] = json.loads(SCHEMAS_FILE.read_text(encoding="utf-8"))
    found = {name: _definition(name, fields) for name, fields in table.items()}
    for field in found["ObjectMeta"]["properties"].values():
        if field.get("type") == "array":
            field[OMIT_EMPTY] = True  # empty lists of owners or finalizers are never shown
    return found


def definition_name(api_version: str, kind: str) -> str:
    """The name under which a kind's own type stands in `definitions`."""
    return _ROOT_NAMES.get((api_version, kind), kind)


@cache
def schema_of(api_version: str, kind: str) -> Schema | None:
    """The schema of a built-in kind, for pruning and `validate`; None for an unknown kind."""
    name = definition_name(api_version, kind)
    return Schema({"$ref": name}, definitions()) if name in definitions() else None


@cache
def merge_keys(api_version: str, kind: str) -> Mapping[str, str]:
    """Path of each merging list (`spec.template.spec.containers`) -> its key, for `apply_patch`."""
    name = definition_name(api_version, kind)
    return dict(_merge_paths(name, "", (name,))) if name in definitions() else {}


def decode_error(kind: str, faults: Iterable[FieldError]) -> str:
    """Return the sentence for the first field of the wrong type, empty when all fit.

    The server refuses such a body (400) before it looks at anything else.
    """
    wrong = next((error for error in faults if " in body must be of type " in error.message), None)
    if wrong is None:
        return ""
    found, wanted = _types_in(wrong.message)
    return (
        f"json: cannot unmarshal {found} into Go struct field {kind}.{wrong.field} of type {wanted}"
    )


def _definition(owner: str, fields: Mapping[str, str]) -> dict[str, Any]:
    properties = {
        name.removesuffix("!"): {**_field(kind), **_merging(f"{owner}.{name.removesuffix('!')}")}
        for name, kind in fields.items()
    }
    required = [name.removesuffix("!") for name in fields if name.endswith("!")]
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        **_merging(owner),
    }


def _merging(field: str) -> dict[str, Any]:
    """Return how server-side apply merges a field, or the values of a type."""
    if field in ATOMIC_MAPS:
        return {"x-kubernetes-map-type": "atomic"}
    if field in KEY_DEFAULTS:
        return {"x-key-default": KEY_DEFAULTS[field]}
    key = MERGE_KEYS.get(field)
    if key is None:
        return {}
    if not key:
        return {"x-kubernetes-list-type": "set"}
    keys = LIST_KEYS.get(field, [key])
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}


def _field(kind: str) -> Mapping[str, Any]:
    if kind.startswith("["):
        return {"type": "array", "items": _field(kind[1:-1])}
    if kind.startswith("{"):
        # All maps of the built-in kinds are omitted when empty, so none is ever stored so.
        members = _field(kind[1:-1])
        return {"type": "object", "additionalProperties": members, OMIT_EMPTY: True}
    return _SCALARS.get(kind) or {"$ref": kind}


def _merge_paths(name: str, path: str, above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for field, kind in definitions()[name]["properties"].items():
        place = f"{path}.{field}" if path else field
        if f"{name}.{field}" in MERGE_KEYS:
            yield place, MERGE_KEYS[f"{name}.{field}"]
        below = (kind.get("items") or kind).get("$ref")
        if below is not None and below not in above:
            yield from _merge_paths(below, place, (*above, below))


def _types_in(message: str) -> tuple[str, str]:
    """Parse a validation message into the found JSON type and the expected Go type."""
    found = message.rpartition(': "')[2].rstrip('"')
    wanted = message.partition("must be of type ")[2].partition(":")[0]
    # A text of the wrong format (a time, base64) stands there itself instead of its type.
    return _JSON_TYPES.get(found, "string"), _GO_TYPES.get(wanted, wanted)
