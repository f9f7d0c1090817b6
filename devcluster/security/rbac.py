"""domain: role-based access control, evaluated over the stored RBAC objects.

Objects are decoded manifests. Nothing here knows where they are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from devcluster.storage.selectors import selector_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Manifest = dict[str, Any]
RBAC_GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class RbacUser:
    """Who asks: `groups` must already hold system:authenticated and the like."""

    name: str
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked: a resource request, or a path when `path` is not empty."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class RbacObjects:
    """The four kinds of RBAC objects, of all namespaces."""

    roles: Iterable[Manifest] = ()
    role_bindings: Iterable[Manifest] = ()
    cluster_roles: Iterable[Manifest] = ()
    cluster_role_bindings: Iterable[Manifest] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer; `reason` names the binding that allows, as the server's reviews do."""

    allowed: bool
    reason: str = ""


def is_allowed(user: RbacUser, attributes: Attributes, objects: RbacObjects) -> bool:
    """Whether any binding of `user` allows the request."""
    return decide(user, attributes, objects).allowed


def decide(user: RbacUser, attributes: Attributes, objects: RbacObjects) -> Decision:
    """Whether the request is allowed and which binding says so; no binding means no."""
    if MASTERS in user.groups:
        return Decision(allowed=True)
    for binding, subject, rules in _grants(user, attributes.namespace, objects):
        if any(rule_allows(rule, attributes) for rule in rules):
            return Decision(allowed=True, reason=_reason(binding, subject))
    return Decision(allowed=False)


def rules_of(user: RbacUser, namespace: str, objects: RbacObjects) -> list[Manifest]:
    """All rules that hold for `user` in `namespace`, for SelfSubjectRulesReview."""
    if MASTERS in user.groups:
        return [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]
    return [rule for _, _, rules in _grants(user, namespace, objects) for rule in rules]


def rule_allows(rule: Mapping[str, Any], attributes: Attributes) -> bool:
    """Whether one PolicyRule covers the request."""
    if not _has(rule, "verbs", attributes.verb):
        return False
    if attributes.path:
        return any(_path_matches(item, attributes.path) for item in _list(rule, "nonResourceURLs"))
    return (
        _has(rule, "apiGroups", attributes.group)
        and _resource_matches(_list(rule, "resources"), attributes)
        and _name_matches(_list(rule, "resourceNames"), attributes.name)
    )


def aggregated_rules(
    cluster_role: Mapping[str, Any], cluster_roles: Iterable[Mapping[str, Any]]
) -> list[Manifest]:
    """The rules of a ClusterRole; with an aggregationRule the union of the selected roles'."""
    aggregation = cluster_role.get("aggregationRule")
    if not aggregation:
        return _list(cluster_role, "rules")
    selectors = [selector_of(item) for item in _list(aggregation, "clusterRoleSelectors")]
    rules: list[Manifest] = []
    for other in sorted(cluster_roles, key=_name):
        if other.get("aggregationRule") or _name(other) == _name(cluster_role):
            continue
        labels = (other.get("metadata") or {}).get("labels")
        if any(selector.matches(labels) for selector in selectors):
            rules += [rule for rule in _list(other, "rules") if rule not in rules]
    return rules


def _grants(
    user: RbacUser, namespace: str, objects: RbacObjects
) -> Iterator[tuple[Manifest, Manifest, list[Manifest]]]:
    """Each binding that names the user, the subject that does, and the rules it brings."""
    cluster_roles = {_name(role): role for role in objects.cluster_roles}
    for binding in objects.cluster_role_bindings:
        subject = _bound_subject(user, binding)
        if subject is not None:
            yield binding, subject, _cluster_rules(binding, cluster_roles)
    if not namespace:
        return
    roles = {_name(role): role for role in objects.roles if _namespace(role) == namespace}
    for binding in objects.role_bindings:
        if _namespace(binding) != namespace:
            continue
        subject = _bound_subject(user, binding)
        if subject is None:
            continue
        reference = binding.get("roleRef") or {}
        if reference.get("kind") == "ClusterRole":
            yield binding, subject, _cluster_rules(binding, cluster_roles)
        else:
            yield binding, subject, _list(roles.get(reference.get("name", ""), {}), "rules")


def _cluster_rules(binding: Manifest, cluster_roles: Mapping[str, Manifest]) -> list[Manifest]:
    role = cluster_roles.get((binding.get("roleRef") or {}).get("name", ""))
    return aggregated_rules(role, cluster_roles.values()) if role else []


def _bound_subject(user: RbacUser, binding: Manifest) -> Manifest | None:
    for subject in _list(binding, "subjects"):
        kind, name = subject.get("kind"), subject.get("name", "")
        if kind == "User" and name == user.name:
            return dict(subject)
        if kind == "Group" and name in user.groups:
            return dict(subject)
        # A subject without a namespace means the binding's own, where there is one.
        namespace = subject.get("namespace") or _namespace(binding)
        if kind == "ServiceAccount" and user.name == f"system:serviceaccount:{namespace}:{name}":
            return dict(subject)
    return None


def _reason(binding: Manifest, subject: Manifest) -> str:
    namespace, name = _namespace(binding), _name(binding)
    reference = binding.get("roleRef") or {}
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    full_name = f"{name}/{namespace}" if namespace else name
    who = subject.get("name", "")
    if subject.get("kind") == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or namespace}"
    return (
        f'RBAC: allowed by {kind} "{full_name}" of {reference.get("kind")} '
        f'"{reference.get("name")}" to {subject.get("kind")} "{who}"'
    )


def _resource_matches(resources: list[str], attributes: Attributes) -> bool:
    wanted = attributes.resource
    if attributes.subresource:
        wanted = f"{attributes.resource}/{attributes.subresource}"
        if f"*/{attributes.subresource}" in resources:
            return True
    return "*" in resources or wanted in resources


def _name_matches(names: list[str], name: str) -> bool:
    return not names or name in names


def _path_matches(rule_path: str, path: str) -> bool:
    if rule_path == "*":
        return True
    if rule_path.endswith("*"):
        return path.startswith(rule_path.rstrip("*"))
    return rule_path == path


def _has(rule: Mapping[str, Any], field: str, value: str) -> bool:
    values = _list(rule, field)
    return "*" in values or value in values


def _list(obj: Mapping[str, Any], field: str) -> list[Any]:
    return obj.get(field) or []


def _name(obj: Mapping[str, Any]) -> str:
    return str((obj.get("metadata") or {}).get("name", ""))


def _namespace(obj: Mapping[str, Any]) -> str:
    return str((obj.get("metadata") or {}).get("namespace", ""))
