"""domain: helpers that read Kubernetes manifests (plain dictionaries)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Manifest = dict[str, Any]
"""One Kubernetes object as JSON has it: apiVersion, kind, metadata, spec, status."""


def metadata(manifest: Manifest) -> Manifest:
    """Return the object's metadata; empty if it has none."""
    found = manifest.get("metadata")
    return found if isinstance(found, dict) else {}


def name_of(manifest: Manifest) -> str:
    """metadata.name."""
    return str(metadata(manifest).get("name", ""))


def namespace_of(manifest: Manifest) -> str:
    """metadata.namespace."""
    return str(metadata(manifest).get("namespace", ""))


def uid_of(manifest: Manifest) -> str:
    """metadata.uid."""
    return str(metadata(manifest).get("uid", ""))


def labels_of(manifest: Manifest) -> dict[str, str]:
    """metadata.labels."""
    return metadata(manifest).get("labels") or {}


def annotations_of(manifest: Manifest) -> dict[str, str]:
    """metadata.annotations."""
    return metadata(manifest).get("annotations") or {}


def is_being_deleted(manifest: Manifest) -> bool:
    """Return whether the deletion of this object was requested."""
    return bool(metadata(manifest).get("deletionTimestamp"))


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as Kubernetes writes metav1.Time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> datetime | None:
    """Return an aware instant, or None if the text is absent or invalid."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
