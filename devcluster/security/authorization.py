"""io: authorizes requests by the stored RBAC objects.

Also the Impersonate-* headers: a user acts as another user if RBAC allows it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from devcluster.paths import AUTHENTICATED, User, account_user
from devcluster.schemas.schema import copy_json
from devcluster.security.rbac import (
    MASTERS,
    RBAC_GROUP,
    Attributes,
    decide,
    describe_missing,
    missing_rules,
    rules_of,
)
from devcluster.status import StatusError, forbidden
from devcluster.storage.selectors import parse_field_selector

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web

    from devcluster.paths import ResourcePath
    from devcluster.schemas.kinds import Kind
    from devcluster.security.rbac import Decision, Objects
    from devcluster.storage.store import Store

if TYPE_CHECKING:
    Body = dict[str, Any]
_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}
_ROLES: Final = {"roles", "clusterroles"}
_BINDINGS: Final = {"rolebindings", "clusterrolebindings"}


def stored_roles(store: Store) -> Objects:
    """Return what `rbac` reads the stored RBAC objects by."""
    return lambda plural: (item.body for item in store.items(f"{plural}.{RBAC_GROUP}"))


def is_permitted(store: Store, user: User, attributes: Attributes) -> bool:
    """Return whether `user` may do this."""
    return decide(user, attributes, stored_roles(store)).allowed


class Authorizer:
    """Authorizes requests; with `is_on` false it allows everything.

    Each right that an account uses is written to `used_file` once, so that granted rights can be
    compared with used rights.
    """

    def __init__(self, store: Store, *, is_on: bool, used_file: Path | None = None) -> None:
        self._store, self.is_on = store, is_on
        self._used_file, self._used = used_file, set[str]()

    def decide(self, user: User, attributes: Attributes) -> Decision:
        """Return whether `user` may do this, and by which binding."""
        decision = decide(user, attributes, stored_roles(self._store))
        if decision.allowed and decision.reason:
            self._note(f"{user.name} {attributes.verb} {_resource(attributes)}")
        return decision

    def _note(self, used: str) -> None:
        if self._used_file is not None and used not in self._used:
            self._used.add(used)
            with self._used_file.open("a", encoding="utf-8") as file:
                file.write(f"{used}\n")

    def check(self, user: User, request: web.Request, path: ResourcePath | None) -> None:
        """Refuse what `user` may not do. StatusError 403."""
        if self.is_on:
            self._require(user, _attributes(request, path))

    def check_create(self, user: User, kind: Kind, namespace: str, name: str) -> None:
        """Refuse an update that would create its object. StatusError 403."""
        attributes = Attributes("create", kind.group, kind.plural, "", namespace, name)
        if self.is_on:
            self._require(user, attributes)

    def grants(self, kind: Kind) -> bool:
        """Return whether objects of this kind grant rights."""
        return self.is_on and kind.group == RBAC_GROUP

    def check_grant(self, user: User, kind: Kind, new: Body, old: Body | None = None) -> None:
        """Refuse to grant rights that `user` does not have. StatusError 403, 404."""
        if not self.grants(kind) or MASTERS in user.groups:
            return
        if old is not None and _for_collector(old) == _for_collector(new):
            return
        if kind.plural in _ROLES:
            self._check_role(user, kind, new, is_new=old is None)
        elif kind.plural in _BINDINGS:
            self._check_binding(user, kind, new)

    def _check_role(self, user: User, kind: Kind, new: Body, *, is_new: bool) -> None:
        metadata = new["metadata"]
        name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
        name_checked = "" if is_new else name
        escalate = Attributes("escalate", RBAC_GROUP, kind.plural, "", namespace, name_checked)
        if is_permitted(self._store, user, escalate):
            return
        self._check_held(user, kind, new, new.get("rules") or [])

    def _check_binding(self, user: User, kind: Kind, new: Body) -> None:
        reference, metadata = new.get("roleRef") or {}, new["metadata"]
        namespace, role = metadata.get("namespace", ""), reference.get("name", "")
        plural = "roles" if reference.get("kind") == "Role" else "clusterroles"
        bind = Attributes("bind", RBAC_GROUP, plural, "", namespace, role)
        if is_permitted(self._store, user, bind):
            return
        bucket = f"{plural}.{RBAC_GROUP}"
        item = self._store.get(bucket, namespace if plural == "roles" else "", role)
        if item is None:
            # The server names the kind that it was asked for, not the kind that it missed.
            details = {"name": role, "group": RBAC_GROUP, "kind": kind.plural}
            raise StatusError(404, "NotFound", f'{kind.resource_name} "{role}" not found', details)
        self._check_held(user, kind, new, item.body.get("rules") or [])

    def _check_held(self, user: User, kind: Kind, new: Body, wanted: list[Body]) -> None:
        metadata = new["metadata"]
        held = rules_of(user, metadata.get("namespace", ""), stored_roles(self._store))
        missing = missing_rules(held, wanted)
        if missing:
            raise forbidden(kind, metadata.get("name", ""), describe_missing(user, missing))

    def _require(self, user: User, attributes: Attributes) -> None:
        if not self.decide(user, attributes).allowed:
            raise forbidden_to(user.name, attributes)


def _resource(attributes: Attributes) -> str:
    """Return the requested resource: `pods/log`, `ipujobs.graphcore.ai`, or a path."""
    below = f"/{attributes.subresource}" if attributes.subresource else ""
    group = f".{attributes.group}" if attributes.group else ""
    return attributes.path or f"{attributes.resource}{below}{group}"


def _attributes(request: web.Request, path: ResourcePath | None) -> Attributes:
    if path is None:
        return Attributes(request.method.lower(), path=request.path)
    is_namespace = path.plural == "namespaces" and not path.group and bool(path.name)
    return Attributes(
        _verb(request, path),
        path.group,
        path.plural,
        path.subresource,
        path.name if is_namespace else path.namespace,
        path.name or _selected_name(request),
    )


def _verb(request: web.Request, path: ResourcePath) -> str:
    if request.method == "DELETE":
        return "delete" if path.name else "deletecollection"
    verb = _VERBS.get(request.method, request.method.lower())
    if verb != "get" or path.name:
        return verb
    is_watch = request.query.get("watch", "").lower() in {"true", "1", "t"}
    return "watch" if is_watch else "list"


def _selected_name(request: web.Request) -> str:
    """The single name that a field selector allows: a rule for that name then allows the list."""
    try:
        selector = parse_field_selector(request.query.get("fieldSelector", ""))
    except ValueError:
        return ""
    return selector.exact("metadata.name") or ""


def _for_collector(body: Body) -> Body:
    """The object without what the garbage collector must be able to change."""
    trimmed: Body = copy_json(body)
    for name in ("ownerReferences", "finalizers", "resourceVersion", "managedFields"):
        trimmed["metadata"].pop(name, None)
    return trimmed


_ACCOUNT: Final = "system:serviceaccount:"


def impersonate(authorizer: Authorizer, user: User, request: web.Request) -> User:
    """Return who the request acts as; StatusError 403 where `user` may not, 500 for half a wish."""
    name = request.headers.get("Impersonate-User", "")
    groups = tuple(request.headers.getall("Impersonate-Group", []))
    if not name:
        if groups:
            message = "requested impersonation of groups without impersonating a user"
            raise StatusError(500, "InternalError", f"Internal error occurred: {message}")
        return user
    namespace, _, account = name.removeprefix(_ACCOUNT).partition(":")
    is_account = name.startswith(_ACCOUNT)
    wanted = [
        Attributes("impersonate", "", "serviceaccounts", "", namespace, account)
        if is_account
        else Attributes("impersonate", "", "users", name=name),
        *(Attributes("impersonate", "", "groups", name=group) for group in groups),
    ]
    for attributes in wanted:
        if not authorizer.decide(user, attributes).allowed:
            raise forbidden_to(user.name, attributes)
    if is_account and not groups:
        return account_user(namespace, account, "")
    return User(name, tuple(dict.fromkeys((*groups, AUTHENTICATED))))


def forbidden_to(user: str, wanted: Attributes) -> StatusError:
    """403: not allowed to this user."""
    if wanted.path:
        message = f'forbidden: User "{user}" cannot {wanted.verb} path "{wanted.path}"'
        return StatusError(403, "Forbidden", message)
    resource = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
    resource_name = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    named = f'{resource_name} "{wanted.name}"' if wanted.name else resource_name
    where = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    details = {"name": wanted.name, "group": wanted.group, "kind": wanted.resource}
    return StatusError(
        403,
        "Forbidden",
        f'{named} is forbidden: User "{user}" cannot {wanted.verb} resource "{resource}" in API '
        f'group "{wanted.group}" {where}',
        {key: value for key, value in details.items() if value},
    )
