"""io: PATCH of an object: server-side apply here, the other patches by `handlers/write.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devcluster.handlers.write import check_type, patch_object, target_of, written
from devcluster.requests import parse_body, read_raw, write_options
from devcluster.schemas.schema import copy_json
from devcluster.status import FieldError, StatusError, bad_request, required
from devcluster.storage.ownership import Apply, Manager, apply_new
from devcluster.storage.patch import APPLY_PATCH
from ipuhub.times import format_time

if TYPE_CHECKING:
    from aiohttp import web

    from devcluster.context import Api
    from devcluster.requests import ApiRequest
    from devcluster.schemas.schema import Schema
    from devcluster.storage.objects import WriteOptions

Body = dict[str, Any]


async def patch(api: Api, request: ApiRequest) -> web.StreamResponse:
    """PATCH of an object, or of its status, in any form."""
    if request.http.content_type == APPLY_PATCH:
        return await _apply(api, request)
    if request.query.get("force"):
        message = "Forbidden: may not be specified for non-apply patch"
        raise _bad_options(FieldError("force", "FieldValueForbidden", message))
    return await patch_object(api, request)


async def _apply(api: Api, request: ApiRequest) -> web.StreamResponse:
    kind, path, options = request.kind, request.path, write_options(request.query)
    name = request.query.get("fieldManager", "")
    if not name:
        raise _bad_options(required("fieldManager", "is required for apply patch"))
    manager = Manager(name, "Apply", kind.api_version, path.subresource)
    config, schema = await _read_config(request), _schema(api, request)
    found = api.store.get(kind.resource_name, path.namespace if kind.namespaced else "", path.name)
    if found is None and not path.subresource:
        return await _create(api, request, config, options, manager)
    apply = Apply(config, manager, request.query.get("force") == "true")

    def change(old: Body) -> Body:
        now = format_time(api.objects.clock())
        new, options.managed = apply.to(old, schema, now)
        return new

    item = await api.admitted.update(request, target_of(request), change, options)
    return written(api, request, item, options)


async def _create(
    api: Api, request: ApiRequest, config: Body, options: WriteOptions, manager: Manager
) -> web.StreamResponse:
    kind, path = request.kind, request.path
    api.authorizer.check_create(request.user, kind, path.namespace, path.name)
    now = format_time(api.objects.clock())
    options.managed = apply_new(config, _schema(api, request), manager, now)
    item = await api.admitted.create(request, copy_json(config), options)
    return written(api, request, item, options, code=201)


async def _read_config(request: ApiRequest) -> Body:
    """Return the configuration. StatusError 400."""
    config = parse_body(await read_raw(request.http), APPLY_PATCH)
    if not isinstance(config, dict):
        raise bad_request("error decoding YAML: the configuration must be an object")
    check_type(request.kind, config)
    metadata = config["metadata"]
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if metadata.setdefault("name", request.path.name) != request.path.name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({request.path.name})"
        )
    return config


def _schema(api: Api, request: ApiRequest) -> Schema:
    schema = api.objects.schema(request.kind)
    if schema is None:
        raise StatusError(415, "UnsupportedMediaType", "this kind has no schema to apply by")
    return schema


def _bad_options(error: FieldError) -> StatusError:
    status = StatusError(422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: {error}')
    status.details = {"group": "meta.k8s.io", "kind": "PatchOptions", "causes": [error.as_cause()]}
    return status
