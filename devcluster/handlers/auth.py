"""io: TokenRequest, TokenReview and the access reviews."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from devcluster.handlers.read import answer
from devcluster.paths import User
from devcluster.requests import read_typed
from devcluster.security.authentication import ISSUER
from devcluster.security.rbac import Attributes
from devcluster.status import FieldError, bad_request, conflict, invalid, not_found
from devcluster.webhooks.review import user_info
from ipuhub.times import format_time

if TYPE_CHECKING:
    from aiohttp import web

    from devcluster.context import Api
    from devcluster.requests import ApiRequest
    from devcluster.storage.store import Item

Body = dict[str, Any]
_SHORTEST = 600
_LONGEST = 1 << 32
_DEFAULT = 3600
_BINDABLE = {"Pod": "pods", "Secret": "secrets"}


async def create_token(api: Api, request: ApiRequest) -> web.StreamResponse:
    """POST of a TokenRequest below a service account."""
    body = await read_typed(request.http, "authentication.k8s.io/v1", "TokenRequest")
    path, spec = request.path, body.get("spec") or {}
    account = api.objects.get(request.kind, path.namespace, path.name)
    seconds = spec.get("expirationSeconds", _DEFAULT)
    if not _SHORTEST <= seconds <= _LONGEST:
        limit = "less than 10 minutes" if seconds < _SHORTEST else "larger than 2^32 seconds"
        message = f"Invalid value: {seconds}: may not specify a duration {limit}"
        error = FieldError("spec.expirationSeconds", "FieldValueInvalid", message)
        refusal = invalid(request.kind, "", [error])
        refusal.message = (
            f'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: {message}'
        )
        raise refusal
    audiences = spec.get("audiences") or [ISSUER]
    bound = _bound_object(api, request, spec.get("boundObjectRef"))
    token, expires = api.authenticator.issue_token(account, audiences, seconds, bound)
    end = format_time(datetime.fromtimestamp(expires, UTC))
    answered = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": path.name, "namespace": path.namespace},
        "spec": {**spec, "audiences": audiences, "expirationSeconds": seconds},
        "status": {"token": token, "expirationTimestamp": end},
    }
    return answer(orjson.dumps(answered), request.http, code=201)


async def review_token(api: Api, request: ApiRequest) -> web.StreamResponse:
    """POST of a TokenReview: whose token is it?"""
    body = await _read_review(request)
    spec = body.get("spec") or {}
    if not spec.get("token"):
        raise bad_request("token is required for TokenReview in authentication")
    found = api.authenticator.review(spec["token"], spec.get("audiences") or [])
    status: Body = {"user": {}, "error": "invalid bearer token"}
    if found is not None:
        user, audiences = found
        status = {"authenticated": True, "user": user_info(user), "audiences": audiences}
    return _reviewed(request, body, status)


async def review_access(api: Api, request: ApiRequest) -> web.StreamResponse:
    """POST of a SubjectAccessReview: is the action allowed?"""
    body = await _read_review(request)
    spec = body.get("spec") or {}
    if not spec.get("user") and not spec.get("groups"):
        message = "Required value: at least one of user or group must be specified"
        raise invalid(request.kind, "", [FieldError("spec.user", "FieldValueRequired", message)])
    user = User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""))
    return _reviewed(request, body, _access_status(api, request, user, spec))


async def review_own_access(api: Api, request: ApiRequest) -> web.StreamResponse:
    """POST of a SelfSubjectAccessReview: may I?"""
    body = await _read_review(request)
    status = _access_status(api, request, request.user, body.get("spec") or {})
    return _reviewed(request, body, status)


async def review_self(_api: Api, request: ApiRequest) -> web.StreamResponse:
    """POST of a SelfSubjectReview: who am I?"""
    body = await _read_review(request)
    return _reviewed(request, body, {"userInfo": user_info(request.user)})


async def _read_review(request: ApiRequest) -> Body:
    return await read_typed(request.http, request.kind.api_version, request.kind.kind)


def _access_status(api: Api, request: ApiRequest, user: User, spec: Body) -> Body:
    if bool(spec.get("resourceAttributes")) == bool(spec.get("nonResourceAttributes")):
        message = (
            "Invalid value: exactly one of nonResourceAttributes or resourceAttributes must be "
            "specified"
        )
        error = FieldError("spec.resourceAttributes", "FieldValueInvalid", message)
        raise invalid(request.kind, "", [error])
    path, wanted = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
    if wanted or not path:
        names = ("verb", "group", "resource", "subresource", "namespace", "name")
        attributes = Attributes(*((wanted or {}).get(name, "") for name in names))
    else:
        attributes = Attributes(path.get("verb", ""), path=path.get("path", ""))
    decision = api.authorizer.decide(user, attributes)
    status: Body = {"allowed": decision.allowed}
    return {**status, "reason": decision.reason} if decision.reason else status


def _reviewed(request: ApiRequest, body: Body, status: Body) -> web.Response:
    kind = request.kind
    answered = {**body, "kind": kind.kind, "apiVersion": kind.api_version, "status": status}
    answered.setdefault("metadata", {})
    return answer(orjson.dumps(answered), request.http, code=201)


def _bound_object(api: Api, request: ApiRequest, reference: Body | None) -> Item | None:
    if not reference:
        return None
    bucket, name = _BINDABLE.get(reference.get("kind", "")), reference.get("name", "")
    if bucket is None:
        raise bad_request(f"cannot bind token to object of type {reference.get('kind')}")
    kind = api.registry.find("", "v1", bucket)
    item = api.store.get(bucket, request.path.namespace, name)
    if kind is None or item is None:
        raise not_found(kind or request.kind, name)
    uid = item.body["metadata"]["uid"]
    if reference.get("uid") not in {None, "", uid}:
        reason = (
            f"the UID in the bound object reference ({reference['uid']}) does not match the UID in "
            "record. The object might have been deleted and then recreated"
        )
        raise conflict(kind, name, reason)
    return item
