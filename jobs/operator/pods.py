"""domain: facts that the operator reads from a pod: phase, waiting reason, and how its containers
ended.

End reasons are messages that a user can act on.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from jobs.ipujob.conditions import Reason
from jobs.ipujob.logtails import clean_tail
from jobs.ipujob.names import (
    ANNOTATION_END,
    ANNOTATION_FINGERPRINT,
    LABEL_ATTEMPT,
    LABEL_INSTANCE,
    LABEL_ROLE,
    annotations_of,
    is_being_deleted,
    labels_of,
    metadata,
    parse_time,
)

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.ipujob.names import Manifest

OOM_KILLED = "OOMKilled"
KILLED_BY_SIGNAL = 128  # a shell and the kubelet add it to the signal's number
NEVER_RAN = frozenset({"StartError", "ContainerCannotRun"})
LONGEST_WHY = 600


@dataclass(frozen=True, slots=True)
class Ending:
    """The cause of a pod's failure: a reason, a message, and the last lines of the failed
    container's log.

    `exit_code` is None if no container has an exit code.
    """

    reason: Reason
    sentence: str
    exit_code: int | None = None
    log: str = ""


def ending_of(name: str, spec: Manifest, status: Manifest) -> Ending:
    """Return how the failed pod `name` ended: by its first failed container, init containers
    first."""
    if status.get("reason") == "DeadlineExceeded":
        seconds = spec.get("activeDeadlineSeconds")
        message = f"Pod {name} ran longer than its template's activeDeadlineSeconds"
        return Ending(Reason.POD_DEADLINE, f"{message} of {seconds} s" if seconds else message)
    for container, terminated in terminated_of(spec, status):
        if terminated.get("exitCode"):
            return _of_container(name, container, terminated, spec)
    words = [str(status[part]) for part in ("reason", "message") if status.get(part)]
    return Ending(Reason.FAILED, ": ".join([f"{name} has failed", *words])[:LONGEST_WHY])


def is_out_of_memory(spec: Manifest, status: Manifest) -> bool:
    """Return whether any container of the pod was killed for the memory it used."""
    ended = terminated_of(spec, status)
    return any(terminated.get("reason") == OOM_KILLED for _, terminated in ended)


def terminated_of(spec: Manifest, status: Manifest) -> list[tuple[str, Manifest]]:
    """The containers that have ended, by name, init containers first. Not the native sidecars
    (init containers with restartPolicy Always): the kubelet ends them with SIGTERM when the others
    have ended, and Kubernetes does not judge a pod by them either."""
    sidecars = sidecars_of(spec)
    return [
        (str(container.get("name")), terminated)
        for kind in ("initContainerStatuses", "containerStatuses")
        for container in status.get(kind) or ()
        if container.get("name") not in sidecars
        and (terminated := (container.get("state") or {}).get("terminated"))
    ]


def sidecars_of(spec: Manifest) -> set[object]:
    """Return the names of the native sidecars."""
    return {
        container.get("name")
        for container in spec.get("initContainers") or ()
        if container.get("restartPolicy") == "Always"
    }


def exit_words(code: int) -> str:
    """Return the exit code with its signal, if any: `137 (SIGKILL)`."""
    try:
        return f"{code} ({signal.Signals(code - KILLED_BY_SIGNAL).name})"
    except ValueError:
        return str(code)


def _of_container(name: str, container: str, terminated: Manifest, spec: Manifest) -> Ending:
    code, word = int(terminated["exitCode"]), terminated.get("reason")
    log = clean_tail(str(terminated.get("message") or ""))
    where = f"Container {container} of {name}"
    if word == OOM_KILLED:
        limit = _memory_limit(container, spec)
        most = f"its limit of {limit}" if limit else "the node had available"
        message = f"{where} was killed because it used more memory than {most}"
        return Ending(
            Reason.OOM_KILLED, f"{message} (OOMKilled, exit code {exit_words(code)})", code, log
        )
    message = f"{where} exited with code {exit_words(code)}"
    if word in NEVER_RAN:
        message = f"{where} could not be started ({word}, exit code {code})"
        message += f": {' '.join(log.split())}" if log else ""
    return Ending(Reason.FAILED, message[:LONGEST_WHY], code, log)


def _memory_limit(name: str, spec: Manifest) -> str:
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind) or ():
            if container.get("name") == name:
                limits = (container.get("resources") or {}).get("limits") or {}
                return str(limits.get("memory") or "")
    return ""


TERMINAL = frozenset({"Succeeded", "Failed"})
LOST_REASONS = frozenset(
    {"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "NodeAffinity"}
)
PULL_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
CONFIG_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
BACKING_OFF = "Back-off pulling image"
LONGEST_DETAIL = 600
_MOST_DIGITS = 9  # of a number that a status holds
END_SECONDS = 1  # activeDeadlineSeconds by which the operator ends a pod and keeps its object


@dataclass(frozen=True, slots=True)
class Trouble:
    """The problem that keeps a pod from starting.

    `detail` is the text of another component, which changes from moment to moment: the first known
    text is shown.
    """

    reason: Reason
    message: str
    detail: str = ""

    @property
    def sentence(self) -> str:
        """All of it."""
        return f"{self.message}: {self.detail}" if self.detail else self.message


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod of a job, evaluated once per pass. `ending` is how it failed; None: it has not.
    `fingerprint` identifies the spec that it was made from. `gone_by`: when its deletion's grace
    period is over. `node_trouble`: the problem of its node, if that is not Ready: the pod's status
    may be old. `ends_on_signal`: it sleeps, and ends by itself on a signal; `deadline`: its
    activeDeadlineSeconds, counted from `accepted_at`. `is_initializing`: an init container runs
    that is no sidecar; `set_up_at`: when the last of them ended, or else when the pod was made.
    `waits_for`: why it is not Ready, in the kubelet's words."""

    name: str
    namespace: str
    uid: str
    role: str
    instance: int
    attempt: int
    phase: str
    is_deleting: bool
    is_ready: bool
    is_scheduled: bool
    has_started: bool
    started_at: datetime | None
    is_ended_by_us: bool
    exit_code: int | None
    lost_reason: str
    lost_message: str
    ending: Ending | None
    is_out_of_memory: bool
    trouble: Trouble | None
    fingerprint: str = ""
    node: str = ""
    gone_by: datetime | None = None
    ends_on_signal: bool = False
    deadline: int | None = None
    accepted_at: datetime | None = None
    node_trouble: str = ""
    is_initializing: bool = False
    set_up_at: datetime | None = None
    waits_for: str = ""

    @property
    def is_terminal(self) -> bool:
        """All its containers have ended for good: it uses no IPU any more."""
        return self.phase in TERMINAL

    @property
    def is_lost(self) -> bool:
        """Return whether the pod was removed externally rather than ended by itself."""
        if self.phase == "Succeeded" or self.is_ended_by_us:
            return False
        return self.is_deleting or bool(self.lost_reason)


