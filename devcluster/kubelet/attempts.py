"""domain: which pods of an IPUJob belong together, and when its launcher may begin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from devcluster.kubelet.behaviour import LABEL_JOB_UID, LABEL_ROLE

if TYPE_CHECKING:
    from collections.abc import Iterable

LAUNCHER_INIT: Final = "ipuhub-launcher"
_LABELS: Final = (LABEL_JOB_UID, "graphcore.ai/instance", "graphcore.ai/attempt")
_WORKER: Final = "worker"


def attempt_of(pod: dict[str, Any]) -> str:
    """Job UID, instance and attempt of an IPUJob's pod as one text; empty for other pods."""
    labels = pod["metadata"].get("labels") or {}
    return "/".join(labels.get(name, "") for name in _LABELS) if LABEL_JOB_UID in labels else ""


def is_worker(pod: dict[str, Any]) -> bool:
    """Whether the pod is a worker of an IPUJob."""
    return bool(attempt_of(pod)) and pod["metadata"]["labels"].get(LABEL_ROLE) == _WORKER


def waits_for_workers(pod: dict[str, Any]) -> bool:
    """Whether the pod has the init container that lasts until all workers are Ready."""
    return any(c["name"] == LAUNCHER_INIT for c in pod["spec"].get("initContainers") or ())


def are_workers_ready(launcher: dict[str, Any], pods: Iterable[dict[str, Any]]) -> bool:
    """Whether the workers among the `pods` of the launcher's attempt are all there and Ready.

    The init container's IPUHUB_WORKERS says how many there must be; without it, at least one.
    """
    ready = [is_ready(pod) for pod in pods if is_worker(pod)]
    return all(ready) and len(ready) >= (_wanted(launcher) or 1)


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether the pod's Ready condition is true and nobody is deleting it."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _wanted(launcher: dict[str, Any]) -> int:
    for container in launcher["spec"].get("initContainers") or ():
        if container["name"] == LAUNCHER_INIT:
            for variable in container.get("env") or ():
                if variable.get("name") == "IPUHUB_WORKERS":
                    text = str(variable.get("value") or "")
                    return int(text) if text.isdigit() else 0
    return 0
