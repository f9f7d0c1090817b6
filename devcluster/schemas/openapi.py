"""domain: OpenAPI documents that `kubectl apply` and `kubectl explain` look up.

`kubectl apply` looks for the `fieldValidation` parameter on the PATCH operation of a kind (found:
the server validates fields). `kubectl explain` looks for the GET operation of a resource's path and
the schema with the same group, version and kind; only the kinds of CRDs have a schema here. No
operation declares the strategic-merge content type, so that kubectl uses its own merge keys.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from devcluster.schemas.kinds import Kind

    Schemas = Mapping[tuple[str, str], Mapping[str, Any]]
    """(apiVersion, kind) -> the openAPIV3Schema of a CRD."""

_INFO: Final = {"title": "IPUHub embedded Kubernetes API", "version": "v1"}
_METHODS: Final = {"get": "get", "update": "put", "patch": "patch", "delete": "delete"}
_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation")
_TYPE_META: Final = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
_METADATA: Final = {"type": "object", "description": "Standard object's metadata."}


def v3_index(kinds: Iterable[Kind], custom: Schemas) -> dict[str, Any]:
    """Return `/openapi/v3`: the address of each group version's document.

    Clients cache a document by its address, so the mark in it changes with the schemas.
    """
    by_path: dict[str, list[Any]] = {}
    for kind in kinds:
        schema = custom.get((kind.api_version, kind.kind))
        by_path.setdefault(group_version_path(kind), []).append([kind.kind, kind.plural, schema])
    paths = {}
    for path, members in sorted(by_path.items()):
        mark = hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()[:32].upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={mark}"}
    return {"paths": paths}


def v3_document(path: str, kinds: Iterable[Kind], custom: Schemas) -> dict[str, Any] | None:
    """Return the document of one group version (`api/v1`, `apis/group/version`), or None."""
    members = [kind for kind in kinds if group_version_path(kind) == path]
    if not members:
        return None
    paths = {_path_of(kind): _operations(kind) for kind in members}
    schemas = {}
    for kind in members:
        schema = custom.get((kind.api_version, kind.kind))
        if schema is not None:
            name = ".".join((*reversed(kind.group.split(".")), kind.version, kind.kind))
            schemas[name] = _published(kind, schema)
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": paths,
        "components": {"schemas": schemas},
    }


def group_version_path(kind: Kind) -> str:
    """Return `api/v1` or `apis/group/version`."""
    return f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"


def _path_of(kind: Kind) -> str:
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"/{group_version_path(kind)}{scope}/{kind.plural}/{{name}}"


def _identity(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _operations(kind: Kind) -> dict[str, Any]:
    return {
        method: _operation(kind, verb) for verb, method in _METHODS.items() if verb in kind.verbs
    }


def _operation(kind: Kind, verb: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{verb}{kind.version.capitalize()}{kind.kind}",
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": _METHODS[verb],
        "x-kubernetes-group-version-kind": _identity(kind),
    }
    if verb in {"update", "patch"}:
        text = {"type": "string", "uniqueItems": True}
        operation["parameters"] = [
            {"name": name, "in": "query", "schema": text} for name in _PARAMETERS
        ]
    return operation


def _published(kind: Kind, schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = {**_TYPE_META, **(schema.get("properties") or {}), "metadata": _METADATA}
    identity = {"x-kubernetes-group-version-kind": [_identity(kind)]}
    return {**schema, "properties": properties, **identity}
