"""domain: which nodes a pod's selector, required affinity and tolerations allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def matches_node(pod: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether nodeSelector and required node affinity of the pod select the node."""
    spec = pod["spec"]
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    selector: Mapping[str, str] = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get(_REQUIRED)
    if required is None:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(_term(term, labels, fields) for term in required.get("nodeSelectorTerms") or ())


def _term(term: Mapping[str, Any], labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    expressions = term.get("matchExpressions") or ()
    on_fields = term.get("matchFields") or ()
    if not expressions and not on_fields:
        return False  # an empty term selects nothing
    return all(_requirement(one, labels) for one in expressions) and all(
        _requirement(one, fields) for one in on_fields
    )


def _requirement(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    present = labels.get(requirement["key"])
    values = requirement.get("values") or ()
    verdicts = {
        "In": present in values,
        "NotIn": present not in values,
        "Exists": present is not None,
        "DoesNotExist": present is None,
        "Gt": _compare(present, values) > 0,
        "Lt": _compare(present, values) < 0,
    }
    return verdicts.get(requirement["operator"], False)


def _compare(present: str | None, values: Any) -> int:
    """Sign of present - wanted; 0, which satisfies neither, for what is no integer."""
    try:
        return int(present or "") - int(values[0])
    except (ValueError, IndexError):
        return 0


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether one toleration matches one taint."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(toleration.get("key")) and same


def untolerated_taint(
    pod: Mapping[str, Any], node: Mapping[str, Any], effects: frozenset[str]
) -> Mapping[str, Any] | None:
    """Return the first taint of these effects that the pod does not tolerate."""
    tolerations = pod["spec"].get("tolerations") or ()
    taints = taints_of(node)
    for taint in taints:
        if taint.get("effect") in effects and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None


def taints_of(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The taints of a node, which may have been made without a spec."""
    return (node.get("spec") or {}).get("taints") or []
