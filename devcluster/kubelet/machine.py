"""domain: the life cycle of a pod on a stand-in node, one visible change at a time.

Pending -> ContainerCreating -> init containers one by one -> Running -> Succeeded or Failed.
Everything is derived from the pod, the last written status and the time, so a restarted node
process continues from the state in the API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from devcluster.kubelet.containerlife import drive_init, drive_main
from devcluster.kubelet.containers import (
    CREATING,
    INITIALIZING,
    TERMINAL,
    conditions_of,
    exit_code,
    new_status,
    phase_of,
)
from devcluster.kubelet.life import Life, PodState, Step
from devcluster.kubelet.stopping import end_at_deadline, end_deleted, is_past_deadline
from ipuhub.times import format_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from devcluster.kubelet.life import Situation

_OPTIONAL: Final = ("podIP", "podIPs", "reason", "message")


def advance(pod: Mapping[str, Any], state: PodState, situation: Situation) -> Step:
    """Return the pod's next state, and when to call again.

    After a change that is at once: each change is to be written before the next change.
    """
    life = Life(pod, state, situation)
    _move(life)
    if life.is_accepted:
        life.status["conditions"] = conditions_of(life.status, life.now)
    is_changed = life.status != state.status
    goes_on = life.status["phase"] not in TERMINAL and not life.remove
    wake_at = life.now if is_changed else life.wake_at
    return Step(
        PodState(life.status, life.marks),
        is_changed,
        wake_at if goes_on else None,
        life.remove,
        tuple(life.notes),
        life.signals,
    )


def build_patch(uid: str, status: Mapping[str, Any]) -> dict[str, Any]:
    """Build the strategic merge patch that writes `status`, on the pod with this UID only.

    Conditions of other writers stay.
    """
    conditions = [
        {"reason": None, "message": None, "lastProbeTime": None, **condition}
        for condition in status.get("conditions") or ()
    ]
    absent = dict.fromkeys(_OPTIONAL)
    return {"metadata": {"uid": uid}, "status": {**absent, **status, "conditions": conditions}}


def _move(life: Life) -> None:
    if life.metadata.get("deletionTimestamp"):
        end_deleted(life)
    elif life.status["phase"] in TERMINAL:
        return
    elif not life.is_accepted:
        _accept(life)
    elif is_past_deadline(life):
        end_at_deadline(life)
    else:
        _run(life)
        life.status["phase"] = phase_of(life.restart_policy, life.status)


def _accept(life: Life) -> None:
    inits = life.spec.get("initContainers") or ()
    reason = INITIALIZING if inits else CREATING
    if not life.status.get("startTime"):
        life.marks["start"] = life.now
        life.status["startTime"] = format_time(life.now)
    life.status |= {
        "hostIP": life.situation.node_ip,
        "containerStatuses": [
            new_status(container, reason) for container in life.spec["containers"]
        ],
    }
    if inits:
        life.status["initContainerStatuses"] = [
            new_status(container, reason) for container in inits
        ]


def _run(life: Life) -> None:
    since = life.instant("start", life.status["startTime"])
    startup = life.behaviour.seconds("startup-seconds", life.behaviour.durations.startup)
    if not life.is_due(since, startup):
        return
    address = life.situation.node_ip if life.spec.get("hostNetwork") else life.situation.pod_ip
    if not life.status.get("podIP"):
        life.status |= {"podIP": address, "podIPs": [{"ip": address}]}
    for container, status in life.pairs("initContainers"):
        code = exit_code(status)
        if code == 0:
            continue
        if code is None or life.restart_policy != "Never":
            drive_init(life, container, status)
        return
    for container, status in life.pairs("containers"):
        drive_main(life, container, status)
