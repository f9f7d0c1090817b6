"""domain: the cells of a pod in `kubectl get pods`."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Manifest = dict[str, Any]

_ENDED = MappingProxyType(
    {
        "Succeeded": ("Succeeded", "The pod has completed successfully."),
        "Failed": ("Failed", "The pod failed."),
    }
)


@dataclass(frozen=True, slots=True)
class PodSummary:
    """Ready containers, all containers, the word in the STATUS column, restarts."""

    ready: int
    total: int
    status: str
    restarts: int


def summarise_pod(pod: Mapping[str, Any]) -> PodSummary:
    """The pod in the four values of its row."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    word = status.get("reason") or status.get("phase") or "Unknown"
    total = len(spec.get("containers") or [])
    containers = status.get("containerStatuses") or []
    ready = sum(
        1 for item in containers if item.get("ready") and _state(item, "running") is not None
    )
    initial = _init_status(spec, status)
    if initial is not None:
        word, restarts, ready = *initial, 0
    else:
        restarts = sum(item.get("restartCount", 0) for item in containers)
        word = _container_status(containers, word)
        if word == "Completed" and ready:
            word = "Running" if _is_ready(status) else "NotReady"
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        word = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return PodSummary(ready, total, word, restarts)


def row_conditions(pod: Mapping[str, Any]) -> list[dict[str, str]]:
    """The row's conditions, by which kubectl greys out ended pods."""
    ended = _ENDED.get((pod.get("status") or {}).get("phase", ""))
    if ended is None:
        return []
    reason, message = ended
    return [{"type": "Completed", "status": "True", "reason": reason, "message": message}]


def _init_status(spec: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[str, int] | None:
    """(word, restarts) while an init container runs or failed; None when all are done."""
    restarts = 0
    for at, item in enumerate(status.get("initContainerStatuses") or []):
        restarts += item.get("restartCount", 0)
        ended, waiting = _state(item, "terminated"), _state(item, "waiting")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if ended is not None:
            return f"Init:{_end_word(ended)}", restarts
        reason = (waiting or {}).get("reason", "")
        if reason and reason != "PodInitializing":
            return f"Init:{reason}", restarts
        return f"Init:{at}/{len(spec.get('initContainers') or [])}", restarts
    return None


def _container_status(containers: list[Manifest], word: str) -> str:
    for item in reversed(containers):
        waiting, ended = _state(item, "waiting"), _state(item, "terminated")
        if waiting is not None and waiting.get("reason"):
            word = waiting["reason"]
        elif ended is not None:
            word = _end_word(ended)
    return word


def _end_word(ended: Mapping[str, Any]) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended.get('exitCode', 0)}"


def _state(status: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    return (status.get("state") or {}).get(name)


def _is_ready(status: Mapping[str, Any]) -> bool:
    return any(
        item.get("type") == "Ready" and item.get("status") == "True"
        for item in status.get("conditions") or []
    )
