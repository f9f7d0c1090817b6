"""domain: one set of objects with two faces: Events of two groups, a CRD's served versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from devcluster.schemas.kinds import Kind

_GROUP: Final = "events.k8s.io"
_NAMES: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_STORED_NAMES: Final = {new: old for old, new in _NAMES.items()}


def to_version(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """Return a stored object as `kind` shows it; the same object where it is stored so."""
    if body["apiVersion"] == kind.api_version:
        return body
    if kind.group != _GROUP:
        return {**body, "apiVersion": kind.api_version}
    shown = {_NAMES.get(name, name): value for name, value in body.items()}
    return {**shown, "apiVersion": f"{_GROUP}/v1"}


def to_stored(kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
    """Return a client's object as it is stored; the same object unless it is an Event."""
    if kind.group != _GROUP:
        return body
    stored = {_STORED_NAMES.get(name, name): value for name, value in body.items()}
    return {**stored, "apiVersion": "v1"}
