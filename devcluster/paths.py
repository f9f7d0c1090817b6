"""domain: parses request paths of the Kubernetes API into group, version, namespace, resource, name
and subresource.

Also the user of a request.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class ResourcePath:
    """A parsed path; missing parts are empty strings."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> ResourcePath | None:
    """`/api/v1/namespaces/a/pods/b/log` in its parts; None where it is no resource path."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    # /namespaces/a is the namespace itself, and so are its two subresources.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    plural, name, subresource = [*rest, "", ""][:3]
    return ResourcePath(group, version, plural, namespace, name, subresource)


AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated identity as RBAC and TokenReview see it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, list[str]] = field(default_factory=dict)


def account_user(
    namespace: str, name: str, uid: str, extra: Mapping[str, list[str]] | None = None
) -> User:
    """The identity of a service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid, extra or {})
