"""domain: OpenAPI documents: what `kubectl apply` and `kubectl explain` look up.

`kubectl` looks for the `fieldValidation` parameter on the PATCH operation of a kind (found: the
server validates fields) and, to explain, for the GET operation of a resource's path and the schema
with the same group, version and kind. Both stand in the v3 document of a group version. No
operation declares the strategic-merge content type, so that kubectl takes its own merge keys.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from devcluster.schemas.openapischemas import V2_PREFIX, V3_PREFIX, component_name, components

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from devcluster.schemas.kinds import Kind

    Schemas = Mapping[tuple[str, str], Mapping[str, Any]]

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
