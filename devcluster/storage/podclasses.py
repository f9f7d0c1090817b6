"""domain: the priority and runtime classes that a new Pod names, as admission judges them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

Body = dict[str, Any]
_SYSTEM: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Classes that every server has."""


def class_problem(spec: Body, classes: Iterable[Body]) -> str:
    """Why a pod with these classes is forbidden, by the PriorityClasses there are; empty: it is
    not, and `spec` has its priority. No RuntimeClass can be made here."""
    runtime = spec.get("runtimeClassName")
    if runtime:
        return f'pod rejected: RuntimeClass "{runtime}" not found'
    known = {one["metadata"]["name"]: one for one in classes}
    system = {name: {"value": value} for name, value in _SYSTEM.items()}
    name = spec.get("priorityClassName") or ""
    chosen = (known | system).get(name, {"value": 0})
    if name and name not in known and name not in system:
        return f"no PriorityClass with name {name} was found"
    if not name:
        name, chosen = _global_default(known)
    given, value = spec.get("priority"), int(chosen.get("value") or 0)
    if given is not None and given != value:
        return (
            f"the integer value of priority ({given}) must not be provided in pod spec; priority "
            f"admission controller computed {value} from the given PriorityClass name"
        )
    spec["priority"] = value
    if name:
        spec["priorityClassName"] = name
    spec.setdefault("preemptionPolicy", chosen.get("preemptionPolicy") or "PreemptLowerPriority")
    return ""


def _global_default(known: dict[str, Body]) -> tuple[str, Body]:
    defaults = [(name, one) for name, one in known.items() if one.get("globalDefault")]
    return min(defaults, key=lambda pair: pair[1].get("value", 0), default=("", {"value": 0}))
