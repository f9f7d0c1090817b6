"""domain: OpenAPI documents: what `kubectl apply` and `kubectl explain` look up.

`kubectl` looks for the `fieldValidation` parameter on the PATCH operation of a kind (found: the
server validates fields) and, to explain, for the GET operation of a resource's path and the schema
with the same group, version and kind. Both stand in the v3 document of a group version. No
operation declares the strategic-merge content type, so that kubectl takes its own merge keys.

The schemas that OpenAPI documents publish, under the names a real server uses.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from devcluster.schemas.builtin import MERGE_KEYS, definition_name, definitions
from devcluster.schemas.kinds import KINDS
from devcluster.schemas.schema import OMIT_EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from devcluster.schemas.kinds import Kind

if TYPE_CHECKING:
    Schemas = Mapping[tuple[str, str], Mapping[str, Any]]
V2_PREFIX = "#/definitions/"
V3_PREFIX = "#/components/schemas/"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_CORE = "io.k8s.api.core.v1"
_META_TYPES = (
    *("ObjectMeta", "OwnerReference", "ManagedFieldsEntry", "LabelSelector"),
    *("LabelSelectorRequirement", "DeleteOptions", "Preconditions", "Condition"),
)
# These are core types that no core kind reaches.
_CORE_TYPES = ("PodTemplateSpec", "TopologySelectorTerm", "TopologySelectorLabelRequirement")
_GROUP_IN_NAME = re.compile(r"^[A-Z][a-z]+V\d+(?=[A-Z])")
# Swagger 2 has no place for these; a real server drops them there too.
_NOT_IN_V2 = frozenset({"anyOf", "oneOf", "allOf", "not", "nullable", "default"})
_SHAPES = frozenset({"type", "format", "items", "properties", "additionalProperties"})
_TYPE_META = MappingProxyType(
    {
        "apiVersion": {
            "type": "string",
            "description": "APIVersion defines the versioned schema of this representation of an "
            "object.",
        },
        "kind": {
            "type": "string",
            "description": "Kind is a string value representing the REST resource this object "
            "represents.",
        },
    }
)


def component_name(kind: Kind) -> str:
    """`io.k8s.api.core.v1.Pod`, and for a custom kind the reversed group, version and kind."""
    name = definition_name(kind.api_version, kind.kind)
    if kind in KINDS and name in definitions():
        return _published_names()[name]
    return ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))


def components(kinds: Sequence[Kind], custom: Schemas, prefix: str) -> dict[str, Any]:
    """The schemas of `kinds`, of their lists and of every type they refer to, by name.

    `custom` maps (apiVersion, kind) to the openAPIV3Schema of a CRD; `prefix` (V2_PREFIX or
    V3_PREFIX) begins each reference and tells which OpenAPI is meant.
    """
    found: dict[str, Any] = {}
    waiting = ["ObjectMeta"]
    for kind in kinds:
        schema = custom.get((kind.api_version, kind.kind))
        if schema is not None:
            found[component_name(kind)] = _custom(schema, prefix)
        else:
            waiting.append(definition_name(kind.api_version, kind.kind))
        if kind.is_stored:
            found[f"{component_name(kind)}List"] = _list_of(kind, prefix)
    names = _published_names()
    for name in _reached(waiting):
        found[names[name]] = _builtin(name, prefix)
    for kind in kinds:
        if component_name(kind) in found:
            found[component_name(kind)] |= _identity(kind, kind.kind)
    return found


def _identity(kind: Kind, name: str) -> dict[str, Any]:
    identity = {"group": kind.group, "kind": name, "version": kind.version}
    return {"x-kubernetes-group-version-kind": [identity]}


def _list_of(kind: Kind, prefix: str) -> dict[str, Any]:
    items = {"type": "array", "items": {"$ref": prefix + component_name(kind)}}
    return {
        "type": "object",
        "description": f"{kind.list_name} is a list of {kind.kind}",
        "required": ["items"],
        "properties": {**_TYPE_META, "metadata": {"type": "object"}, "items": items},
        **_identity(kind, kind.list_name),
    }


def _builtin(name: str, prefix: str) -> dict[str, Any]:
    definition = definitions()[name]
    properties = {}
    for field, schema in definition["properties"].items():
        properties[field] = {**_published(schema, prefix), **_patch_rule(name, field)}
    return {**definition, "properties": properties}


def _published(schema: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    if "$ref" in schema:
        return {"$ref": prefix + _published_names()[schema["$ref"]]}
    if schema.get("x-quantity"):
        return {"type": "string"}
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": "string", "format": "int-or-string"}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return {"x-kubernetes-preserve-unknown-fields": True}
    published = {key: value for key, value in schema.items() if key != OMIT_EMPTY}
    for key in ("items", "additionalProperties"):
        if key in schema:
            published[key] = _published(schema[key], prefix)
    return published


def _patch_rule(name: str, field: str) -> dict[str, str]:
    if (name, field) not in MERGE_KEYS:
        return {}
    strategy = "merge,retainKeys" if field == "volumes" else "merge"
    key = MERGE_KEYS[name, field]
    rule = {"x-kubernetes-patch-strategy": strategy}
    return {**rule, "x-kubernetes-patch-merge-key": key} if key else rule


def _custom(schema: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    shown = _for_v2(schema) if prefix == V2_PREFIX else dict(schema)
    if schema.get("x-kubernetes-preserve-unknown-fields") and prefix == V2_PREFIX:
        return shown
    text = "Standard object's metadata."
    reference = {"$ref": prefix + _published_names()["ObjectMeta"]}
    metadata: dict[str, Any] = {"description": text, "allOf": [reference]}
    if prefix == V2_PREFIX:
        metadata = {"description": text, **reference}
    properties = {**_TYPE_META, **(shown.get("properties") or {}), "metadata": metadata}
    return {**shown, "properties": properties}


def _for_v2(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A structural schema without what Swagger 2 cannot say, as the server publishes it."""
    shown = {key: value for key, value in schema.items() if key not in _NOT_IN_V2}
    if schema.get("nullable") or schema.get("x-kubernetes-preserve-unknown-fields"):
        return {key: value for key, value in shown.items() if key not in _SHAPES}
    if schema.get("x-kubernetes-int-or-string"):
        shown.pop("type", None)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            shown[key] = _for_v2(schema[key])
    if "properties" in schema:
        shown["properties"] = {
            name: _for_v2(member) for name, member in schema["properties"].items()
        }
    return shown


