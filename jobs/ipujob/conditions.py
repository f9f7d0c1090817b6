"""domain: the states and causes of an IPUJob, and its conditions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from jobs.ipujob.names import Manifest


class JobState(StrEnum):
    """The values of the STATUS column."""

    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"
    FAILED = "Failed"


class ConditionType(StrEnum):
    """The condition that is True in a state."""

    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    COMPLETE = "Complete"  # as other workloads call Succeeded: what scripts wait for


CONDITION_OF_STATE = {
    JobState.PENDING: ConditionType.PENDING,
    JobState.RUNNING: ConditionType.RUNNING,
    JobState.RESTARTING: ConditionType.RESTARTING,
    JobState.SUSPENDED: ConditionType.SUSPENDED,
    JobState.COMPLETED: ConditionType.SUCCEEDED,
    JobState.FAILED: ConditionType.FAILED,
}
ALSO_TRUE = {ConditionType.SUCCEEDED: ConditionType.COMPLETE}
CONDITION_TYPES = {kind.value: kind for kind in ConditionType}
FINISHED = frozenset({JobState.COMPLETED, JobState.FAILED})
LONGEST_MESSAGE = 1024


class Reason(StrEnum):
    """The cause of a job's state: conditions and Events carry these."""

    PENDING = "IPUJobPending"
    RUNNING = "IPUJobRunning"
    RESTARTING = "IPUJobRestarting"
    SUSPENDED = "IPUJobSuspended"
    SUCCEEDED = "IPUJobSucceeded"
    FAILED = "IPUJobFailed"
    INVALID_SPEC = "InvalidSpec"
    NO_CAPACITY = "NoCapacity"
    NO_CONTROLLERS = "NoControllers"
    CONTROLLER_UNAVAILABLE = "ControllerUnavailable"
    NO_LABELLED_NODE = "NoLabelledNode"
    PARTITION_REFUSED = "PartitionRefused"
    PROXY_UNAVAILABLE = "ProxyUnavailable"
    PARTITION_ERROR = "PartitionError"
    PARTITION_LOST = "PartitionLost"
    PARTITION_REMOVING = "PartitionRemoving"
    REMOVAL_REFUSED = "ReleaseRefused"
    PARTITION_ACTIVE = "PartitionActive"
    PARTITION_RELEASED = "PartitionReleased"
    UNSCHEDULABLE = "Unschedulable"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_CONFIG_ERROR = "ContainerConfigError"
    NAME_CONFLICT = "NameConflict"
    CREATE_FAILED = "CreateFailed"
    QUOTA_EXCEEDED = "QuotaExceeded"
    LIMIT_RANGE = "LimitRangeViolation"
    POD_SECURITY = "PodSecurityViolation"
    ADMISSION_DENIED = "AdmissionDenied"
    WEBHOOK_UNAVAILABLE = "WebhookUnavailable"
    API_UNAVAILABLE = "ApiServerUnavailable"
    NAMESPACE_TERMINATING = "NamespaceTerminating"
    SPEC_CHANGED = "SpecChanged"
    SPEC_OVERRIDDEN = "SpecOverridden"
    PODS_STUCK = "PodsStuck"
    NODE_NOT_READY = "NodeNotReady"
    OBJECT_RESTORED = "ObjectRestored"
    OOM_KILLED = "OOMKilled"
    POD_DEADLINE = "PodDeadlineExceeded"
    WORKER_LOST = "WorkerLost"
    LOSS_LIMIT = "LossLimitReached"
    START_BLOCKED = "StartBlocked"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    SESSION_ENDING = "SessionEnding"
    STATUS_NOT_KEPT = "StatusNotKept"
    STATUS_MALFORMED = "StatusMalformed"
    STATUS_LOST = "StatusLost"
    OTHER_CRD = "OtherCrd"


CHANGED: Final = "Changed while the job runs"
"""The beginning of a message with the reason SpecChanged."""
SAVE_WORK: Final = "UTC: save your work"
"""The end of the warning of a session, which stands before a message or in its place."""

# Why an attempt was taken from a job: not the job's fault.
LOST = frozenset({Reason.WORKER_LOST, Reason.PARTITION_ERROR, Reason.PARTITION_LOST})
OF_PARTITION = frozenset({Reason.PARTITION_ERROR.value, Reason.PARTITION_LOST.value})

