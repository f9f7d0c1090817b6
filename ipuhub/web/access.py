"""glue: who may see what: the one authorisation of pages, API, exports and logs.

Staff see everything. Accountants (the group of that name) see all usage and reports, close months
and set rates; of jobs and partitions they see what anyone else does: the namespaces granted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import PermissionDenied

from ipuhub.models import NamespaceGrant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser

ACCOUNTANTS = "accountant"
"""The group that a migration makes."""
ACCOUNTANTS_ONLY = (
    "Reports and rates concern every namespace and are for administrators and accountants. "
    "Your own namespaces are on the usage page."
)


@dataclass(frozen=True, slots=True)
class Scope:
    """What a user may see: all (`namespaces` None), or only these namespaces."""

    namespaces: frozenset[str] | None

    @property
    def sees_all(self) -> bool:
        """Whether nothing is hidden."""
        return self.namespaces is None

    def covers(self, namespace: str) -> bool:
        """Whether objects of `namespace` may be shown."""
        return self.namespaces is None or namespace in self.namespaces


def is_admin(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Whether `user` sees everything; asks no database."""
    return user.is_authenticated and user.is_active and bool(getattr(user, "is_staff", False))


def scope_of(user: AbstractBaseUser | AnonymousUser) -> Scope:
    """What `user` may see; nobody signed in sees nothing."""
    if not user.is_authenticated or not user.is_active:
        return Scope(frozenset())
    if is_admin(user):
        return Scope(None)
    granted = NamespaceGrant.objects.filter(user_id=user.pk).values_list("namespace", flat=True)
    return Scope(frozenset(granted))


def is_accountant(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Whether `user` may see all usage and reports, close months and set rates."""
    if not user.is_authenticated or not user.is_active:
        return False
    if getattr(user, "is_staff", False):
        return True
    groups: Any = getattr(user, "groups", None)
    return groups is not None and bool(groups.filter(name=ACCOUNTANTS).exists())


def usage_scope_of(user: AbstractBaseUser | AnonymousUser) -> Scope:
    """What `user` may see of usage: accountants everything."""
    return Scope(None) if is_accountant(user) else scope_of(user)


def sees_cost(scope: Scope) -> bool:
    """Whether whoever has this scope of usage may know what it costs: as reports and rates.

    Cost over hours is the price of an hour, so who may not see rates sees no cost, not even of
    namespaces of their own.
    """
    return scope.sees_all


def may_see_cost(user: AbstractBaseUser | AnonymousUser) -> bool:
    """Whether `user` may know what usage costs, as `sees_cost` says of their scope of usage."""
    return settings.USAGE_ENABLED and is_accountant(user)


def require_namespaces(scope: Scope, namespaces: Iterable[str]) -> None:
    """Raise PermissionDenied with a sentence where `scope` does not cover one of them."""
    for namespace in namespaces:
        if not scope.covers(namespace):
            raise PermissionDenied(
                f"You have no access to namespace {namespace!r}. Ask an administrator to grant it."
            )


def require_admin(user: AbstractBaseUser | AnonymousUser) -> None:
    """Raise PermissionDenied with a sentence where `user` is no administrator."""
    if not scope_of(user).sees_all:
        raise PermissionDenied("Only administrators may do this.")


def require_accountant(user: AbstractBaseUser | AnonymousUser) -> None:
    """Raise PermissionDenied with a sentence where `user` may not see reports and rates."""
    if not is_accountant(user):
        raise PermissionDenied(ACCOUNTANTS_ONLY)
