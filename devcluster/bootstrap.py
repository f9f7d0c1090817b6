"""io: the roles that every cluster has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from devcluster.schemas.kinds import BY_KIND

if TYPE_CHECKING:
    from devcluster.storage.objects import Objects

_RBAC: Final = "rbac.authorization.k8s.io"
_READ: Final = ("get", "list", "watch")
_WRITE: Final = (*_READ, "create", "update", "patch", "delete", "deletecollection")
_NAMESPACED: Final = (
    "configmaps",
    "endpoints",
    "events",
    "persistentvolumeclaims",
    "pods",
    "pods/log",
    "pods/status",
    "serviceaccounts",
    "services",
)
_INTO_PODS: Final = ("pods/attach", "pods/exec", "pods/eviction")


def _rule(groups: tuple[str, ...], resources: tuple[str, ...], verbs: tuple[str, ...]) -> Any:
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}


_ROLES: Final[dict[str, list[Any]]] = {
    "cluster-admin": [
        _rule(("*",), ("*",), ("*",)),
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ],
    "admin": [
        _rule(("",), (*_NAMESPACED, "secrets", *_INTO_PODS), _WRITE),
        _rule((_RBAC,), ("roles", "rolebindings"), _WRITE),
    ],
    "edit": [_rule(("",), (*_NAMESPACED, "secrets", *_INTO_PODS), _WRITE)],
    "view": [_rule(("",), _NAMESPACED, _READ)],
    "system:auth-delegator": [
        _rule(("authentication.k8s.io",), ("tokenreviews",), ("create",)),
        _rule(("authorization.k8s.io",), ("subjectaccessreviews",), ("create",)),
    ],
    "system:basic-user": [
        _rule(
            ("authorization.k8s.io",),
            ("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
            ("create",),
        ),
        _rule(("authentication.k8s.io",), ("selfsubjectreviews",), ("create",)),
    ],
    "system:discovery": [
        {
            "nonResourceURLs": [
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
                "/healthz",
                "/livez",
                "/openapi",
                "/openapi/*",
                "/readyz",
                "/version",
            ],
            "verbs": ["get"],
        }
    ],
}
_BINDINGS: Final = {
    "cluster-admin": "system:masters",
    "system:basic-user": "system:authenticated",
    "system:discovery": "system:authenticated",
}


def create_access_rules(objects: Objects) -> None:
    """Create the default ClusterRoles and bindings that are missing."""
    for name, rules in _ROLES.items():
        _ensure(objects, "ClusterRole", name, {"rules": rules})
    for name, group in _BINDINGS.items():
        subject = {"kind": "Group", "name": group, "apiGroup": _RBAC}
        role = {"kind": "ClusterRole", "name": name, "apiGroup": _RBAC}
        _ensure(objects, "ClusterRoleBinding", name, {"subjects": [subject], "roleRef": role})


def _ensure(objects: Objects, kind_name: str, name: str, content: dict[str, Any]) -> None:
    kind = BY_KIND[(f"{_RBAC}/v1", kind_name)]
    if objects.store.get(kind.storage_key, "", name) is None:
        labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
        head = {"apiVersion": kind.api_version, "kind": kind.kind}
        objects.create(kind, "", {**head, "metadata": {"name": name, "labels": labels}, **content})
