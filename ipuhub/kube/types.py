"""io: the shapes that pass between the API client and its callers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Manifest: TypeAlias = dict[str, Any]
"""One Kubernetes object as JSON. What list and watch return always has apiVersion and kind."""

PatchType: TypeAlias = Literal["merge", "json", "strategic"]
Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]


@dataclass(frozen=True, slots=True)
class ListResult:
    """All objects of one list, and the version a watch continues from without a gap."""

    items: list[Manifest]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change: `type` is ADDED, MODIFIED, DELETED or BOOKMARK.

    A BOOKMARK's object carries nothing but metadata.resourceVersion.
    """

    type: str
    object: Manifest

    @property
    def resource_version(self) -> str:
        """The version to continue from after this event."""
        version: str = self.object["metadata"]["resourceVersion"]
        return version
