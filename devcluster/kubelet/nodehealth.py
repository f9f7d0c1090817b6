"""domain: what becomes of nodes whose lease is not renewed, and of the pods on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from devcluster.kubelet.affinity import taints_of, tolerates
from devcluster.kubelet.instants import from_text, to_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_OURS: Final = (NOT_READY, UNREACHABLE)
_EFFECTS: Final = ("NoSchedule", "NoExecute")
_SILENT: Final = "Kubelet stopped posting node status."


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What is to be written to a node; None where it is right already."""

    conditions: list[dict[str, Any]] | None = None
    taints: list[dict[str, Any]] | None = None


def judge_node(
    node: Mapping[str, Any], heard_at: datetime, dead_after_seconds: float, now: datetime
) -> NodeVerdict:
    """Judge a node by the last sign of life it gave.

    Silent nodes become Ready=Unknown; taints follow the Ready condition.
    """
    is_dead = now >= heard_at + timedelta(seconds=dead_after_seconds)
    truth = "Unknown" if is_dead else ready_status(node)
    conditions = _unknown_conditions(node, now) if is_dead else None
    wanted = {"True": "", "Unknown": UNREACHABLE}.get(truth, NOT_READY)
    return NodeVerdict(conditions, _taints(node, wanted, now))


def ready_status(node: Mapping[str, Any]) -> str:
    """Status of the Ready condition: True, False or Unknown."""
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready":
            return str(condition["status"])
    return "Unknown"


def evict_at(
    pod: Mapping[str, Any], node: Mapping[str, Any], eviction_seconds: float | None
) -> datetime | None:
    """When the pod is to be deleted for its node's NoExecute taints; None: never.

    `eviction_seconds` replaces the seconds that the pod's own tolerations give.
    """
    tolerations = pod["spec"].get("tolerations") or ()
    times: list[datetime] = []
    for taint in taints_of(node):
        if taint.get("effect") != "NoExecute" or not taint.get("timeAdded"):
            continue
        matching = [one for one in tolerations if tolerates(one, taint)]
        if any(one.get("tolerationSeconds") is None for one in matching):
            continue
        seconds = max((float(one["tolerationSeconds"]) for one in matching), default=0.0)
        if eviction_seconds is not None:
            seconds = eviction_seconds
        times.append(from_text(taint["timeAdded"]) + timedelta(seconds=seconds))
    return min(times, default=None)


def _unknown_conditions(node: Mapping[str, Any], now: datetime) -> list[dict[str, Any]] | None:
    found = (node.get("status") or {}).get("conditions") or []
    if all(one["status"] == "Unknown" for one in found) and found:
        return None
    return [
        {
            **one,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": _SILENT,
            "lastTransitionTime": to_text(now),
        }
        for one in found
        if one["status"] != "Unknown"
    ]


def _taints(node: Mapping[str, Any], wanted: str, now: datetime) -> list[dict[str, Any]] | None:
    found = taints_of(node)
    present = {(one["key"], one["effect"]) for one in found if one["key"] in _OURS}
    if present == ({(wanted, effect) for effect in _EFFECTS} if wanted else set()):
        return None
    kept = [one for one in found if one["key"] not in _OURS]
    if not wanted:
        return kept
    added = [{"key": wanted, "effect": one, "timeAdded": to_text(now)} for one in _EFFECTS]
    return [*kept, *added]
