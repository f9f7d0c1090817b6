"""io: the scale subresource of custom resources and deployments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from devcluster.handlers.read import add_warnings, answer
from devcluster.handlers.write import read_patch, target_of
from devcluster.requests import read_object, write_options
from devcluster.schemas.builtin import decode_error
from devcluster.status import StatusError, bad_request, conflict
from devcluster.storage.objects import Target
from devcluster.storage.patch import PatchError, apply_patch
from devcluster.webhooks.admitted import Face

if TYPE_CHECKING:
    from aiohttp import web

    from devcluster.api import Api
    from devcluster.requests import ApiRequest

Body = dict[str, Any]
_DEPLOYMENT = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


async def get_scale(api: Api, request: ApiRequest) -> web.StreamResponse:
    """GET: the object's scale."""
    item = api.objects.get(request.kind, request.path.namespace, request.path.name)
    paths = _paths(api, request)
    if _get(item.body, paths["specReplicasPath"]) is None:
        where = paths["specReplicasPath"]
        message = f'Internal error occurred: the spec replicas field "{where}" does not exist'
        raise StatusError(500, "InternalError", message)  # so does a real server
    return answer(orjson.dumps(_scale_of(paths, item.body)), request.http)


async def replace_scale(api: Api, request: ApiRequest) -> web.StreamResponse:
    """PUT: another number of replicas."""
    scale = await read_object(request.http)
    return await _write(api, request, lambda _shown: scale)


async def patch_scale(api: Api, request: ApiRequest) -> web.StreamResponse:
    """PATCH: another number of replicas."""
    patch, content_type = await read_patch(request)

    def change(shown: Body) -> Body:
        try:
            return apply_patch(shown, patch, content_type, {})
        except PatchError as error:
            raise StatusError(error.status, error.reason, error.message) from error

    return await _write(api, request, change)


async def _write(api: Api, request: ApiRequest, change: Any) -> web.Response:
    paths, target = _paths(api, request), target_of(request)

    def apply(old: Body, scale: Body) -> Body:
        _set(old, paths["specReplicasPath"], _replicas(scale, target.name))
        return old

    def scale_object(old: Body) -> Body:
        scale = change(_scale_of(paths, old))
        _replicas(scale, target.name)  # refuses what is no Scale
        version = (scale.get("metadata") or {}).get("resourceVersion")
        if version and version != old["metadata"]["resourceVersion"]:
            raise conflict(request.kind, target.name)
        return apply(old, scale)

    whole = Target(target.kind, target.namespace, target.name)
    options = write_options(request.query)
    face = Face(lambda body: _scale_of(paths, body), apply)
    item = await api.admitted.update(request, whole, scale_object, options, face)
    response = answer(orjson.dumps(_scale_of(paths, item.body)), request.http)
    add_warnings(response, options.warnings)
    return response


def _replicas(scale: Body, name: str) -> int:
    wrong = decode_error("autoscaling/v1", "Scale", scale)
    if wrong:
        raise bad_request(f"Scale cannot be handled: {wrong}")
    replicas = int((scale.get("spec") or {}).get("replicas", 0))
    if replicas < 0:
        raise StatusError(
            422,
            "Invalid",
            f'Scale.autoscaling "{name}" is invalid: spec.replicas: Invalid value: '
            f"{replicas}: must be greater than or equal to 0",
        )
    return replicas


def _paths(api: Api, request: ApiRequest) -> dict[str, str]:
    custom = api.registry.custom_kind(request.kind)
    return _DEPLOYMENT if custom is None or custom.scale is None else custom.scale


def _scale_of(paths: dict[str, str], body: Body) -> Body:
    metadata = body["metadata"]
    names = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Body = {"replicas": _get(body, paths["statusReplicasPath"]) or 0}
    selector = _get(body, paths.get("labelSelectorPath", ""))
    if isinstance(selector, str):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in names if name in metadata},
        "spec": {"replicas": _get(body, paths["specReplicasPath"]) or 0},
        "status": status,
    }


def _get(body: Body, path: str) -> Any:
    current: Any = body if path else None
    for part in path.strip(".").split("."):
        current = current.get(part) if isinstance(current, dict) else None
    return current


def _set(body: Body, path: str, value: int) -> None:
    *parents, last = path.strip(".").split(".")
    for part in parents:
        body = body.setdefault(part, {})
    body[last] = value
