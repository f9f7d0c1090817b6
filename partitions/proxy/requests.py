"""io: parses request bodies and paths field by field, and answers errors as problem+json."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import structlog
from aiohttp import web

from ipuhub.api.kinds import KINDS, PREFIX, kind_of_status
from ipuhub.kube.errors import ApiError
from ipuhub.process.health import is_client_disconnect
from partitions.errors import (
    Contradiction,
    ControllerUnavailable,
    NotLeading,
    ReplicaEnds,
    StaleAttempt,
    TrackerUnavailable,
    UnknownPartition,
)
from partitions.proxy.lifecycle import Request
from partitions.proxy.tracker import LARGEST
from partitions.vipu.topology import size_problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

if TYPE_CHECKING:
    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = structlog.get_logger(__name__)
RETRY_SECONDS: Final = 2
_EXAMPLE: Final = 'for example {"size":2}'
CLIENT_LEFT: Final = 499  # as nginx counts it
_KINDS: Final[dict[int, str]] = {
    HTTPStatus.FORBIDDEN: "cluster-forbids",
    HTTPStatus.UNPROCESSABLE_ENTITY: "impossible-size",
    HTTPStatus.SERVICE_UNAVAILABLE: "proxy-unavailable",
}
"""The usual kinds of the proxy, where they are not the API's."""


class Problem(Exception):  # noqa: N818  # it is an answer
    """A request that cannot be served: status, sentence, headers that belong to it, and its kind
    (`ipuhub.api.kinds`; empty: the usual one of the status)."""

    def __init__(
        self, status: int, detail: str, headers: dict[str, str] | None = None, kind: str = ""
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}
        self.kind = kind or _KINDS.get(status, kind_of_status(status))


def problem_response(problem: Problem) -> web.Response:
    """The problem as RFC 9457 JSON."""
    body = {
        "type": f"{PREFIX}{problem.kind}",
        "title": KINDS[problem.kind].title,
        "status": problem.status,
        "detail": problem.detail,
    }
    return web.Response(
        status=problem.status,
        text=json.dumps(body, separators=(",", ":")),
        content_type="application/problem+json",
        headers=problem.headers,
    )


@web.middleware
async def answer_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer the exceptions of handlers as problem+json."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
        return problem_response(Problem(error.status, _sentence(request, error), headers))
    except Exception as error:  # the outermost loop of one request
        problem = _problem_of(error)
        if problem is None and is_client_disconnect(request, error):
            return web.Response(status=CLIENT_LEFT)  # for the metrics: the client is gone
        if problem is None:
            log.exception("request failed", method=request.method, path=request.path)
            problem = Problem(500, "internal error of the proxy; its log has the details")
        return problem_response(problem)


def unavailable(detail: str, kind: str = "") -> Problem:
    """503: the same request may work in a moment."""
    return Problem(503, detail, {"Retry-After": str(RETRY_SECONDS)}, kind)


def _problem_of(error: Exception) -> Problem | None:
    if isinstance(error, Problem):
        return error
    for known, status, kind in _OF_ERRORS:
        if isinstance(error, known):
            return Problem(status, str(error), kind=kind)
    for known, kind in _OF_OUTAGES:
        if isinstance(error, known):
            return unavailable(str(error), kind)
    if isinstance(error, ApiError):
        sentence = f"the API server cannot check this token: {error}"
        return unavailable(sentence, "cluster-unavailable")
    return None


_OF_ERRORS: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (StaleAttempt, 409, "stale-attempt"),
    (Contradiction, 409, "contradiction"),
    (UnknownPartition, 404, "not-found"),
)
_OF_OUTAGES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (TrackerUnavailable, "tracker-unavailable"),
    (ControllerUnavailable, "proxy-unavailable"),
    (ReplicaEnds, "not-leading"),
    (NotLeading, "not-leading"),
)


def _sentence(request: web.Request, error: web.HTTPException) -> str:
    match error.status:
        case 404:
            return f"there is nothing at {request.path}"
        case 405:
            return f"{request.method} is not allowed at {request.path}"
        case 413:
            return "the body is too large"
        case _:
            return error.reason


MAX_BODY_BYTES: Final = 64 * 1024
_UID: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_MOST_NAMES: Final = 10_000


async def read_object(request: web.Request) -> dict[str, Any]:
    """The JSON object in the body; raises Problem 400."""
    if request.content_type != "application/json":
        raise Problem(
            400, f"the body must have Content-Type: application/json, not {request.content_type}"
        )
    try:
        text = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise Problem(400, f"the body has more than {request.client_max_size} bytes") from None
    if not text.strip():
        raise Problem(400, "the request has no body; a JSON object is required")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Problem(400, "the body is not valid JSON") from None
    if not isinstance(found, dict):
        raise Problem(400, "the body must be a JSON object in braces")
    return found


