"""domain: role-based access control, evaluated over the stored RBAC objects.

Objects are decoded manifests; this module does not read the store.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from devcluster.status import go_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from devcluster.paths import User

    Manifest = dict[str, Any]
    Objects = Callable[[str], Iterable[Manifest]]
    """Returns all objects of one resource: roles, rolebindings and the two of the cluster."""
RBAC_GROUP: Final = "rbac.authorization.k8s.io"
MASTERS: Final = "system:masters"
_EVERYTHING: Final = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
_SHOWN: Final = (
    ("apiGroups", "APIGroups"),
    ("resources", "Resources"),
    ("nonResourceURLs", "NonResourceURLs"),
    ("resourceNames", "ResourceNames"),
    ("verbs", "Verbs"),
)


@dataclass(frozen=True, slots=True)
class Attributes:
    """The judged request: for a resource, or a path when `path` is not empty."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer; `reason` names the binding that allows, as the server's reviews do."""

    allowed: bool
    reason: str = ""


def decide(user: User, attributes: Attributes, objects: Objects) -> Decision:
    """Return whether the request is allowed and which binding says so; no binding means no."""
    if MASTERS in user.groups:
        return Decision(allowed=True)
    for binding, subject, rules in _grants(user, attributes.namespace, objects):
        if any(rule_allows(rule, attributes) for rule in rules):
            return Decision(allowed=True, reason=_reason(binding, subject))
    return Decision(allowed=False)


def rules_of(user: User, namespace: str, objects: Objects) -> list[Manifest]:
    """Return all rules that hold for `user` in `namespace`."""
    if MASTERS in user.groups:
        return [*_EVERYTHING]
    return [rule for _, _, rules in _grants(user, namespace, objects) for rule in rules]


def rule_allows(rule: Mapping[str, Any], wanted: Attributes) -> bool:
    """Return whether one PolicyRule covers the request."""
    if not _has(rule, "verbs", wanted.verb):
        return False
    if wanted.path:
        return any(_covers_path(pattern, wanted.path) for pattern in _list(rule, "nonResourceURLs"))
    resources, names = _list(rule, "resources"), _list(rule, "resourceNames")
    full = f"{wanted.resource}/{wanted.subresource}" if wanted.subresource else wanted.resource
    covered = {"*", full} | ({f"*/{wanted.subresource}"} if wanted.subresource else set())
    return (
        _has(rule, "apiGroups", wanted.group)
        and not covered.isdisjoint(resources)
        and (not names or wanted.name in names)
    )


def missing_rules(held: Sequence[Manifest], wanted: Iterable[Manifest]) -> list[Manifest]:
    """Return what of `wanted` no rule of `held` covers, verbs of one resource together."""
    found: dict[tuple[str, ...], Manifest] = {}
    for rule in wanted:
        for single, attributes in _singles(rule):
            if any(rule_allows(other, attributes) for other in held):
                continue
            key = tuple(str(single.get(name)) for name, _ in _SHOWN if name != "verbs")
            merged = found.setdefault(key, {**single, "verbs": []})
            merged["verbs"] += [v for v in single["verbs"] if v not in merged["verbs"]]
    return list(found.values())


def describe_missing(user: User, missing: Iterable[Manifest]) -> str:
    """Return the reason of a refused grant, in the server's words."""
    lines = sorted({_shown(rule) for rule in missing})
    return (
        f"user {go_value(user.name)} (groups={_texts(user.groups)}) is attempting to grant RBAC "
        "permissions not currently held:\n" + "\n".join(lines)
    )


def _singles(rule: Manifest) -> Iterator[tuple[Manifest, Attributes]]:
    """Yield the rule cut into rules of one verb on one thing each, and the request of each."""
    names, verbs = _list(rule, "resourceNames"), _list(rule, "verbs")
    things = product(_list(rule, "apiGroups"), _list(rule, "resources"), names or [""], verbs)
    for group, resource, name, verb in things:
        single = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        plural, _, below = resource.partition("/")
        attributes = Attributes(verb, group, plural, below, name=name)
        yield ({**single, "resourceNames": [name]} if name else single), attributes
    for url, verb in product(_list(rule, "nonResourceURLs"), verbs):
        yield {"nonResourceURLs": [url], "verbs": [verb]}, Attributes(verb, path=url)


def _grants(
    user: User, namespace: str, objects: Objects
) -> Iterator[tuple[Manifest, Manifest, list[Manifest]]]:
    """Yield each binding that names the user, the subject that does, and the rules it brings."""
    cluster_roles = {_name(role): role for role in objects("clusterroles")}
    roles = {_name(role): role for role in objects("roles") if _namespace(role) == namespace}
    local = (
        binding
        for binding in objects("rolebindings")
        if namespace and _namespace(binding) == namespace
    )
    for binding in (*objects("clusterrolebindings"), *local):
        subject = _bound_subject(user, binding)
        if subject is not None:
            reference = binding.get("roleRef") or {}
            known = roles if reference.get("kind") == "Role" else cluster_roles
            yield binding, subject, _list(known.get(reference.get("name", ""), {}), "rules")


def _bound_subject(user: User, binding: Manifest) -> Manifest | None:
    for subject in _list(binding, "subjects"):
        # A subject without a namespace means the binding's own, if any.
        namespace = subject.get("namespace") or _namespace(binding)
        name = subject.get("name", "")
        matches = {
            "User": name == user.name,
            "Group": name in user.groups,
            "ServiceAccount": f"system:serviceaccount:{namespace}:{name}" == user.name,
        }
        if matches.get(subject.get("kind", "")):
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


def _covers_path(held: str, path: str) -> bool:
    return path.startswith(held.rstrip("*")) if held.endswith("*") else held == path


def _has(rule: Mapping[str, Any], field: str, value: str) -> bool:
    return not {"*", value}.isdisjoint(_list(rule, field))


def _shown(rule: Manifest) -> str:
    parts = (f"{name}:{_texts(rule[key])}" for key, name in _SHOWN if rule.get(key))
    return "{" + ", ".join(parts) + "}"


def _texts(values: Sequence[str]) -> str:
    return f"[{' '.join(map(go_value, values))}]"


def _list(obj: Mapping[str, Any], field: str) -> list[Any]:
    return obj.get(field) or []


def _name(obj: Manifest) -> str:
    return str(obj["metadata"]["name"])


def _namespace(obj: Manifest) -> str:
    return str(obj["metadata"].get("namespace", ""))
