"""io: the Impersonate-* headers: a user acts as another one, where RBAC lets him."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipuhub.devcluster.access import judge
from ipuhub.devcluster.status import StatusError
from ipuhub.devcluster.users import AUTHENTICATED, User, account_user

if TYPE_CHECKING:
    from aiohttp import web

    from ipuhub.devcluster.store import Store

_ACCOUNT = "system:serviceaccount:"


def impersonate(store: Store, user: User, request: web.Request) -> User:
    """Return who the request acts as; StatusError 403 where `user` may not, 500 for half a wish."""
    name = request.headers.get("Impersonate-User", "")
    groups = tuple(request.headers.getall("Impersonate-Group", []))
    if not name:
        if groups:
            message = "requested impersonation of groups without impersonating a user"
            raise StatusError(500, "InternalError", f"Internal error occurred: {message}")
        return user
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    if name.startswith(_ACCOUNT):
        _check(store, user, "serviceaccounts", account, namespace)
    else:
        _check(store, user, "users", name)
    for group in groups:
        _check(store, user, "groups", group)
    if groups:
        return User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))))
    if name.startswith(_ACCOUNT):
        return account_user(namespace, account, "")
    return User(name, (AUTHENTICATED,))


def _check(store: Store, user: User, resource: str, name: str, namespace: str = "") -> None:
    wanted = {"verb": "impersonate", "resource": resource, "name": name, "namespace": namespace}
    if not judge(store, user, {"resourceAttributes": wanted}).allowed:
        raise StatusError(
            403,
            "Forbidden",
            f'{resource} "{name}" is forbidden: User "{user.name}" cannot impersonate resource '
            f'"{resource}" in API group "" at the cluster scope',
            {"name": name, "kind": resource},
        )
