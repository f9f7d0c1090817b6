"""io: create, replace, patch and delete requests, and the scale subresource of custom resources."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson

from devcluster.handlers.read import add_warnings, answer, render
from devcluster.requests import (
    make_filter,
    parse_body,
    read_object,
    read_raw,
    read_typed,
    write_options,
)
from devcluster.schemas.builtin import decode_error, merge_keys, schema_of
from devcluster.status import (
    StatusError,
    bad_request,
    conflict,
    invalid,
    invalid_value,
    no_such_path,
    success,
)
from devcluster.storage.metadata import parse_delete_options
from devcluster.storage.objects import Target
from devcluster.storage.patch import apply_patch
from devcluster.webhooks.admitted import WebhookView

if TYPE_CHECKING:
    from aiohttp import web

    from devcluster.context import Api
    from devcluster.requests import ApiRequest
    from devcluster.schemas.kinds import Kind
    from devcluster.storage.metadata import DeleteOptions
    from devcluster.storage.objects import WriteOptions
    from devcluster.storage.store import Item

# On a real server these answer with the deleted object, the others with a Status.
_RETURNS_DELETED = {"pods", "serviceaccounts", "persistentvolumeclaims"}
_RBAC = ".rbac.authorization.k8s.io"
_MADE_BY_PUT = {
    "events",
    "leases.coordination.k8s.io",
    *(f"{plural}{_RBAC}" for plural in ("roles", "rolebindings")),
    *(f"{plural}{_RBAC}" for plural in ("clusterroles", "clusterrolebindings")),
}


class _GoneError(Exception):
    """An object of a collection is not there any more."""


async def create_object(api: Api, request: ApiRequest) -> web.StreamResponse:
    """POST to a collection."""
    body = await read_object(request.http)
    check_type(request.kind, body)
    options = write_options(request.query)
    item = await api.admitted.create(request, body, options)
    return written(api, request, item, options, code=201)


async def replace_object(api: Api, request: ApiRequest) -> web.StreamResponse:
    """PUT of an object, or of its status."""
    body = await read_object(request.http)
    check_type(request.kind, body)
    options = write_options(request.query)
    path = request.path
    if request.kind.resource_name in _MADE_BY_PUT and not path.subresource:
        present = api.store.get(request.kind.resource_name, path.namespace, path.name)
        if present is None and body["metadata"].get("name") == path.name:
            api.authorizer.check_create(request.user, request.kind, path.namespace, path.name)
            item = await api.admitted.create(request, body, options)
            return written(api, request, item, options, code=201)
    sent = orjson.dumps(body)  # each attempt starts from it
    item = await api.admitted.update(
        request, target_of(request), lambda _old: orjson.loads(sent), options
    )
    return written(api, request, item, options)


async def patch_object(api: Api, request: ApiRequest) -> web.StreamResponse:
    """PATCH of an object, or of its status: JSON, merge or strategic."""
    patch, content_type = await read_patch(request)
    kind, options = request.kind, write_options(request.query)
    keys = (
        None
        if api.registry.custom_kind(kind) is not None
        else merge_keys(kind.api_version, kind.kind)
    )

    def change(old: dict[str, Any]) -> dict[str, Any]:
        new = apply_patch(old, patch, content_type, keys)
        check_type(kind, new)
        _require_same_uid(request, old, new)
        return new

    item = await api.admitted.update(request, target_of(request), change, options)
    return written(api, request, item, options)


def _require_same_uid(request: ApiRequest, old: Body, new: Body) -> None:
    """A patch of another UID is Invalid; a PUT of another UID is a Conflict (found on 1.37)."""
    uid = (new.get("metadata") or {}).get("uid")
    if uid and uid != old["metadata"]["uid"]:
        error = invalid_value("metadata.uid", uid, "field is immutable")
        raise invalid(request.kind, request.path.name, [error])


async def delete_object(api: Api, request: ApiRequest) -> web.StreamResponse:
    """DELETE of one object."""
    options = await read_delete_options(request)
    path = request.path
    key = (path.namespace if request.kind.namespaced else "", path.name)
    item, is_gone = await api.admitted.delete(request, key, options)
    if is_gone and request.kind.resource_name not in _RETURNS_DELETED:
        status = success(request.kind, path.name, item.body["metadata"]["uid"])
        return answer(orjson.dumps(status), request.http)
    return answer(render(api, request, item), request.http)


async def delete_collection(api: Api, request: ApiRequest) -> web.StreamResponse:
    """DELETE of all objects of a collection that the selectors match."""
    options = await read_delete_options(request)
    matches, kind = make_filter(request), request.kind
    bodies = []
    for item in api.store.items(kind.resource_name, request.path.namespace):
        if matches is None or matches(item.body):
            with suppress(_GoneError):
                bodies.append(await _delete_one(api, request, item, options))
    head = {"kind": kind.list_name, "apiVersion": kind.api_version}
    metadata = {"resourceVersion": str(api.store.revision)}
    return answer(orjson.dumps({**head, "metadata": metadata, "items": bodies}), request.http)


async def _delete_one(
    api: Api, request: ApiRequest, item: Item, options: DeleteOptions
) -> dict[str, Any]:
    """Delete one object of a collection; _GoneError if another request has deleted it."""
    try:
        last, _ = await api.admitted.delete(request, item.key, options)
    except StatusError as error:
        if error.code == 404:
            raise _GoneError from error
        raise
    return last.body


def target_of(request: ApiRequest) -> Target:
    """Return the object that a request addresses."""
    path = request.path
    return Target(request.kind, path.namespace, path.name, path.subresource)


def written(
    api: Api, request: ApiRequest, item: Item, options: WriteOptions, *, code: int = 200
) -> web.Response:
    """Answer with the object, and with a Warning header per thing to say."""
    response = answer(render(api, request, item), request.http, code=code)
    add_warnings(response, options.warnings)
    return response


def check_type(kind: Kind, body: dict[str, Any]) -> None:
    """Fill in apiVersion and kind of built-in objects; refuse another type. StatusError 400."""
    api_version = body.setdefault("apiVersion", kind.api_version)
    name = body.setdefault("kind", kind.kind)
    if not isinstance(api_version, str) or not isinstance(name, str):
        raise bad_request("couldn't get version/kind; json parse error: they must be strings")
    if (api_version, name) == (kind.api_version, kind.kind):
        if not isinstance(body.setdefault("metadata", {}), dict):
            raise bad_request("metadata must be an object")
        return
    if name != kind.kind:
        raise bad_request(
            f'{name} in version "{api_version.rpartition("/")[2]}" cannot be handled as a '
            f"{kind.kind}: converting ({api_version}.{name}) to ({kind.api_version}.{kind.kind}): "
            "unknown conversion"
        )
    raise bad_request(
        f"the API version in the data ({api_version}) does not match the expected API version "
        f"({kind.api_version})"
    )


async def read_patch(request: ApiRequest) -> tuple[Any, str]:
    """Return the parsed patch and its content type; StatusError 400, 415."""
    content_type = request.http.content_type
    return parse_body(await read_raw(request.http), content_type), content_type


async def read_delete_options(request: ApiRequest) -> DeleteOptions:
    """Read the options of a deletion from body and query."""
    body = await read_typed(request.http, "v1", "DeleteOptions")
    return parse_delete_options(body, request.query)


Body = dict[str, Any]


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

    return await _write(api, request, lambda scale: apply_patch(scale, patch, content_type, {}))


async def _write(api: Api, request: ApiRequest, change: Any) -> web.Response:
    paths, target = _paths(api, request), target_of(request)

    def apply(old: Body, scale: Body) -> Body:
        _set(old, paths["specReplicasPath"], _replicas(scale, target.name))
        return old

    def scale_object(old: Body) -> Body:
        scale = change(_scale_of(paths, old))
        _replicas(scale, target.name)  # rejects objects that are not a Scale
        version = (scale.get("metadata") or {}).get("resourceVersion")
        if version and version != old["metadata"]["resourceVersion"]:
            raise conflict(request.kind, target.name)
        return apply(old, scale)

    parent = Target(target.kind, target.namespace, target.name)
    options = write_options(request.query)
    face = WebhookView(lambda body: _scale_of(paths, body), apply)
    item = await api.admitted.update(request, parent, scale_object, options, face)
    response = answer(orjson.dumps(_scale_of(paths, item.body)), request.http)
    add_warnings(response, options.warnings)
    return response


def _replicas(scale: Body, name: str) -> int:
    schema = schema_of("autoscaling/v1", "Scale")
    wrong = decode_error("Scale", schema.validate(scale)) if schema is not None else ""
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
    if custom is None or custom.scale is None:
        raise no_such_path()
    return custom.scale


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
