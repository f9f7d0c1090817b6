"""io: what a failed action is told as in the job's status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipuhub.kube.errors import ApiError, Conflict, Unreachable
from jobs import refusals
from jobs.actions import (
    CreateChild,
    DeleteChild,
    EndPod,
    EnsurePartition,
    ReleasePartition,
    SetFinalizers,
)
from jobs.conditions import Reason
from jobs.errors import NameConflictError
from jobs.manifests import name_of
from jobs.observed import Fault

if TYPE_CHECKING:
    from jobs.actions import Action


def fault_of(action: Action, error: BaseException) -> Fault | None:
    """What the job's status says about a failure; None: nothing a user could do about, or the
    status could not be written either."""
    if isinstance(action, EnsurePartition | ReleasePartition):
        retryable = bool(getattr(error, "retryable", False))
        reason = Reason.PROXY_UNAVAILABLE if retryable else Reason.PARTITION_REFUSED
        return Fault(reason, str(error), is_passing=retryable)
    if isinstance(error, NameConflictError):
        return Fault(Reason.NAME_CONFLICT, str(error))
    what = _attempted(action)
    if not what or not isinstance(error, ApiError) or isinstance(error, Unreachable):
        return None
    if isinstance(error, Conflict) and not isinstance(action, CreateChild):
        return None  # the object has changed: the next pass looks at it again
    why = refusals.reason_of(error.status, error.message, error.details)
    message = refusals.sentence(why, what, error.message)
    return Fault(why, message, is_passing=error.retryable)


def _attempted(action: Action) -> str:
    match action:
        case CreateChild():
            return f"Cannot create {action.kind} {name_of(action.manifest)}"
        case DeleteChild():
            return f"Cannot delete {action.kind} {action.name}"
        case EndPod():
            return f"Cannot end Pod {action.name}"
        case SetFinalizers():
            return "Cannot write the job's finalizers"
        case _:
            return ""
