"""domain: who makes a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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
