"""io: every refusal as problem+json with a sentence; nothing else leaves this process."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import structlog
from aiohttp import web

from ipuhub.kube.errors import ApiError
from ipuhub.process.httpserver import is_departure
from partitions.errors import (
    Contradiction,
    NotLeading,
    ReplicaEnds,
    StaleAttempt,
    TrackerUnavailable,
    UnknownPartition,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 2
CLIENT_LEFT: Final = 499  # as nginx counts it


class Problem(Exception):  # noqa: N818  # it is an answer
    """A request that cannot be served: status, sentence, and headers that belong to it."""

    def __init__(self, status: int, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers or {}


def problem_response(problem: Problem) -> web.Response:
    """The problem as RFC 9457 JSON."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
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
    """Turn what handlers raise into problem+json."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
        return problem_response(Problem(error.status, _sentence(request, error), headers))
    except Exception as error:  # the outermost loop of one request
        problem = _problem_of(error)
        if problem is None and is_departure(request, error):
            return web.Response(status=CLIENT_LEFT)  # for the metrics: nobody hears it
        if problem is None:
            log.exception("request failed", method=request.method, path=request.path)
            problem = Problem(500, "something went wrong inside the proxy; its log says what")
        return problem_response(problem)


def unavailable(detail: str) -> Problem:
    """503: the same request may work in a moment."""
    return Problem(503, detail, {"Retry-After": str(RETRY_SECONDS)})


def _problem_of(error: Exception) -> Problem | None:
    match error:
        case Problem():
            return error
        case StaleAttempt() | Contradiction():
            return Problem(409, str(error))
        case UnknownPartition():
            return Problem(404, str(error))
        case TrackerUnavailable() | ReplicaEnds() | NotLeading():
            return unavailable(str(error))
        case ApiError():
            return unavailable(f"the API server cannot be asked about this token: {error}")
        case _:
            return None


def _sentence(request: web.Request, error: web.HTTPException) -> str:
    match error.status:
        case 404:
            return f"there is nothing at {request.path}"
        case 405:
            return f"{request.method} is not possible at {request.path}"
        case 413:
            return "the body is too large"
        case _:
            return error.reason