def from_manifest(pod: Manifest) -> PodView:
    """Return the view of a pod with the operator's labels."""
    labels = labels_of(pod)
    spec: Manifest = pod.get("spec") or {}
    status: Manifest = pod.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    meta = metadata(pod)
    name = str(meta.get("name", ""))
    main = _main_started(spec, status)
    end = annotations_of(pod).get(ANNOTATION_END)
    return PodView(
        name=name,
        namespace=str(meta.get("namespace", "")),
        uid=str(meta.get("uid", "")),
        role=labels.get(LABEL_ROLE, ""),
        instance=_number(labels.get(LABEL_INSTANCE)),
        attempt=_number(labels.get(LABEL_ATTEMPT)),
        phase=phase,
        is_deleting=is_being_deleted(pod),
        is_ready=phase == "Running" and _is_true(conditions.get("Ready")),
        is_scheduled=bool(spec.get("nodeName")),
        has_started=main is not None,
        started_at=parse_time(main) if main else None,
        is_ended_by_us=(bool(end) or spec.get("activeDeadlineSeconds") == END_SECONDS)
        and status.get("reason") in {None, "", "DeadlineExceeded"},
        exit_code=_exit_code(spec, status) if phase in TERMINAL else None,
        lost_reason=_lost_reason(status, conditions) if phase == "Failed" else "",
        lost_message=_lost_message(status, conditions),
        ending=ending_of(name, spec, status) if phase == "Failed" else None,
        is_out_of_memory=is_out_of_memory(spec, status),
        trouble=_trouble(name, status, conditions) if phase == "Pending" else None,
        fingerprint=annotations_of(pod).get(ANNOTATION_FINGERPRINT, ""),
        node=str(spec.get("nodeName") or ""),
        gone_by=parse_time(meta.get("deletionTimestamp")),
        ends_on_signal=end is not None,
        deadline=spec.get("activeDeadlineSeconds"),
        accepted_at=parse_time(status.get("startTime")),
        node_trouble=SILENT if phase == "Running" and _is_unheard(conditions) else "",
        is_initializing=any("running" in state for state in _init_states(spec, status)),
        set_up_at=_set_up_at(meta, spec, status),
        waits_for=_waits_for(status, conditions),
    )


def _number(text: str | None) -> int:
    """Return the number of a label; 0 where the operator would not have written it."""
    is_number = text is not None and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if text is not None and is_number else 0


def _is_true(condition: Manifest | None) -> bool:
    return condition is not None and condition.get("status") == "True"