@cache
def _published_names() -> Mapping[str, str]:
    """Our name of a built-in type -> its published name.

    A type belongs to the first group that reaches it, core before all others.
    """
    packages = {**dict.fromkeys(_META_TYPES, _META), **dict.fromkeys(_CORE_TYPES, _CORE)}
    for kind in KINDS:
        below = [(s.group, s.version, s.kind) for s in kind.subresources if s.group]
        for group, version, name in [(kind.group, kind.version, kind.kind), *below]:
            api_version = f"{group}/{version}" if group else version
            for reached in _reached([definition_name(api_version, name)]):
                packages.setdefault(reached, _package(group, version))
    return {name: f"{packages[name]}.{_GROUP_IN_NAME.sub('', name)}" for name in packages}


def _package(group: str, version: str) -> str:
    if group == "apiextensions.k8s.io":
        return f"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}"
    return f"io.k8s.api.{group.split('.', maxsplit=1)[0] or 'core'}.{version}"


def _reached(names: Iterable[str]) -> Iterator[str]:
    """These types and every type below them, each once; names without a type are passed over."""
    waiting = list(names)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop(0)
        if name in seen or name not in definitions():
            continue
        seen.add(name)
        yield name
        for schema in definitions()[name]["properties"].values():
            inner = schema
            while "$ref" not in inner and ("items" in inner or "additionalProperties" in inner):
                inner = inner.get("items") or inner["additionalProperties"]
            waiting += [inner["$ref"]] if "$ref" in inner else []


_INFO: Final = {"title": "IPUHub embedded Kubernetes API", "version": "v1"}
# verb -> HTTP method, x-kubernetes-action
_VERBS: Final = {
    "list": ("get", "list"),
    "create": ("post", "post"),
    "get": ("get", "get"),
    "update": ("put", "put"),
    "patch": ("patch", "patch"),
    "delete": ("delete", "delete"),
}
_COLLECTION: Final = ("list", "create")
_OBJECT: Final = ("get", "update", "patch", "delete")
_WRITES: Final = {"post", "put", "patch"}
_PARAMETERS: Final = (
    ("dryRun", "All: do everything but store the object."),
    ("fieldManager", "Who makes this change."),
    ("fieldValidation", "Ignore, Warn (the default) or Strict: what to do with unknown fields."),
)
_PATCH_TYPES: Final = ("application/json-patch+json", "application/merge-patch+json")


