"""io: what a user may do by the stored RBAC objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from devcluster.security.rbac import RBAC_GROUP as GROUP
from devcluster.security.rbac import Attributes, RbacObjects, RbacUser, decide, rules_of

if TYPE_CHECKING:
    from devcluster.security.rbac import Decision
    from devcluster.storage.store import Store
    from devcluster.users import User


def judge(store: Store, user: User, spec: dict[str, Any]) -> Decision:
    """Whether `user` may do what the spec of an access review describes."""
    path = spec.get("nonResourceAttributes")
    if path:
        attributes = Attributes(path.get("verb", ""), path=path.get("path", ""))
    else:
        wanted = spec["resourceAttributes"]
        names = ("group", "resource", "subresource", "namespace", "name")
        parts = {name: wanted.get(name, "") for name in names}
        attributes = Attributes(wanted.get("verb", ""), **parts)
    return decide(_rbac_user(user), attributes, _objects(store))


def is_permitted(store: Store, user: User, attributes: Attributes) -> bool:
    """Whether `user` may do this."""
    return decide(_rbac_user(user), attributes, _objects(store)).allowed


def list_rules(store: Store, user: User, namespace: str) -> list[dict[str, Any]]:
    """Return the rules that apply to `user` in a namespace."""
    return rules_of(_rbac_user(user), namespace, _objects(store))


def _rbac_user(user: User) -> RbacUser:
    return RbacUser(user.name, frozenset(user.groups))


def _objects(store: Store) -> RbacObjects:
    def bodies(plural: str) -> list[dict[str, Any]]:
        return [item.body for item in store.items(f"{plural}.{GROUP}")]

    return RbacObjects(
        bodies("roles"),
        bodies("rolebindings"),
        bodies("clusterroles"),
        bodies("clusterrolebindings"),
    )
