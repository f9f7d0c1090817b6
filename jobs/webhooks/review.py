"""domain: reads and answers AdmissionReview v1."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jobs.ipujob.names import Manifest
    from jobs.ipujob.validation import Problem

API_VERSION = "admission.k8s.io/v1"
_UID = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([A-Za-z0-9-]{1,100})"')
_HEAD_BYTES = 4096
UNPROCESSABLE = 422
INTERNAL = 500


class BadReviewError(ValueError):
    """The request is no AdmissionReview; the message says why.

    `uid`: the UID of the request, if it could be read.
    """

    def __init__(self, message: str, uid: str = "") -> None:
        super().__init__(message)
        self.uid = uid


@dataclass(frozen=True, slots=True)
class Review:
    """The API server's request.

    `old` is empty on CREATE, `manifest` on DELETE, `name` if the API server generates it.
    """

    uid: str
    operation: str
    resource: str
    subresource: str
    namespace: str
    username: str
    manifest: Manifest = field(default_factory=dict)
    old: Manifest = field(default_factory=dict)
    name: str = ""


def read_review(body: object) -> Review:
    """Read a decoded AdmissionReview. Raises BadReviewError."""
    request = body.get("request") if isinstance(body, dict) else None
    if not isinstance(request, dict):
        raise BadReviewError("the body is not an AdmissionReview: request is missing")
    uid = _text(request.get("uid"))
    resource = request.get("resource")
    user = request.get("userInfo")
    return Review(
        uid=uid,
        operation=_text(request.get("operation")),
        resource=_text(resource.get("resource")) if isinstance(resource, dict) else "",
        subresource=_text(request.get("subResource")),
        namespace=_text(request.get("namespace")),
        username=_text(user.get("username")) if isinstance(user, dict) else "",
        manifest=_manifest(request, "object"),
        old=_manifest(request, "oldObject"),
        name=_text(request.get("name")),
    )


def _manifest(request: Mapping[str, Any], name: str) -> Manifest:
    uid = _text(request.get("uid"))
    found = request.get(name)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadReviewError(f"request.{name} is not an object", uid)
    meta = found.get("metadata", {})
    if not isinstance(meta, dict):
        raise BadReviewError(f"request.{name}.metadata is not an object", uid)
    for part in ("annotations", "labels"):
        if not isinstance(meta.get(part) or {}, dict):
            raise BadReviewError(f"request.{name}.metadata.{part} is not an object", uid)
    if not isinstance(meta.get("finalizers") or [], list):
        raise BadReviewError(f"request.{name}.metadata.finalizers is not a list", uid)
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def allowed(uid: str, *, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """The answer that lets the request through."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if warnings:
        response["warnings"] = list(warnings)
    return _answer(response)


def patched(uid: str, operations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the answer that changes the object by RFC 6902 `operations`; none: unchanged."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if operations:
        text = json.dumps(list(operations), separators=(",", ":"))
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(text.encode()).decode()
    return _answer(response)


def refused(review: Review, problems: Sequence[Problem]) -> dict[str, Any]:
    """The answer that refuses, with all problems at once and their field paths."""
    causes = [
        {"reason": "FieldValueInvalid", "field": problem.field, "message": problem.message}
        for problem in problems
    ]
    details = {"kind": "IPUJob", "group": "graphcore.ai", "name": review.name, "causes": causes}
    status = {
        "code": UNPROCESSABLE,
        "reason": "Invalid",
        "message": "; ".join(str(problem) for problem in problems),
        "details": details,
    }
    return _answer({"uid": review.uid, "allowed": False, "status": status})


def failed(review: Review) -> dict[str, Any]:
    """Return the answer when the webhook itself failed: a refusal with the reason.

    An HTTP error would look like an unavailable webhook, and with failurePolicy Ignore the object
    would be stored without a check.
    """
    message = (
        "the webhook failed on this object, and nothing was stored. This is a bug in IPUHub; the "
        "log of run_webhooks has the details"
    )
    status = {"code": INTERNAL, "reason": "InternalError", "message": message}
    return _answer({"uid": review.uid, "allowed": False, "status": status})


def unreadable(message: str, uid: str = "") -> dict[str, Any]:
    """Return the answer to a request that is no AdmissionReview.

    Without the request's `uid` the API server treats it as a failure of the webhook.
    """
    status = {"code": 400, "reason": "BadRequest", "message": message}
    return _answer({"uid": uid, "allowed": False, "status": status})


def _answer(response: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}


def uid_in(data: bytes) -> str:
    """The request's uid in a body that is not readable as a whole, which API servers write first;
    empty: there is none."""
    found = _UID.search(data[:_HEAD_BYTES])
    return found[1].decode() if found else ""
