"""io: discovery, OpenAPI and version."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from devcluster.handlers import discovery
from devcluster.handlers.read import answer
from devcluster.schemas import openapi
from devcluster.status import no_such_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from devcluster.api import Api

_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_OPENAPI_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def serve(api: Api, request: web.Request) -> web.StreamResponse:
    """Answer a path that is no resource; StatusError 404."""
    parts = request.path.strip("/").split("/")
    if parts[0] == "openapi":
        return _open_api(api, request, parts[1:])
    document = _document(api, request, parts)
    if document is None:
        raise no_such_path()
    if document.get("kind") == "APIGroupDiscoveryList":
        headers = {"Content-Type": _AGGREGATED}
        return _with_etag(request, orjson.dumps(document), headers)
    return answer(orjson.dumps(document), request)


def _document(api: Api, request: web.Request, parts: list[str]) -> dict[str, Any] | None:
    kinds = api.registry.kinds()
    accept = request.headers.get("Accept", "")
    if parts in (["api"], ["apis"]) and "g=apidiscovery.k8s.io;v=v2;" in accept:
        return discovery.aggregated(kinds, core=parts == ["api"])
    documents: dict[tuple[str, int], Callable[[], dict[str, Any] | None]] = {
        ("version", 1): lambda: discovery.VERSION,
        ("api", 1): discovery.core_versions,
        ("api", 2): lambda: discovery.resource_list("", parts[1], kinds),
        ("apis", 1): lambda: discovery.group_list(kinds),
        ("apis", 2): lambda: discovery.group_document(parts[1], kinds),
        ("apis", 3): lambda: discovery.resource_list(parts[1], parts[2], kinds),
    }
    find = documents.get((parts[0], len(parts)))
    return find() if find is not None else None


def _open_api(api: Api, request: web.Request, parts: list[str]) -> web.StreamResponse:
    """OpenAPI v2 and v3; StatusError 404.

    kubectl asks for version 2 as protobuf only to learn what it already read in version 3: an
    empty document serves it, JSON in its place breaks every `kubectl apply`.
    """
    if parts == ["v2"] and "protobuf" in request.headers.get("Accept", ""):
        return web.Response(body=b"", content_type=_OPENAPI_PROTOBUF)
    kinds, path = api.registry.kinds(), "/".join(parts[1:])
    document: dict[str, Any] | None = None
    if parts == ["v2"]:
        document = openapi.v2_document(kinds, api.registry.open_api())
    elif parts == ["v3"]:
        document = openapi.v3_index(kinds, api.registry.open_api())
    elif parts[0] == "v3":
        document = openapi.v3_document(path, kinds, api.registry.open_api())
    if document is None:
        raise no_such_path()
    return answer(orjson.dumps(document), request)


def _with_etag(request: web.Request, data: bytes, headers: dict[str, str]) -> web.Response:
    tag = f'"{hashlib.sha256(data).hexdigest()}"'
    headers = {**headers, "ETag": tag, "Vary": "Accept"}
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=data, headers=headers)
