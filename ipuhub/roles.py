"""domain: the roles that a user may have, for one namespace or for all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ADMIN, OPERATOR, ACCOUNTANT, VIEWER = "admin", "operator", "accountant", "viewer"
ROLES: Final = {
    ADMIN: "everything; for all namespaces also users, System and Utilization",
    OPERATOR: "reads jobs, partitions and usage, and changes jobs",
    ACCOUNTANT: "reads usage with its cost; for all namespaces also reports, rates and months",
    VIEWER: "reads jobs, partitions and usage",
}
EVERYWHERE: Final = "*"
"""The namespace of a grant for all namespaces."""
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class RoleError(ValueError):
    """A role or namespace that there cannot be; `str()` is a sentence."""


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """A role in a namespace, or everywhere."""

    role: str
    namespace: str = EVERYWHERE

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise RoleError(f"{self.role!r} is not a role: use {', '.join(ROLES)}")
        if self.namespace != EVERYWHERE and not _LABEL.fullmatch(self.namespace):
            raise RoleError(
                f"{self.namespace!r} is not a valid namespace name (example: team-a; * for all)"
            )

    def __str__(self) -> str:
        return self.role if self.namespace == EVERYWHERE else f"{self.role}:{self.namespace}"


def parse_grant(text: str) -> Grant:
    """Return the grant in `ROLE` (all namespaces) or `ROLE:NAMESPACE`. Raises RoleError."""
    role, colon, namespace = text.partition(":")
    return Grant(role.strip(), namespace.strip() if colon else EVERYWHERE)


def parse_group_roles(pairs: Iterable[str]) -> dict[str, frozenset[Grant]]:
    """Return the grants of each group in `GROUP=ROLE` or `GROUP=ROLE:NAMESPACE`; a group may stand
    several times. Raises RoleError."""
    found: dict[str, set[Grant]] = {}
    for pair in pairs:
        group, _, text = pair.rpartition("=")  # a group may contain =, a role never does
        if not group.strip():
            raise RoleError(f"{pair!r} must be GROUP=ROLE or GROUP=ROLE:NAMESPACE")
        found.setdefault(group.strip(), set()).add(parse_grant(text))
    return {group: frozenset(grants) for group, grants in found.items()}
