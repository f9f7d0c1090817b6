"""domain: faults of one field, in the words and with the cause types of an API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """A value that breaks a rule."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {go_value(value)}: {detail}")


def wrong_type(field: str, value: Any, detail: str) -> FieldError:
    """A value of another type, or a text of another format."""
    message = f"Invalid value: {go_value(value)}: {detail}"
    return FieldError(field, "FieldValueTypeInvalid", message)


def unsupported(field: str, value: Any, supported: Sequence[Any]) -> FieldError:
    """A value that is none of the supported ones."""
    names = ", ".join(f'"{item}"' for item in supported)
    return FieldError(
        field,
        "FieldValueNotSupported",
        f"Unsupported value: {go_value(value)}: supported values: {names}",
    )


def duplicate(field: str, value: Any) -> FieldError:
    """A value that stands twice where each may stand once."""
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {go_value(value)}")


def forbidden(field: str, detail: str) -> FieldError:
    """A field that must not be given here."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def join_errors(errors: Sequence[FieldError]) -> str:
    """The tail of `X "name" is invalid: ...`: one fault as it is, several in brackets."""
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
