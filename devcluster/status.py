"""domain: the API's error responses, in the words of a Kubernetes API server.

Also errors about one field, with an API server's messages and cause types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from devcluster.schemas.kinds import Kind


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault: a dotted field, the cause type (`FieldValueInvalid`), the cause's message."""

    field: str
    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"

    def as_cause(self) -> dict[str, str]:
        """The fault as an entry of a Status' `details.causes`."""
        return {"reason": self.type, "message": self.message, "field": self.field}


def required(field: str, detail: str = "") -> FieldError:
    """A field that must be given."""
    message = f"Required value: {detail}" if detail else "Required value"
    return FieldError(field, "FieldValueRequired", message)


def invalid_value(field: str, value: Any, detail: str) -> FieldError:
    """A value that breaks a rule."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {go_value(value)}: {detail}")


def wrong_type(field: str, value: Any, detail: str) -> FieldError:
    """A value of another type, or a text of another format."""
    message = f"Invalid value: {go_value(value)}: {detail}"
    return FieldError(field, "FieldValueTypeInvalid", message)


def unsupported(field: str, value: Any, supported: Sequence[Any]) -> FieldError:
    """A value that is not among the supported values."""
    names = ", ".join(f'"{item}"' for item in supported)
    return FieldError(
        field,
        "FieldValueNotSupported",
        f"Unsupported value: {go_value(value)}: supported values: {names}",
    )


def duplicate(field: str, value: Any) -> FieldError:
    """A value that stands twice where each may stand once."""
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {go_value(value)}")


def forbidden_field(field: str, detail: str) -> FieldError:
    """A field that must not be given here."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def join_errors(errors: Sequence[FieldError]) -> str:
    """The tail of `X "name" is invalid: ...`: a single fault as it is, several in brackets."""
    texts = list(dict.fromkeys(str(error) for error in errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def go_value(value: Any) -> str:
    """A decoded JSON value as Go prints it in these messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    if isinstance(value, dict):
        members = ", ".join(f'"{key}":{go_value(value[key])}' for key in sorted(value))
        return f"map[string]interface {{}}{{{members}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(go_value, value))}}}"
    return f"{value:g}" if isinstance(value, float) else str(value)


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


def conflict(kind: Kind, name: str, reason: str = "", subresource: str = "") -> StatusError:
    """409: a precondition (resourceVersion, UID) does not hold; `why` ends the sentence."""
    reason = reason or (
        "the object has been modified; please apply your changes to the latest version and try "
        "again"
    )
    resource = kind.resource_name + subresource
    message = f'Operation cannot be fulfilled on {resource} "{name}": {reason}'
    return StatusError(409, "Conflict", message, _details(kind, name))


def forbidden(kind: Kind, name: str, reason: str) -> StatusError:
    """403: not allowed for any user; `why` ends the sentence."""
    message = f'{kind.resource_name} "{name}" is forbidden: {reason}'
    return StatusError(403, "Forbidden", message, _details(kind, name))


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