@dataclass(frozen=True, slots=True)
class Question:
    """A `/query`: what fits, how many at once, on which controller, and whether to say why."""

    size: int
    count: int = 1
    controller: str = ""
    detail: bool = False


async def read_question(request: web.Request) -> Question:
    """Return the question of a `/query`; size and count are whole numbers from 1; raises Problem
    400.

    Keys that we do not know are ignored, as the original does.
    """
    found = await read_object(request)
    if "size" not in found:
        raise Problem(400, f"size is missing; write {_EXAMPLE}")
    size, count = found["size"], found.get("count", 1)
    if not _is_integer(size):
        raise Problem(400, f"size must be a whole number of IPUs, {_EXAMPLE}")
    if size < 1:
        raise Problem(400, f"size must be at least 1, {_EXAMPLE}")
    if not _is_integer(count) or count < 1:
        raise Problem(400, 'count must be a whole number from 1, for example {"size":2,"count":3}')
    controller, detail = found.get("controller", ""), found.get("detail", False)
    if not isinstance(controller, str):
        raise Problem(400, 'controller must be an address, for example "vipu.example.org:8090"')
    if not isinstance(detail, bool):
        raise Problem(400, "detail must be true or false")
    return Question(int(size), int(count), controller, detail)


def read_flag(request: web.Request, name: str) -> bool:
    """Return whether the address says true of a parameter; raises Problem 400."""
    text = request.query.get(name, "false")
    if text not in ("true", "false"):
        raise Problem(400, f"{name} must be true or false")
    return text == "true"


def read_holder(request: web.Request) -> tuple[str, int]:
    """Job UID and instance of the path; raises Problem 400."""
    uid, instance = request.match_info["uid"], request.match_info["instance"]
    if not _UID.fullmatch(uid):
        raise Problem(400, "the UID in the path must be an IPUJob's")
    if not (instance.isascii() and instance.isdecimal() and len(instance) <= 6):
        raise Problem(400, "the instance in the path must be a number from 0")
    return uid, int(instance)


async def read_request(request: web.Request) -> Request:
    """Return the partition that a PUT requests.

    Raises Problem 400, or 422 for an impossible size.
    """
    uid, instance = read_holder(request)
    found = await read_object(request)
    size = _integer(found, "size", minimum=1)
    if problem := size_problem(size):
        raise Problem(422, f"size {size}: {problem}")
    return Request(
        uid=uid,
        namespace=_text(found, "namespace", _NAMESPACE),
        name=_text(found, "name", _NAME),
        instance=instance,
        size=size,
        attempt=_integer(found, "attempt"),
        num_gcds=_integer(found, "numGcds", default=0),
        num_replicas=_integer(found, "numReplicas", default=0),
    )


async def read_attempt(request: web.Request) -> int:
    """The attempt that a reset is for; raises Problem 400."""
    return _integer(await read_object(request), "attempt")


async def read_stored_key(request: web.Request) -> tuple[int, str]:
    """The attempt and the id of a key that its pods can use by now; raises Problem 400."""
    found = await read_object(request)
    key_id = found.get("id")
    if not isinstance(key_id, str) or not key_id:
        raise Problem(400, "id must be the id of the key that was made last")
    return _integer(found, "attempt"), key_id


async def read_names(request: web.Request) -> frozenset[str]:
    """Return what a recorder acknowledges: job UIDs or record keys; raises Problem 400."""
    names = (await read_object(request)).get("uids")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Problem(400, "uids must be a list of job UIDs or record keys")
    if len(names) > _MOST_NAMES:
        raise Problem(400, f"uids has more than {_MOST_NAMES} items; send them in parts")
    return frozenset(names)


def _text(found: Mapping[str, Any], field: str, shape: re.Pattern[str]) -> str:
    value = found.get(field)
    if not isinstance(value, str) or not shape.fullmatch(value):
        raise Problem(400, f"{field} must be a Kubernetes name of at most 63 characters")
    return value


def _integer(
    found: Mapping[str, Any], field: str, *, minimum: int = 0, default: int | None = None
) -> int:
    value = found.get(field, default)
    if not _is_integer(value) or not minimum <= value <= LARGEST:
        raise Problem(400, f"{field} must be a whole number from {minimum} to {LARGEST}")
    return int(value)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
