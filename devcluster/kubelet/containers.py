"""domain: the status of a container and its changes, and the phase and conditions of a pod from the
statuses of its containers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from ipuhub.times import format_time

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
    """Return whether the container runs."""
    return "running" in status["state"]


def exit_code(status: dict[str, Any]) -> int | None:
    """Exit code of an ended container; None: it has not ended, or is to be restarted."""
    ended = status["state"].get("terminated")
    return None if ended is None else int(ended["exitCode"])


def last_end(status: dict[str, Any]) -> dict[str, Any] | None:
    """Return how the container ended the last time, now or before its restart; None: never."""
    states: tuple[dict[str, Any], ...] = (status["state"], status["lastState"])
    return next((state["terminated"] for state in states if state.get("terminated")), None)


def waiting_reason(status: dict[str, Any]) -> str:
    """Return why the container waits; empty: it does not."""
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
    status["state"] = {"running": {"startedAt": format_time(now)}}
    status["started"] = True


def finish(
    status: dict[str, Any], code: int, at: datetime, *, reason: str = "", message: str = ""
) -> None:
    """End the running container."""
    ended = {
        "exitCode": code,
        "reason": reason or ("Error" if code else "Completed"),
        "startedAt": status["state"]["running"]["startedAt"],
        "finishedAt": format_time(at),
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


TERMINAL: Final = frozenset({"Succeeded", "Failed"})
_OWN: Final = ("PodScheduled", "Initialized", "ContainersReady", "Ready")


def phase_of(restart_policy: str, status: dict[str, Any]) -> str:
    """Phase by the kubelet's rules; `status` has the statuses of all containers."""
    inits = [exit_code(container) for container in status.get("initContainerStatuses") or ()]
    if restart_policy == "Never" and any(code for code in inits):
        return "Failed"
    mains = status["containerStatuses"]
    never_ran = any(
        last_end(container) is None and not is_running(container) for container in mains
    )
    if any(code != 0 for code in inits) or never_ran:
        return "Pending"
    codes = [exit_code(container) for container in mains]
    if restart_policy == "Always" or None in codes:
        return "Running"
    if not any(codes):
        return "Succeeded"
    return "Failed" if restart_policy == "Never" else "Running"


def final_phase(status: dict[str, Any]) -> str:
    """Phase of a pod whose containers were all stopped for good; unchanged if none ever ran."""
    containers = (*(status.get("initContainerStatuses") or ()), *status["containerStatuses"])
    ends = [end for container in containers if (end := last_end(container))]
    if not ends:
        return str(status["phase"])
    mains_ran = all(last_end(container) for container in status["containerStatuses"])
    failed = not mains_ran or any(end["exitCode"] for end in ends)
    return "Failed" if failed else "Succeeded"


def own_conditions(status: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the conditions in `status` that a kubelet writes, without nulls."""
    return [
        {key: value for key, value in condition.items() if value is not None}
        for condition in status.get("conditions") or ()
        if condition["type"] in _OWN
    ]


def conditions_of(status: dict[str, Any], now: datetime) -> list[dict[str, Any]]:
    """Return the pod's conditions with `status` as it is now.

    Unchanged conditions keep their times; conditions of other writers are left out.
    """
    old = {condition["type"]: condition for condition in status.get("conditions") or ()}
    return [
        _condition(name, *_judge(name, status), old.get(name), format_time(now)) for name in _OWN
    ]


def _judge(name: str, status: dict[str, Any]) -> tuple[bool, str, str]:
    """Truth, reason and message of one condition."""
    if name == "PodScheduled":
        return True, "", ""
    ended_well = status["phase"] == "Succeeded"
    if name == "Initialized":
        inits = status.get("initContainerStatuses") or ()
        missing = [container["name"] for container in inits if exit_code(container) != 0]
        if missing:
            text = f"containers with incomplete status: [{' '.join(missing)}]"
            return False, "ContainersNotInitialized", text
        return True, "PodCompleted" if ended_well else "", ""
    if status["phase"] in TERMINAL:
        return False, "PodCompleted" if ended_well else "PodFailed", ""
    unready = [
        container["name"] for container in status["containerStatuses"] if not container["ready"]
    ]
    if unready:
        text = f"containers with unready status: [{' '.join(unready)}]"
        return False, "ContainersNotReady", text
    return True, "", ""


def _condition(
    name: str, truth: bool, reason: str, message: str, old: dict[str, Any] | None, now: str
) -> dict[str, Any]:
    status = "True" if truth else "False"
    since = old["lastTransitionTime"] if old and old["status"] == status else None
    found = {"type": name, "status": status, "lastTransitionTime": since or now}
    texts = {"reason": reason, "message": message}
    return found | {key: text for key, text in texts.items() if text}
