"""domain: the API's refusals, in the words of a Kubernetes API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devcluster.fielderror import join_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devcluster.fielderror import FieldError
    from devcluster.schemas.kinds import Kind
    from devcluster.security.rbac import Attributes


class StatusError(Exception):
    """An answer that is a Status of failure: HTTP `code`, `reason`, `message`, `details`."""

    def __init__(
        self, code: int, reason: str, message: str, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message
        self.details = details or {}
        self.metadata: dict[str, str] = {}
        self.warnings: list[str] = []

    def body(self) -> dict[str, Any]:
        """The Status object."""
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = self.details
        return status


def success(kind: Kind, name: str, uid: str) -> dict[str, Any]:
    """The Status that answers a finished deletion."""
    details = {"name": name, "kind": kind.plural, "uid": uid}
    if kind.group:
        details["group"] = kind.group
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def _details(kind: Kind, name: str) -> dict[str, Any]:
    details = {"name": name, "kind": kind.plural}
    return {**details, "group": kind.group} if kind.group else details


def not_found(kind: Kind, name: str) -> StatusError:
    """404: no such object."""
    message = f'{kind.resource_name} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(kind, name))


def no_such_path() -> StatusError:
    """404: no such resource."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(metadata: Mapping[str, Any], kind: Kind) -> StatusError:
    """409: the name is taken by the object with this metadata."""
    message = f'{kind.resource_name} "{metadata["name"]}" already exists'
    if metadata.get("deletionTimestamp"):
        message = f"object is being deleted: {message}"
    return StatusError(409, "AlreadyExists", message, _details(kind, metadata["name"]))


def conflict(kind: Kind, name: str, why: str = "", subresource: str = "") -> StatusError:
    """409: a precondition (resourceVersion, UID) does not hold; `why` ends the sentence."""
    why = why or (
        "the object has been modified; please apply your changes to the latest version and try "
        "again"
    )
    resource = kind.resource_name + subresource
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(kind, name))


def forbidden(kind: Kind, name: str, why: str) -> StatusError:
    """403: not allowed whoever asks; `why` ends the sentence."""
    message = f'{kind.resource_name} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, _details(kind, name))


def forbidden_to(user: str, wanted: Attributes) -> StatusError:
    """403: not allowed to this user."""
    if wanted.path:
        message = f'forbidden: User "{user}" cannot {wanted.verb} path "{wanted.path}"'
        return StatusError(403, "Forbidden", message)
    resource = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
    whole = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    named = f'{whole} "{wanted.name}"' if wanted.name else whole
    where = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    details = {"name": wanted.name, "group": wanted.group, "kind": wanted.resource}
    return StatusError(
        403,
        "Forbidden",
        f'{named} is forbidden: User "{user}" cannot {wanted.verb} resource "{resource}" in API '
        f'group "{wanted.group}" {where}',
        {key: value for key, value in details.items() if value},
    )


def bad_request(message: str) -> StatusError:
    """400: the request makes no sense."""
    return StatusError(400, "BadRequest", message)


def expired(message: str, go_on: str = "") -> StatusError:
    """410: that past is no longer kept; `go_on` is a continue token for what is there now."""
    error = StatusError(410, "Expired", message)
    error.metadata = {"continue": go_on} if go_on else {}
    return error


def not_allowed() -> StatusError:
    """405: the resource has no such verb."""
    return StatusError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )


def invalid(kind: Kind, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422: the object breaks its schema or a rule; one cause per error."""
    details: dict[str, Any] = {"name": name, "group": kind.group, "kind": kind.kind}
    details["causes"] = [error.as_cause() for error in errors]
    message = f'{kind.kind} "{name}" is invalid: {join_errors(errors)}'
    if kind.group:
        message = f'{kind.kind}.{kind.group} "{name}" is invalid: {join_errors(errors)}'
    return StatusError(422, "Invalid", message, details)
