"""domain: what the operator reads in a pod."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.ipujob.conditions import Reason
from jobs.ipujob.fingerprint import ANNOTATION_MADE_OF
from jobs.ipujob.manifests import annotations_of, is_being_deleted, labels_of, metadata, parse_time
from jobs.ipujob.names import ANNOTATION_END, LABEL_ATTEMPT, LABEL_INSTANCE, LABEL_ROLE
from jobs.operator.endings import ending_of, is_out_of_memory, terminated_of

if TYPE_CHECKING:
    from datetime import datetime

    from jobs.ipujob.manifests import Manifest
    from jobs.operator.endings import Ending

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
END_SECONDS = 1  # activeDeadlineSeconds by which the operator ends a pod and keeps its object


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps a pod from starting. `detail` is in somebody else's words, which change from
    moment to moment: the first that are known are told."""

    reason: Reason
    message: str
    detail: str = ""

    @property
    def sentence(self) -> str:
        """All of it."""
        return f"{self.message}: {self.detail}" if self.detail else self.message


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod of a job, judged once per pass. `ending` is how it failed; None: it has not. `stamp`
    tells what it was made of. `gone_by`: when the grace period of its deletion is over.
    `is_unheard`: its node has stopped reporting, so that what is known of it is of before.
    `hears_end`: it sleeps, and ends by itself when it is told; `deadline`: its
    activeDeadlineSeconds, counted from `accepted_at`."""

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
    stamp: str = ""
    node: str = ""
    gone_by: datetime | None = None
    hears_end: bool = False
    deadline: int | None = None
    accepted_at: datetime | None = None
    is_unheard: bool = False

    @property
    def is_terminal(self) -> bool:
        """All its containers have ended for good: it uses no IPU any more."""
        return self.phase in TERMINAL

    @property
    def is_lost(self) -> bool:
        """It was taken away from the job, rather than ended by itself."""
        if self.phase == "Succeeded" or self.is_ended_by_us:
            return False
        return self.is_deleting or bool(self.lost_reason)


def from_manifest(pod: Manifest) -> PodView:
    """The view of one pod with the operator's labels."""
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
        stamp=annotations_of(pod).get(ANNOTATION_MADE_OF, ""),
        node=str(spec.get("nodeName") or ""),
        gone_by=parse_time(meta.get("deletionTimestamp")),
        hears_end=end is not None,
        deadline=spec.get("activeDeadlineSeconds"),
        accepted_at=parse_time(status.get("startTime")),
        is_unheard=phase == "Running" and _is_unheard(conditions),
    )


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0


def _is_true(condition: Manifest | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _is_unheard(conditions: dict[Any, Manifest]) -> bool:
    """Whether the node controller has written that the pod is not Ready, since its node is silent:
    it gives no reason and leaves the containers Ready, as the kubelet never does."""
    ready, containers = conditions.get("Ready") or {}, conditions.get("ContainersReady") or {}
    is_false = ready.get("status") == "False" and not ready.get("reason")
    return is_false and containers.get("status") != "False"


def _main_started(spec: Manifest, status: Manifest) -> str | None:
    """When the main container (the first) began to run, empty if that is not known; None: it has
    not run yet."""
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


def _exit_code(spec: Manifest, status: Manifest) -> int | None:
    """The first non-zero code, init containers first; 0 if all are; None: nothing says so."""
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
    said = target.get("message") if target is not None and _is_true(target) else None
    return str(said or status.get("message") or "")[:LONGEST_DETAIL]


def _trouble(name: str, status: Manifest, conditions: dict[Any, Manifest]) -> Trouble | None:
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        said = scheduled.get("message") or "the scheduler gave no reason"
        return Trouble(Reason.UNSCHEDULABLE, f"Pod {name} finds no node: {said}")
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            found = _of_waiting(
                f"container {container.get('name')} of pod {name}", container, waiting
            )
            if found is not None:
                return found
    return None


def _of_waiting(where: str, container: Manifest, waiting: Manifest) -> Trouble | None:
    reason, said = waiting.get("reason"), str(waiting.get("message") or "")
    if reason in PULL_REASONS:
        image = container.get("image")
        message = f'Cannot pull image "{image}" for {where}'
        # While it waits for its next try, the kubelet says only that it waits.
        words = "" if said.startswith(BACKING_OFF) else said[:LONGEST_DETAIL]
        return Trouble(Reason.IMAGE_PULL_FAILED, message, words)
    if reason in CONFIG_REASONS:
        return Trouble(Reason.CONTAINER_CONFIG_ERROR, f"Cannot set up {where}: {said or reason}")
    return None
