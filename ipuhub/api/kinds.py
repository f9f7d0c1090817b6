"""domain: the kinds of errors of the API, each with a URI that never changes and a remedy.

`docs/reference/problems.md` is generated from this table.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final, NamedTuple

PREFIX: Final = "urn:ipuhub:problem:"
"""A name, not an address: it is the same on every installation."""
CONTENT_TYPE: Final = "application/problem+json"
RETRY_SECONDS: Final = 5
"""When a client that a busy server refused may try again."""


class Kind(NamedTuple):
    """One kind of error: its HTTP status, its title, and what the caller can do."""

    status: int
    title: str
    remedy: str


KINDS: Final[dict[str, Kind]] = {
    "invalid-request": Kind(400, "Invalid request", "Correct what `detail` names."),
    "invalid-value": Kind(
        400,
        "Invalid parameter or field",
        "Correct the parameter or field that `detail` names; `errors` has the messages by field.",
    ),
    "malformed-body": Kind(400, "Malformed body", "Send a JSON object in UTF-8."),
    "not-signed-in": Kind(401, "Not signed in", "Send `Authorization: Bearer <token>`."),
    "invalid-token": Kind(
        401, "Invalid token", "The token is wrong, revoked or expired: create a new token."
    ),
    "forbidden": Kind(403, "No access", "Ask an administrator for the namespace or the role."),
    "cluster-forbids": Kind(
        403,
        "Kubernetes forbids it",
        "Ask an administrator of the cluster for the RBAC right that `detail` names.",
    ),
    "missing-scope": Kind(
        403, "Scope missing", "Create a token that has the scope in `scope`, and send it."
    ),
    "outdated-form": Kind(403, "Form out of date", "Reload the page and send the form again."),
    "not-found": Kind(
        404, "Not found", "Check the address. Objects of other namespaces are not found either."
    ),
    "pod-gone": Kind(
        404, "Pod gone", "Read the log of another pod: `/api/v1/jobs/<uid>/pods` lists them."
    ),
    "method-not-allowed": Kind(405, "Method not allowed", "Use a method of the header `Allow`."),
    "not-acceptable": Kind(
        406, "Not acceptable", "Send an `Accept` that allows a media type of the operation."
    ),
    "body-too-slow": Kind(
        408, "Body too slow", "Send the whole body within the time that `detail` names."
    ),
    "conflict": Kind(409, "Conflict", "Read the object again, then repeat the call."),
    "stale-attempt": Kind(
        409,
        "Stale attempt",
        "A newer attempt of this instance has the partition: end this attempt.",
    ),
    "contradiction": Kind(
        409,
        "Partition of other values",
        "The instance has a partition of another size or job: release it first.",
    ),
    "not-in-cluster": Kind(
        409, "Not in the cluster", "The job was deleted. Run it again, or create a new job."
    ),
    "request-in-progress": Kind(
        409,
        "Request in progress",
        "Wait the seconds of `Retry-After`, then repeat the request with the same "
        "`Idempotency-Key`.",
    ),
    "outcome-unknown": Kind(
        409,
        "Outcome unknown",
        "Read what the request changes, since the change may have happened; if it did not, send "
        "it with a new `Idempotency-Key`.",
    ),
    "no-log": Kind(409, "No log", "Wait until the container has started, or leave out `previous`."),
    "body-too-large": Kind(413, "Body too large", "Send a smaller body."),
    "unsupported-media-type": Kind(
        415, "Unsupported media type", "Send `Content-Type: application/json`."
    ),
    "cluster-refuses": Kind(
        422, "Kubernetes refuses it", "Correct the field of the job that `detail` names."
    ),
    "impossible-size": Kind(
        422, "Impossible size", "Request a size that `detail` names: no partition has this size."
    ),
    "idempotency-key-reused": Kind(
        422, "Idempotency-Key reused", "Send a new key with each new request."
    ),
    "too-many-requests": Kind(
        429, "Too many requests", "Wait the seconds of `Retry-After`; see the `RateLimit` headers."
    ),
    "internal-error": Kind(
        500, "Internal error", "An administrator finds the error in the log of the dashboard."
    ),
    "database-unavailable": Kind(
        503, "PostgreSQL unavailable", "Try again later. Administrators check PostgreSQL."
    ),
    "query-too-long": Kind(
        503, "Query took too long", "Request less data: a shorter range or a filter."
    ),
    "server-busy": Kind(503, "Server busy", "Wait the seconds of `Retry-After`."),
    "proxy-unavailable": Kind(
        503, "V-IPU Proxy unavailable", "Try again later. Administrators check the page System."
    ),
    "tracker-unavailable": Kind(
        503, "Partition tracker unavailable", "Wait the seconds of `Retry-After`, then repeat it."
    ),
    "not-leading": Kind(
        503, "Standby", "Wait the seconds of `Retry-After`: another replica leads, or soon does."
    ),
    "cluster-unavailable": Kind(
        503,
        "Kubernetes API unavailable",
        "Try again later. After a change read the job first, since the change may have happened.",
    ),
    "queue-unavailable": Kind(
        503, "Task queue unavailable", "Try again later. Administrators check the worker."
    ),
}
_OF_FRAMEWORK: Final = {
    "invalid": "invalid-value",
    "parse_error": "malformed-body",
    "not_authenticated": "not-signed-in",
    "authentication_failed": "invalid-token",
    "permission_denied": "forbidden",
    "not_found": "not-found",
    "method_not_allowed": "method-not-allowed",
    "not_acceptable": "not-acceptable",
    "unsupported_media_type": "unsupported-media-type",
    "throttled": "too-many-requests",
    "error": "internal-error",
}
"""The names of errors in Django REST Framework (`default_code`)."""
_SENTENCES: Final = {
    HTTPStatus.NOT_FOUND: "Not found, or you do not have access.",
    HTTPStatus.FORBIDDEN: "You do not have access. Ask an administrator to grant it.",
    HTTPStatus.INTERNAL_SERVER_ERROR: "Internal error; the log has the error.",
    HTTPStatus.SERVICE_UNAVAILABLE: "A required service (PostgreSQL) is unavailable. "
    "Try again in a moment.",
}
_OF_STATUS: Final = {kind.status: name for name, kind in reversed(KINDS.items())}
"""The first kind of each status."""


def kind_of_code(code: str) -> str:
    """Return the kind of an exception with this `default_code`. Raise KeyError if it has none."""
    name = _OF_FRAMEWORK.get(code, code)
    KINDS[name]
    return name


def kind_of_status(status: int) -> str:
    """Return the kind of an error of which only the status is known."""
    return _OF_STATUS.get(status, "invalid-request" if status < 500 else "internal-error")


def is_api(path: str) -> bool:
    """Return whether errors at a path are problem documents; `/api/` itself is a page."""
    return path.startswith("/api/") and path != "/api/"


def problem(status: int, detail: str = "", kind: str = "", **extra: Any) -> dict[str, Any]:
    """Return the problem document; `detail` and `kind` default to the values of the status.

    Raise ValueError for a kind of another status.
    """
    known = HTTPStatus(status)
    sentence = detail or _SENTENCES.get(known, known.description or known.phrase)
    name = kind or kind_of_status(status)
    if kind and KINDS[kind].status != status:
        raise ValueError(f"{kind} is no problem of status {status}")
    return {
        "type": f"{PREFIX}{name}",
        "title": KINDS[name].title,
        "status": status,
        "detail": sentence,
        **extra,
    }