SILENT = "stopped reporting"


def trouble_of_node(node: Manifest) -> str:
    """Return the problem of a node that is not Ready; empty: it is Ready, or has not reported."""
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready" and condition.get("status") != "True":
            if condition.get("status") != "False":
                return SILENT
            return f"went NotReady ({condition.get('reason') or 'no reason given'})"
    return ""


def on_node(view: PodView, trouble: str) -> PodView:
    """Return the view of a pod whose node has this trouble; pods that have ended need no node."""
    return replace(view, node_trouble=trouble) if trouble and not view.is_terminal else view


def _is_unheard(conditions: dict[Any, Manifest]) -> bool:
    """Return whether the node controller has written that the pod is not Ready, since its node is
    silent: it gives no reason and leaves the containers Ready, as the kubelet never does."""
    ready, containers = conditions.get("Ready") or {}, conditions.get("ContainersReady") or {}
    is_false = ready.get("status") == "False" and not ready.get("reason")
    return is_false and containers.get("status") != "False"


def _main_started(spec: Manifest, status: Manifest) -> str | None:
    """Return when the main (first) container began to run.

    Empty: it ran, but the time is unknown; None: it has not run yet.
    """
    containers = spec.get("containers") or ()
    main = containers[0].get("name") if containers else None
    for container in status.get("containerStatuses") or ():
        if container.get("name") == main:
            state = container.get("state") or {}
            terminated = state.get("terminated") or {}
            running = state.get("running")
            if running is not None:
                return str(running.get("startedAt") or "")
            return terminated.get("startedAt") or None
    return None


def _init_states(spec: Manifest, status: Manifest) -> list[Manifest]:
    """Return the states of the init containers that end before the others begin."""
    sidecars = sidecars_of(spec)
    return [
        container.get("state") or {}
        for container in status.get("initContainerStatuses") or ()
        if container.get("name") not in sidecars
    ]


def _set_up_at(meta: Manifest, spec: Manifest, status: Manifest) -> datetime | None:
    ended = [state.get("terminated") or {} for state in _init_states(spec, status)]
    texts = (meta.get("creationTimestamp"), *(each.get("finishedAt") for each in ended))
    times = [parse_time(text) for text in texts]
    return max((time for time in times if time is not None), default=None)


def _exit_code(spec: Manifest, status: Manifest) -> int | None:
    """Return the first non-zero exit code, init containers first; 0 if all are 0; None: unknown."""
    codes = [terminated.get("exitCode") for _, terminated in terminated_of(spec, status)]
    known = [code for code in codes if isinstance(code, int)]
    return next((code for code in known if code), 0 if known else None)


def _lost_reason(status: Manifest, conditions: dict[Any, Manifest]) -> str:
    target = conditions.get("DisruptionTarget")
    if target is not None and _is_true(target):
        return str(target.get("reason") or "DisruptionTarget")
    reason = str(status.get("reason") or "")
    return reason if reason in LOST_REASONS else ""


def _lost_message(status: Manifest, conditions: dict[Any, Manifest]) -> str:
    target = conditions.get("DisruptionTarget")
    message = target.get("message") if target is not None and _is_true(target) else None
    return str(message or status.get("message") or "")[:LONGEST_DETAIL]


def _trouble(name: str, status: Manifest, conditions: dict[Any, Manifest]) -> Trouble | None:
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        message = scheduled.get("message") or "the scheduler gave no reason"
        return Trouble(Reason.UNSCHEDULABLE, f"Pod {name} cannot be scheduled: {message}")
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            found = _of_waiting(
                f"container {container.get('name')} of pod {name}", container, waiting
            )
            if found is not None:
                return found
    return None


def _waits_for(status: Manifest, conditions: dict[Any, Manifest]) -> str:
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            waiting = (container.get("state") or {}).get("waiting")
            if waiting:
                return str(waiting.get("message") or waiting.get("reason") or "")[:LONGEST_DETAIL]
    return str((conditions.get("Ready") or {}).get("message") or "")[:LONGEST_DETAIL]


def _of_waiting(where: str, container: Manifest, waiting: Manifest) -> Trouble | None:
    reason, detail = waiting.get("reason"), str(waiting.get("message") or "")
    if reason in PULL_REASONS:
        image = container.get("image")
        message = f'Cannot pull image "{image}" for {where}'
        # While it waits for its next try, the kubelet says only that it waits.
        words = "" if detail.startswith(BACKING_OFF) else detail[:LONGEST_DETAIL]
        return Trouble(Reason.IMAGE_PULL_FAILED, message, words)
    if reason in CONFIG_REASONS:
        return Trouble(
            Reason.CONTAINER_CONFIG_ERROR, f"Cannot configure {where}: {detail or reason}"
        )
    return None