SENTENCES: dict[Reason, str] = {
    Reason.PENDING: "The job is waiting for its resources.",
    Reason.RUNNING: "The job is running.",
    Reason.RESTARTING: "The job is restarting.",
    Reason.SUSPENDED: "The job is suspended and holds no IPUs.",
    Reason.SUCCEEDED: "The job succeeded.",
    Reason.FAILED: "The job failed.",
    Reason.INVALID_SPEC: "The job's spec is invalid. Correct the named fields.",
    Reason.NO_CAPACITY: "No V-IPU controller has enough free IPUs for the partition. The "
    "operator retries.",
    Reason.NO_CONTROLLERS: "No V-IPU controller is configured.",
    Reason.CONTROLLER_UNAVAILABLE: "The V-IPU controllers do not answer. The operator retries.",
    Reason.NO_LABELLED_NODE: "No Kubernetes node has the label of a V-IPU controller.",
    Reason.PARTITION_REFUSED: "The V-IPU Proxy rejected the request for a partition.",
    Reason.PROXY_UNAVAILABLE: "The V-IPU Proxy does not answer. The operator retries.",
    Reason.PARTITION_ERROR: "The job's IPU partition is in the state ERROR.",
    Reason.PARTITION_LOST: "The job's IPU partition no longer exists on its V-IPU controller, "
    "or its id now belongs to a foreign partition.",
    Reason.PARTITION_REMOVING: "The V-IPU controller is still removing an earlier IPU partition of "
    "the job.",
    Reason.REMOVAL_REFUSED: "The V-IPU controller refuses to remove the job's IPU partition. "
    "The IPUs stay occupied until the removal succeeds.",
    Reason.PARTITION_ACTIVE: "The job's IPU partitions are ready.",
    Reason.PARTITION_RELEASED: "The job's IPU partitions are released.",
    Reason.UNSCHEDULABLE: "The scheduler found no node for a pod of the job.",
    Reason.IMAGE_PULL_FAILED: "A pod of the job cannot pull its image.",
    Reason.CONTAINER_CONFIG_ERROR: "A container of the job cannot be configured.",
    Reason.NAME_CONFLICT: "An object with a required name already exists and does not belong to "
    "the job.",
    Reason.CREATE_FAILED: "The API server rejected an object of the job.",
    Reason.QUOTA_EXCEEDED: "An object of the job exceeds a ResourceQuota of the namespace. The "
    "operator retries.",
    Reason.LIMIT_RANGE: "The resources of a pod violate a LimitRange of the namespace.",
    Reason.POD_SECURITY: "A pod of the job violates the Pod Security level of the namespace.",
    Reason.ADMISSION_DENIED: "An admission webhook of the cluster denied an object of the job.",
    Reason.WEBHOOK_UNAVAILABLE: "An admission webhook does not answer, so the API server "
    "rejects the operator's write. The operator retries.",
    Reason.API_UNAVAILABLE: "The API server cannot process the operator's write. The operator "
    "retries.",
    Reason.NAMESPACE_TERMINATING: "The job's namespace is being deleted, so nothing can be "
    "created in it.",
    Reason.SPEC_CHANGED: "The spec changed while the job was running. The named fields apply "
    "from the next attempt.",
    Reason.SPEC_OVERRIDDEN: "The operator ignores parts of the pod template.",
    Reason.PODS_STUCK: "A pod of the job does not terminate. Its node may be lost.",
    Reason.NODE_NOT_READY: "A node with pods of the job went NotReady or stopped reporting. "
    "Its pods may or may not be running.",
    Reason.OBJECT_RESTORED: "An object of the job was changed and is recreated.",
    Reason.OOM_KILLED: "A container of the job exceeded its memory limit and was killed.",
    Reason.POD_DEADLINE: "A pod ran longer than the activeDeadlineSeconds of its template.",
    Reason.WORKER_LOST: "A pod of the job was deleted, evicted or lost while the job ran.",
    Reason.LOSS_LIMIT: "The job lost its pods or its IPU partition too often in a row and is "
    "not restarted.",
    Reason.START_BLOCKED: "The job's pods could not start in time. The job released its IPU "
    "partition and retries later.",
    Reason.DEADLINE_EXCEEDED: "The job ran longer than its activeDeadlineSeconds.",
    Reason.STATUS_NOT_KEPT: "The IPUJob CRD in the cluster drops the status that the operator "
    "writes. An administrator must apply IPUHub's CRD. Until then the operator does not "
    "touch the job.",
    Reason.STATUS_MALFORMED: "Fields of the stored status had wrong types. The operator dropped "
    "their values and writes the status again.",
    Reason.STATUS_LOST: "The status of the job was removed after the job had held IPUs. The "
    "outcome is unknown, and the operator does not run the job again.",
    Reason.OTHER_CRD: "The IPUJob CRD in the cluster is not IPUHub's and drops the fields named "
    "in the message. This is an Event of the CRD, not of a job.",
    Reason.SESSION_ENDING: "The ttl of the interactive job ends in a few minutes.",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state a job is in, and why. `reason` may be a cause that the proxy named."""

    state: JobState
    reason: str
    message: str


def default_message(condition: ConditionType, path: str) -> str:
    """The sentence of a condition that has no particular cause; `path` is namespace/name."""
    endings = {
        ConditionType.PENDING: "is waiting for resources to be ready.",
        ConditionType.RUNNING: "is running.",
        ConditionType.RESTARTING: "is restarting.",
        ConditionType.SUSPENDED: "is suspended.",
        ConditionType.SUCCEEDED: "successfully completed.",
        ConditionType.FAILED: "has failed.",
        ConditionType.COMPLETE: "successfully completed.",
    }
    return f"IPUJob {path} {endings[condition]}"


def brief_message(message: str, path: str) -> str:
    """Return a message for a table whose line names the job (`path`) already: without that name."""
    own = f"IPUJob {path} "
    if not message.startswith(own):
        return message
    rest = message.removeprefix(own)
    return rest[:1].upper() + rest[1:]


def waiting_edit(state: str, reason: str, message: str) -> str:
    """Return the sentence on an edit that is not in effect; empty: there is none."""
    if reason == Reason.SPEC_CHANGED:
        return message if message.startswith(CHANGED) else SENTENCES[Reason.SPEC_CHANGED]
    if reason == Reason.INVALID_SPEC and state in {JobState.RUNNING, JobState.RESTARTING}:
        text = message.rpartition(f"{SAVE_WORK}. ")[2]
        return text if SAVE_WORK not in text else SENTENCES[Reason.INVALID_SPEC]
    return ""


def plain_verdict(state: JobState, path: str) -> Verdict:
    """A state without a particular cause."""
    condition = CONDITION_OF_STATE[state]
    return Verdict(state, f"IPUJob{condition}", default_message(condition, path))


def current_condition(status: Manifest) -> Manifest | None:
    """Return the condition of the job's state in `status`."""
    wanted = {str(state): str(kind) for state, kind in CONDITION_OF_STATE.items()}
    kind = wanted.get(str(status.get("launcherStatus")))
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            found: Manifest = condition
            return found
    return None


def with_verdict(
    conditions: list[Manifest], verdict: Verdict, path: str, now: str
) -> list[Manifest]:
    """Return the conditions once `verdict` holds: its own condition and its alias, if any, are
    True; all others are False.

    A condition that turns False gets its default reason and message back, so that an outdated cause
    is not shown. Times change only together with their condition.
    """
    own = CONDITION_OF_STATE[verdict.state]
    wanted = [own, ALSO_TRUE[own]] if own in ALSO_TRUE else [own]
    updated = [
        _updated(old, verdict, now) if old.get("type") in wanted else _ended(old, path, now)
        for old in conditions
    ]
    if not conditions and own is not ConditionType.PENDING:
        updated.append(_ended({"type": ConditionType.PENDING.value}, path, now))
    present = {old.get("type") for old in conditions}
    missing = [kind for kind in wanted if kind not in present]
    return [*updated, *(_updated({"type": kind.value}, verdict, now) for kind in missing)]


def _updated(old: Manifest, verdict: Verdict, now: str) -> Manifest:
    new = old | {
        "status": "True",
        "reason": str(verdict.reason),
        "message": verdict.message[:LONGEST_MESSAGE],
    }
    return _timed(old, new, now)


def _ended(old: Manifest, path: str, now: str) -> Manifest:
    condition = CONDITION_TYPES.get(old.get("type", ""))
    if old.get("status") == "False" or condition is None:
        return old
    new = old | {
        "status": "False",
        "reason": f"IPUJob{condition}",
        "message": default_message(condition, path),
    }
    return _timed(old, new, now)


def _timed(old: Manifest, new: Manifest, now: str) -> Manifest:
    if new == old:
        return old
    if new["status"] != old.get("status"):
        new["lastTransitionTime"] = now
    new["lastUpdateTime"] = now
    return new
