"""io: the Impersonate-* headers: a user acts as another one, where RBAC lets him."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from devcluster.security.access import is_permitted
from devcluster.security.rbac import Attributes
from devcluster.status import StatusError, forbidden_to
from devcluster.users import AUTHENTICATED, User, account_user

if TYPE_CHECKING:
    from aiohttp import web

    from devcluster.storage.store import Store

_ACCOUNT: Final = "system:serviceaccount:"
_EXTRA: Final = "impersonate-extra-"
_GROUP: Final = "authentication.k8s.io"


def impersonate(store: Store, user: User, request: web.Request) -> User:
    """Return who the request acts as; StatusError 403 where `user` may not, 500 for half a wish."""
    name, uid = (request.headers.get(f"Impersonate-{what}", "") for what in ("User", "Uid"))
    groups, extra = tuple(request.headers.getall("Impersonate-Group", [])), _read_extra(request)
    if not name:
        if groups or uid or extra:
            message = "requested impersonation of groups without impersonating a user"
            raise StatusError(500, "InternalError", f"Internal error occurred: {message}")
        return user
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    is_account = name.startswith(_ACCOUNT)
    wanted = [
        _ask("serviceaccounts", account, namespace=namespace)
        if is_account
        else _ask("users", name),
        *(_ask("groups", group) for group in groups),
        *(_ask("uids", one, _GROUP) for one in (uid,) if one),
        *(
            _ask("userextras", value, _GROUP, key)
            for key, values in extra.items()
            for value in values
        ),
    ]
    for attributes in wanted:
        if not is_permitted(store, user, attributes):
            raise forbidden_to(user.name, attributes)
    if is_account and not groups:
        return account_user(namespace, account, uid, extra)
    return User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))), uid, extra)


def _ask(
    resource: str, name: str, group: str = "", subresource: str = "", *, namespace: str = ""
) -> Attributes:
    return Attributes("impersonate", group, resource, subresource, namespace, name)


def _read_extra(request: web.Request) -> dict[str, list[str]]:
    extra: dict[str, list[str]] = {}
    for header, value in request.headers.items():
        if header.lower().startswith(_EXTRA):
            extra.setdefault(unquote(header.lower().removeprefix(_EXTRA)), []).append(value)
    return extra
