"""glue: authorisation: which namespaces a user may see, for pages, API, exports and logs.

Staff see everything. Accountants (the group of that name) see all usage and reports, close months
and set rates. Of jobs and partitions they see only granted namespaces, like other users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db.models import Value

from ipuhub.models import NamespaceGrant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser

ACCOUNTANTS = "accountant"
"""The group that a migration makes."""
ACCOUNTANTS_ONLY = (
    "Reports and rates cover all namespaces and are visible to administrators and accountants "
    "only. For your own namespaces, see the usage page."
)
_KNOWN: Final = "_ipuhub_rights"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a user may see: all (`namespaces` None), or only these namespaces."""

    namespaces: frozenset[str] | None

    @property
    def sees_all(self) -> bool:
        return self.namespaces is None

    def covers(self, namespace: str) -> bool:
        """Whether objects of `namespace` may be shown."""
        return self.namespaces is None or namespace in self.namespaces


@dataclass(frozen=True, slots=True)
class _Rights:
    """Grants of a user who is not an administrator."""

    scope: Scope
    is_accountant: bool


def _rights_of(user: AbstractBaseUser) -> _Rights:
    """Return the grants of `user`, read once per user object (that is, once per request)."""
    known: _Rights | None = getattr(user, _KNOWN, None)
    if known is None:
        known = _read_rights(user)
        setattr(user, _KNOWN, known)
    return known


def _read_rights(user: AbstractBaseUser) -> _Rights:
    grants = NamespaceGrant.objects.filter(user_id=user.pk)
    rows = grants.values_list(Value("namespace"), "namespace")
    groups: Any = getattr(user, "groups", None)
    if groups is not None:
        own = groups.filter(name=ACCOUNTANTS).values_list(Value("group"), "name")
        rows = rows.union(own, all=True)
    found = set(rows)
    namespaces = frozenset(name for kind, name in found if kind == "namespace")
    return _Rights(Scope(namespaces), ("group", ACCOUNTANTS) in found)


def is_admin(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Return whether `user` is an administrator, without a query."""
    return user.is_authenticated and user.is_active and bool(getattr(user, "is_staff", False))


def scope_of(user: AbstractBaseUser | AnonymousUser) -> Scope:
    """Return the scope of `user`; empty if not signed in."""
    if not user.is_authenticated or not user.is_active:
        return Scope(frozenset())
    if is_admin(user):
        return Scope(None)
    return _rights_of(user).scope


def is_accountant(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Whether `user` may see all usage and reports, close months and set rates."""
    if not user.is_authenticated or not user.is_active:
        return False
    return bool(getattr(user, "is_staff", False)) or _rights_of(user).is_accountant


def usage_scope_of(user: AbstractBaseUser | AnonymousUser) -> Scope:
    """Return the scope of `user` for usage; accountants see everything."""
    return Scope(None) if is_accountant(user) else scope_of(user)


def sees_cost(scope: Scope) -> bool:
    """Return whether a user with this scope of usage may see costs.

    Cost divided by hours reveals the price, so users who may not see rates see no cost, not even of
    their own namespaces.
    """
    return scope.sees_all


def may_see_cost(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Return whether `user` may see costs; see `sees_cost`."""
    return settings.USAGE_ENABLED and is_accountant(user)


def require_namespaces(scope: Scope, namespaces: Iterable[str]) -> None:
    """Raise PermissionDenied with a sentence if `scope` does not cover all of them."""
    for namespace in namespaces:
        if not scope.covers(namespace):
            raise PermissionDenied(
                f"You do not have access to namespace {namespace!r}. Ask an administrator to "
                "grant it."
            )


def require_admin(user: AbstractBaseUser | AnonymousUser) -> None:
    """Raise PermissionDenied with a sentence if `user` is not an administrator."""
    if not scope_of(user).sees_all:
        raise PermissionDenied("Only administrators are allowed to do this.")


def require_accountant(user: AbstractBaseUser | AnonymousUser) -> None:
    """Raise PermissionDenied with a sentence if `user` may not see reports and rates."""
    if not is_accountant(user):
        raise PermissionDenied(ACCOUNTANTS_ONLY)
