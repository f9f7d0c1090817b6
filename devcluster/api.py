"""io: routes an authenticated request to its handler and turns errors into Status responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson
import structlog
from aiohttp import web

from devcluster.handlers import apply, auth, documents, logs, pods, read, write
from devcluster.paths import parse_path
from devcluster.requests import ApiRequest, check_accept
from devcluster.security.authorization import impersonate
from devcluster.status import StatusError, bad_request, no_such_path, not_allowed
from ipuhub.process.health import is_client_disconnect

if TYPE_CHECKING:
    from devcluster.context import Api, Handler
    from devcluster.paths import ResourcePath

log = structlog.get_logger(__name__)

_ON_COLLECTION: Final[dict[str, Handler]] = {
    "GET": read.list_objects,
    "POST": write.create_object,
    "DELETE": write.delete_collection,
}
_ON_OBJECT: Final[dict[str, Handler]] = {
    "GET": read.get_object,
    "PUT": write.replace_object,
    "PATCH": apply.patch,
    "DELETE": write.delete_object,
}
_STATUS: Final[dict[str, Handler]] = {name: _ON_OBJECT[name] for name in ("GET", "PUT", "PATCH")}
_ON_SUBRESOURCE: Final[dict[str, dict[str, Handler]]] = {
    "status": _STATUS,
    "finalize": {"PUT": write.replace_object},
    "scale": {
        "GET": write.get_scale,
        "PUT": write.replace_scale,
        "PATCH": write.patch_scale,
    },
    "log": {"GET": logs.read_log},
    "binding": {"POST": pods.bind},
    "exec": {"GET": pods.stream, "POST": pods.stream},
    "attach": {"GET": pods.stream, "POST": pods.stream},
    "token": {"POST": auth.create_token},
}
_ANSWERED: Final[dict[str, Handler]] = {
    "tokenreviews": auth.review_token,
    "subjectaccessreviews": auth.review_access,
    "selfsubjectaccessreviews": auth.review_own_access,
    "selfsubjectreviews": auth.review_self,
}
_ANY_FORM: Final = {"log", "exec", "attach"}
_OPEN_PATHS: Final = {"/healthz", "/livez", "/readyz"}


async def handle(api: Api, request: web.Request) -> web.StreamResponse:
    """Answer any request."""
    try:
        return await _route(api, request)
    except StatusError as error:
        response = _refusal(error)
    except RecursionError:
        response = _refusal(bad_request("the body is nested too deeply"))
    except Exception as error:
        if is_client_disconnect(request, error):
            return web.Response()  # the client is gone, and the answer is incomplete
        log.exception("request failed", method=request.method, path=request.path)
        response = _refusal(StatusError(500, "InternalError", "Internal error occurred"))
    if not request.content.at_eof():
        response.force_close()  # else the unread body would be taken for the next request
    return response


async def _route(api: Api, request: web.Request) -> web.StreamResponse:
    if request.path in _OPEN_PATHS:
        return web.Response(text="ok")
    user = impersonate(api.authorizer, api.authenticator.authenticate(request), request)
    path = parse_path(request.path)
    api.authorizer.check(user, request, path)
    if path is None:
        return documents.serve(api, request)
    kind = api.registry.find(path.group, path.version, path.plural)
    if kind is None or (path.namespace and not kind.namespaced):
        raise no_such_path()
    if path.subresource not in _ANY_FORM:
        check_accept(request)
    handler = _choose(ApiRequest(request, kind, path, user))
    return await handler(api, ApiRequest(request, kind, path, user))


def _choose(request: ApiRequest) -> Handler:
    path, kind, method = request.path, request.kind, request.http.method
    if path.subresource:
        handler = _ON_SUBRESOURCE.get(path.subresource, {}).get(method)
        if kind.subresource(path.subresource) is None:
            raise no_such_path()
    elif not kind.is_stored:
        handler = _ANSWERED.get(path.plural) if method == "POST" else None
    elif method == "GET" and not path.name and _wants_watch(request):
        handler = read.watch_objects
    elif path.name:
        handler = _ON_OBJECT.get(method)
    else:
        handler = _ON_COLLECTION.get(method)
    if handler is None or _lacks_namespace(request, path):
        raise not_allowed()
    return handler


def _lacks_namespace(request: ApiRequest, path: ResourcePath) -> bool:
    is_everywhere = request.http.method == "GET" and not path.name
    return request.kind.namespaced and not path.namespace and not is_everywhere


def _wants_watch(request: ApiRequest) -> bool:
    return request.query.get("watch", "").lower() in {"true", "1", "t"}


def _refusal(error: StatusError) -> web.Response:
    response = web.Response(
        body=orjson.dumps(error.body()), status=error.code, content_type="application/json"
    )
    read.add_warnings(response, error.warnings)
    seconds = error.details.get("retryAfterSeconds")
    if seconds:
        response.headers["Retry-After"] = str(seconds)
    return response
