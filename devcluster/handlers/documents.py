"""io: discovery, OpenAPI and version, generated from the served kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from devcluster.handlers.read import answer
from devcluster.schemas import openapi
from devcluster.status import no_such_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from devcluster.context import Api
    from devcluster.schemas.kinds import Kind, Subresource

Document = dict[str, Any]
VERSION: Document = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.4+ipuhub",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2025-04-22T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def core_versions() -> Document:
    """/api."""
    address = [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": address}


def group_list(kinds: Iterable[Kind]) -> Document:
    """/apis."""
    groups = [_group(name, versions) for name, versions in _versions(kinds).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group_document(group: str, kinds: Iterable[Kind]) -> Document | None:
    """/apis/GROUP; None where it is not served."""
    versions = _versions(kinds).get(group)
    return {**_group(group, versions), "kind": "APIGroup", "apiVersion": "v1"} if versions else None


def resource_list(group: str, version: str, kinds: Iterable[Kind]) -> Document | None:
    """/api/v1 and /apis/GROUP/VERSION; None where it is not served."""
    found = [kind for kind in kinds if (kind.group, kind.version) == (group, version)]
    if not found:
        return None
    resources: list[Document] = []
    for kind in found:
        resources.append(_resource(kind))
        resources += [_subresource(kind, sub) for sub in kind.subresources]
    api_version = found[0].api_version
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version}
    return {**head, "resources": resources}


def _versions(kinds: Iterable[Kind]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind in kinds:
        versions = found.setdefault(kind.group, [])
        if kind.version not in versions:
            versions.append(kind.version)
    return found


def _group(name: str, versions: list[str]) -> Document:
    entries = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resource(kind: Kind) -> Document:
    document: Document = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": list(kind.verbs),
    }
    if kind.short_names:
        document["shortNames"] = list(kind.short_names)
    if kind.categories:
        document["categories"] = list(kind.categories)
    return document


def _subresource(kind: Kind, sub: Subresource) -> Document:
    document: Document = {
        "name": f"{kind.plural}/{sub.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": sub.kind,
        "verbs": list(sub.verbs),
    }
    if sub.version:
        document |= {"group": sub.group, "version": sub.version}
    return document


_OPENAPI_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def serve(api: Api, request: web.Request) -> web.StreamResponse:
    """Answer a path that is no resource; StatusError 404."""
    parts = request.path.strip("/").split("/")
    if parts[0] == "openapi":
        return _open_api(api, request, parts[1:])
    document = _document(api, parts)
    if document is None:
        raise no_such_path()
    return answer(orjson.dumps(document), request)


def _document(api: Api, parts: list[str]) -> dict[str, Any] | None:
    kinds = api.registry.kinds()
    documents: dict[tuple[str, int], Callable[[], dict[str, Any] | None]] = {
        ("version", 1): lambda: VERSION,
        ("api", 1): core_versions,
        ("api", 2): lambda: resource_list("", parts[1], kinds),
        ("apis", 1): lambda: group_list(kinds),
        ("apis", 2): lambda: group_document(parts[1], kinds),
        ("apis", 3): lambda: resource_list(parts[1], parts[2], kinds),
    }
    find = documents.get((parts[0], len(parts)))
    return find() if find is not None else None


def _open_api(api: Api, request: web.Request, parts: list[str]) -> web.StreamResponse:
    """OpenAPI v3; StatusError 404.

    kubectl asks for version 2 only to learn what it already read in version 3: an empty document
    serves it.
    """
    if parts == ["v2"]:
        return web.Response(body=b"", content_type=_OPENAPI_PROTOBUF)
    kinds, path = api.registry.kinds(), "/".join(parts[1:])
    document: dict[str, Any] | None = None
    if parts == ["v3"]:
        document = openapi.v3_index(kinds, api.registry.open_api())
    elif parts[0] == "v3":
        document = openapi.v3_document(path, kinds, api.registry.open_api())
    if document is None:
        raise no_such_path()
    return answer(orjson.dumps(document), request)
