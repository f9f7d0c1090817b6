"""domain: checks a request's body against the schema of its kind: types, unknown fields, nulls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from devcluster.schemas.builtin import decode_error, definition_name, definitions, schema_of
from devcluster.schemas.schema import Schema
from devcluster.status import bad_request, join_errors

if TYPE_CHECKING:
    from devcluster.schemas.crds import CustomKind
    from devcluster.schemas.kinds import Kind
    from devcluster.status import FieldError

_LARGE: Final = ("spec", "status", "data", "binaryData")
_METADATA: Final = Schema({"type": "object"}, definitions())


@dataclass(frozen=True, slots=True)
class Decoding:
    """The way to read a body: `mode` is Ignore, Warn (into `warnings`) or Strict.

    `old` is the stored object of an update: unchanged values are not checked again.
    """

    mode: str
    warnings: list[str]
    old: dict[str, Any] | None = None


def decode(
    kind: Kind, custom: CustomKind | None, body: dict[str, Any], how: Decoding
) -> list[FieldError]:
    """Drop nulls and unknown fields from `body` and fill in a CRD's defaults.

    StatusError 400 for a field of a wrong type and, in mode Strict, for unknown fields. Returns the
    other errors of an object of a built-in kind.
    """
    api_version, name = body["apiVersion"], body["kind"]
    schema = custom.schema if custom is not None else schema_of(api_version, name)
    if custom is not None or schema is None:
        _check_metadata(kind, body)
    if schema is None:
        return []
    unchanged = _unchanged(body, how.old) if custom is None else {}
    for field in unchanged:
        del body[field]
    unknown = schema.prune(body)
    schema.default(body)
    faults = schema.validate(body) if custom is None else []
    wrong = decode_error(name, faults)
    if wrong:
        raise _cannot_handle(kind, wrong)
    body |= unchanged
    sentences = [f'unknown field "{path}"' for path in unknown]
    if sentences and how.mode == "Strict":
        raise _cannot_handle(kind, f"strict decoding error: {', '.join(sentences)}")
    if how.mode == "Warn":
        how.warnings.extend(sentences)
    # What only a status must have is not asked for: there a real server takes the zero value.
    return [
        error
        for error in faults
        if error.type != "FieldValueRequired" or not error.field.startswith("status.")
    ]


def _check_metadata(kind: Kind, body: dict[str, Any]) -> None:
    """Drop nulls in metadata and refuse what is not of metadata's types. StatusError 400."""
    head = {"metadata": body.setdefault("metadata", {})}
    _METADATA.default(head)
    errors = _METADATA.validate(head)
    if errors:
        raise _cannot_handle(kind, join_errors(errors))


def _unchanged(body: dict[str, Any], old: dict[str, Any] | None) -> dict[str, Any]:
    """Return the large parts of `body` that are as stored and whose absence is no fault."""
    if old is None:
        return {}
    name = definition_name(body["apiVersion"], body["kind"])
    needed = definitions().get(name, {}).get("required", ())
    unchanged = [f for f in _LARGE if f not in needed and f in body and body[f] == old.get(f)]
    return {field: body[field] for field in unchanged}


def _cannot_handle(kind: Kind, reason: str) -> Exception:
    return bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {reason}'
    )
