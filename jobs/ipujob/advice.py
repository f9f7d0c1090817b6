"""domain: advice to the owner of a job about a reason, for the job's page and the reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobs.ipujob.conditions import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

_ASK: Final = "If it lasts, ask your administrator."
ADVICE: Final[Mapping[str, str]] = {
    Reason.FAILED.value: "Read the last lines of the log.",
    Reason.INVALID_SPEC.value: "Correct the fields that the message names.",
    Reason.NO_CAPACITY.value: "Wait, or ask for fewer IPUs.",
    Reason.NO_CONTROLLERS.value: "Ask your administrator to configure a V-IPU controller.",
    Reason.NO_LABELLED_NODE.value: "Ask your administrator to label the nodes.",
    Reason.CONTROLLER_UNAVAILABLE.value: f"Wait: the operator retries. {_ASK}",
    Reason.PROXY_UNAVAILABLE.value: f"Wait: the operator retries. {_ASK}",
    Reason.PARTITION_REFUSED.value: "Follow the message, or ask your administrator.",
    Reason.PARTITION_ERROR.value: "The job restarts by itself. If it repeats, ask your "
    "administrator.",
    Reason.PARTITION_LOST.value: "The job restarts by itself. If it repeats, ask your "
    "administrator.",
    Reason.PARTITION_REMOVING.value: f"Wait: its IPUs come free by themselves. {_ASK}",
    Reason.REMOVAL_REFUSED.value: "Ask your administrator to remove the partition.",
    Reason.UNSCHEDULABLE.value: "Check requests, node selectors and PersistentVolumeClaims.",
    Reason.IMAGE_PULL_FAILED.value: "Check the name of the image and the pull secret.",
    Reason.CONTAINER_CONFIG_ERROR.value: "Check the ConfigMaps and Secrets that the template "
    "names.",
    Reason.NAME_CONFLICT.value: "Delete the other object, or give the job another name.",
    Reason.CREATE_FAILED.value: "Read the message: it is the API server's.",
    Reason.QUOTA_EXCEEDED.value: "Wait, delete other objects, or ask for a larger quota.",
    Reason.LIMIT_RANGE.value: "Change the requests or limits of the template.",
    Reason.POD_SECURITY.value: "Remove what the message names, or ask your administrator.",
    Reason.ADMISSION_DENIED.value: "Read the message, and ask the owner of that webhook.",
    Reason.WEBHOOK_UNAVAILABLE.value: f"Wait: the operator retries. {_ASK}",
    Reason.API_UNAVAILABLE.value: f"Wait: the operator retries. {_ASK}",
    Reason.NAMESPACE_TERMINATING.value: "Create the job in another namespace.",
    Reason.SPEC_CHANGED.value: "To apply the change now, suspend the job and resume it.",
    Reason.PODS_STUCK.value: "Ask your administrator to repair or remove the node.",
    Reason.NODE_NOT_READY.value: "Wait: if the node does not come back, the job restarts.",
    Reason.OOM_KILLED.value: "Raise the memory limit of the container.",
    Reason.POD_DEADLINE.value: "Remove activeDeadlineSeconds from the pod template.",
    Reason.WORKER_LOST.value: "Check the node. The job restarts, unless its restart policy is "
    "Never.",
    Reason.LOSS_LIMIT.value: "Ask your administrator about the nodes, then create the job again.",
    Reason.START_BLOCKED.value: "Remove the cause, then suspend and resume the job to retry at "
    "once.",
    Reason.DEADLINE_EXCEEDED.value: "Raise activeDeadlineSeconds of the job.",
    Reason.SUSPENDED.value: "Resume the job when it should run: set spec.suspend to false.",
    Reason.STATUS_NOT_KEPT.value: "Ask your administrator to apply IPUHub's CRD.",
    Reason.STATUS_MALFORMED.value: "Find out who else writes the job's status: its managedFields "
    "name the writer.",
    Reason.STATUS_LOST.value: "Read the job's earlier outcome on its page. To run it again, create "
    "it again.",
}
"""By reason, as conditions and `status.instances` have it. None for what needs no action."""
ADVICE_AT_THE_END: Final[Mapping[str, str]] = {
    reason.value: "Run the job again. If it repeats, ask your administrator."
    for reason in (Reason.PARTITION_ERROR, Reason.PARTITION_LOST)
}
"""In place of ADVICE for a job that failed for good: nothing restarts it."""
