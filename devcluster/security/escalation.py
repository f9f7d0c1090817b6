"""domain: nobody grants by RBAC what he does not hold himself."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final

from devcluster.fielderror import go_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