def v3_index(kinds: Iterable[Kind], custom: Schemas | None = None) -> dict[str, Any]:
    """`/openapi/v3`: the address of each group version's document.

    The mark in an address changes with the document (clients cache by it), so also with the
    schemas of `custom`, (apiVersion, kind) -> openAPIV3Schema of each CRD.
    """
    by_path: dict[str, list[Any]] = {}
    for kind in kinds:
        schema = (custom or {}).get((kind.api_version, kind.kind))
        by_path.setdefault(group_version_path(kind), []).append([kind.kind, kind.plural, schema])
    paths = {}
    for path, members in sorted(by_path.items()):
        mark = hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()[:32].upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={mark}"}
    return {"paths": paths}


def v3_document(path: str, kinds: Iterable[Kind], custom: Schemas) -> dict[str, Any] | None:
    """The document of one group version (`api/v1`, `apis/group/version`); None when not served.

    `custom` maps (apiVersion, kind) to the openAPIV3Schema of each CRD.
    """
    members = [kind for kind in kinds if group_version_path(kind) == path]
    if not members:
        return None
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": _paths(members, V3_PREFIX),
        "components": {"schemas": components(members, custom, V3_PREFIX)},
    }


def v2_document(kinds: Sequence[Kind], custom: Schemas) -> dict[str, Any]:
    """`/openapi/v2` for JSON clients: all paths, all schemas as definitions."""
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": _paths(kinds, V2_PREFIX),
        "definitions": components(kinds, custom, V2_PREFIX),
    }


def group_version_path(kind: Kind) -> str:
    """`api/v1` or `apis/group/version`."""
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _paths(kinds: Iterable[Kind], prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in kinds:
        base = f"/{group_version_path(kind)}"
        scoped = f"{base}/namespaces/{{namespace}}" if kind.namespaced else base
        one = f"{scoped}/{kind.plural}/{{name}}"
        found[f"{scoped}/{kind.plural}"] = _operations(kind, _COLLECTION, prefix)
        found[one] = _operations(kind, _OBJECT, prefix)
        if kind.has_status:
            found[f"{one}/status"] = _operations(kind, ("get", "update", "patch"), prefix)
        if kind.namespaced:
            found[f"{base}/{kind.plural}"] = _operations(kind, ("list",), prefix)
    return {path: operations for path, operations in found.items() if operations}


def _operations(kind: Kind, verbs: Iterable[str], prefix: str) -> dict[str, Any]:
    operations: dict[str, Any] = {}
    for verb in verbs:
        if verb in kind.verbs:
            method, action = _VERBS[verb]
            operations[method] = {
                **_operation(kind, verb, prefix),
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": {
                    "group": kind.group,
                    "version": kind.version,
                    "kind": kind.kind,
                },
            }
    return operations


def _operation(kind: Kind, verb: str, prefix: str) -> dict[str, Any]:
    method = _VERBS[verb][0]
    name = component_name(kind) + ("List" if verb == "list" else "")
    answer = {"type": "object"} if verb == "delete" else {"$ref": prefix + name}
    operation: dict[str, Any] = {"operationId": f"{verb}{kind.version.capitalize()}{kind.kind}"}
    if prefix == V2_PREFIX:
        operation["responses"] = {"200": {"description": "OK", "schema": answer}}
    else:
        content = {"application/json": {"schema": answer}}
        operation["responses"] = {"200": {"description": "OK", "content": content}}
    if method in _WRITES:
        operation |= _write_part(method, {"$ref": prefix + name}, prefix)
    return operation


def _write_part(method: str, body: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The query parameters and the body of a writing operation."""
    text = {"type": "string", "uniqueItems": True}
    body = {"type": "object"} if method == "patch" else body
    types = _PATCH_TYPES if method == "patch" else ("application/json",)
    if prefix == V2_PREFIX:
        parameters: list[dict[str, Any]] = [
            {"name": name, "in": "query", "description": description, **text}
            for name, description in _PARAMETERS
        ]
        parameters.append({"name": "body", "in": "body", "required": True, "schema": body})
        return {"parameters": parameters, "consumes": list(types)}
    parameters = [
        {"name": name, "in": "query", "description": description, "schema": text}
        for name, description in _PARAMETERS
    ]
    content = {media_type: {"schema": body} for media_type in types}
    return {"parameters": parameters, "requestBody": {"required": True, "content": content}}
