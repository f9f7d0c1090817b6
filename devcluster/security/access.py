"""io: what a user may do by the stored RBAC objects.

Nobody grants by RBAC what he does not hold himself.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final

from devcluster.security.rbac import RBAC_GROUP as GROUP
from devcluster.security.rbac import Attributes, RbacObjects, RbacUser, decide, rules_of
from devcluster.status import go_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from devcluster.paths import User
    from devcluster.security.rbac import Decision
    from devcluster.storage.store import Store


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


Rule = dict[str, Any]
EVERYTHING: Final[tuple[Rule, ...]] = (
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


def missing_rules(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """What of `wanted` no rule of `held` covers, verbs of one resource together."""
    found: dict[tuple[str, ...], Rule] = {}
    for rule in wanted:
        for single in _singles(rule):
            if any(_covers(one, single) for one in held):
                continue
            key = tuple(str(single.get(name)) for name, _ in _SHOWN if name != "verbs")
            merged = found.setdefault(key, {**single, "verbs": []})
            merged["verbs"] += [v for v in single["verbs"] if v not in merged["verbs"]]
    return list(found.values())


def describe(user: str, groups: Sequence[str], missing: Iterable[Rule]) -> str:
    """The refusal's reason, in the server's words."""
    lines = sorted({_shown(rule) for rule in missing})
    return (
        f"user {go_value(user)} (groups={_texts(groups)}) is attempting to grant RBAC permissions "
        f"not currently held:\n" + "\n".join(lines)
    )


def _singles(rule: Rule) -> Iterator[Rule]:
    """The rule cut into rules of one verb on one thing each."""
    verbs = rule.get("verbs") or []
    for group, resource, verb in product(
        rule.get("apiGroups") or [], rule.get("resources") or [], verbs
    ):
        single = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        names = rule.get("resourceNames") or []
        yield from ({**single, "resourceNames": [name]} for name in names)
        if not names:
            yield single
    for url, verb in product(rule.get("nonResourceURLs") or [], verbs):
        yield {"nonResourceURLs": [url], "verbs": [verb]}


def _covers(held: Rule, single: Rule) -> bool:
    if not _has(held, single, "verbs"):
        return False
    if "nonResourceURLs" in single:
        url = single["nonResourceURLs"][0]
        return any(_url_covers(one, url) for one in held.get("nonResourceURLs") or ())
    names = held.get("resourceNames") or []
    return (
        _has(held, single, "apiGroups")
        and _resource_covers(held.get("resources") or [], single["resources"][0])
        and (not names or (single.get("resourceNames") or [""])[0] in names)
    )


def _has(held: Rule, single: Rule, field: str) -> bool:
    values = held.get(field) or []
    return "*" in values or single[field][0] in values


def _resource_covers(held: Sequence[str], wanted: str) -> bool:
    _, slash, subresource = wanted.partition("/")
    return "*" in held or wanted in held or bool(slash and f"*/{subresource}" in held)


def _url_covers(held: str, wanted: str) -> bool:
    if held == "*":
        return True
    if held.endswith("*"):
        return wanted.startswith(held.rstrip("*"))
    return held == wanted


def _shown(rule: Rule) -> str:
    parts = (f"{name}:{_texts(rule[key])}" for key, name in _SHOWN if rule.get(key))
    return "{" + ", ".join(parts) + "}"


def _texts(values: Sequence[str]) -> str:
    return f"[{' '.join(go_value(value) for value in values)}]"
