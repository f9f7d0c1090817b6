"""domain: the status of one container and its changes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from devcluster.kubelet.instants import to_text

if TYPE_CHECKING:
    from datetime import datetime

CREATING: Final = "ContainerCreating"
INITIALIZING: Final = "PodInitializing"
CRASH_LOOP: Final = "CrashLoopBackOff"
PULL_FAILED: Final = "ErrImagePull"
PULL_BACKOFF: Final = "ImagePullBackOff"
_RUNTIME: Final = "sim://"


def new_status(container: dict[str, Any], reason: str) -> dict[str, Any]:
    """Status of a container that waits to be started for the first time."""
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": reason}},
        "lastState": {},
    }


def is_running(status: dict[str, Any]) -> bool:
    """Whether the container runs."""
    return "running" in status["state"]


def exit_code(status: dict[str, Any]) -> int | None:
    """Exit code of an ended container; None: it has not ended, or is to be restarted."""
    ended = status["state"].get("terminated")
    return None if ended is None else int(ended["exitCode"])


def last_end(status: dict[str, Any]) -> dict[str, Any] | None:
    """How the container ended the last time, now or before its restart; None: never."""
    states: tuple[dict[str, Any], ...] = (status["state"], status["lastState"])
    return next((state["terminated"] for state in states if state.get("terminated")), None)


def waiting_reason(status: dict[str, Any]) -> str:
    """Why the container waits; empty: it does not."""
    reason: str = status["state"].get("waiting", {}).get("reason", "")
    return reason


def wait(status: dict[str, Any], reason: str, message: str = "") -> None:
    """Make the container wait; how it ended before stays in lastState."""
    _keep_last_end(status)
    status["state"] = {"waiting": {"reason": reason}}
    if message:
        status["state"]["waiting"]["message"] = message
    status["ready"] = status["started"] = False


def start(status: dict[str, Any], pod_uid: str, now: datetime) -> None:
    """Start the container, or start it again."""
    if last_end(status) is not None:
        status["restartCount"] += 1
    _keep_last_end(status)
    run = f"{pod_uid}/{status['name']}/{status['restartCount']}"
    status["containerID"] = _RUNTIME + hashlib.sha256(run.encode()).hexdigest()
    status["imageID"] = _RUNTIME + hashlib.sha256(status["image"].encode()).hexdigest()
    status["state"] = {"running": {"startedAt": to_text(now)}}
    status["started"] = True


def finish(
    status: dict[str, Any], code: int, at: datetime, *, reason: str = "", message: str = ""
) -> None:
    """End the running container."""
    ended = {
        "exitCode": code,
        "reason": reason or ("Error" if code else "Completed"),
        "startedAt": status["state"]["running"]["startedAt"],
        "finishedAt": to_text(at),
        "containerID": status.get("containerID", ""),
    }
    if message:
        ended["message"] = message
    status["state"] = {"terminated": ended}
    status["ready"] = status["started"] = False


def _keep_last_end(status: dict[str, Any]) -> None:
    ended = status["state"].get("terminated")
    if ended is not None:
        status["lastState"] = {"terminated": ended}
