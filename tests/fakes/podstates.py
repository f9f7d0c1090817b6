"""The pod statuses that the in-memory kubelet writes, and the pod fields that it reads."""

from __future__ import annotations

from typing import Any

Manifest = dict[str, Any]


def containers(pod: Manifest) -> list[Manifest]:
    """The pod's containers, without init containers."""
    found: list[Manifest] = pod["spec"]["containers"]
    return found


def environment(launcher: Manifest) -> dict[str, str]:
    """Return the operator's environment for a launcher's init container."""
    variable_lists = [c.get("env") or () for c in launcher["spec"].get("initContainers") or ()]
    return {
        variable["name"]: variable.get("value", "") for env in variable_lists for variable in env
    }


def closed_gate() -> Manifest:
    """The init container that has kept a command from starting."""
    return {"name": "ipuhub-launcher", "state": {"terminated": {"exitCode": 1}}}


def unschedulable() -> Manifest:
    """The status of a pod that finds no node."""
    reason = {"reason": "Unschedulable", "message": "0/1 nodes are available"}
    return {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", **reason}],
    }


def exited(pod: Manifest, code: int) -> Manifest:
    """The status of a pod whose containers have all ended with `code`."""
    ended = {"terminated": {"exitCode": code, "startedAt": "2026-03-01T12:00:00Z"}}
    states = [{"name": c["name"], "state": ended} for c in containers(pod)]
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": states}
