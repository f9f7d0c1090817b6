"""io: the reason and message that a failed action adds to a job's status."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from ipuhub.kube.errors import ApiError, Conflict, Unreachable
from jobs.ipujob.conditions import Reason
from jobs.ipujob.names import name_of
from jobs.operator.actions import (
    CreateChild,
    DeleteChild,
    EndPod,
    EnsurePartition,
    ReleasePartition,
    SetFinalizers,
    StoreKey,
    TryPod,
)
from jobs.operator.observed import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jobs.ipujob.names import JobKey
    from jobs.operator.actions import Action

LONGEST_WORDS = 800
_BY_WORDS = (
    ("failed calling webhook", Reason.WEBHOOK_UNAVAILABLE),
    ("exceeded quota", Reason.QUOTA_EXCEEDED),
    ("failed quota", Reason.QUOTA_EXCEEDED),
    ("violates podsecurity", Reason.POD_SECURITY),
    ("denied the request", Reason.ADMISSION_DENIED),
    ("because it is being terminated", Reason.NAMESPACE_TERMINATING),
)
_KEY = "Cannot create the Secret with the key to the job's partition"
_LIMIT_RANGE = ("maximum ", "minimum ")
_REMEDIES = {
    Reason.QUOTA_EXCEEDED: "the operator retries; free some quota, or ask for a larger quota",
    Reason.LIMIT_RANGE: "change the resources in workers.template",
    Reason.POD_SECURITY: "change workers.template, or the namespace's Pod Security level",
    Reason.WEBHOOK_UNAVAILABLE: "the operator retries",
    Reason.API_UNAVAILABLE: "the operator retries",
}


def reason_of(status: int, words: str, details: Mapping[str, object]) -> Reason:
    """Return why the API server refused, by its words, since most admission plugins answer a bare
    403."""
    text = words.lower()
    if "NamespaceTerminating" in str(details.get("causes")):
        return Reason.NAMESPACE_TERMINATING
    for part, reason in _BY_WORDS:
        if part in text:
            return reason
    if status == 403 and (_names_limit(text) or "limit to request ratio" in text):
        return Reason.LIMIT_RANGE
    if status == 429 or status >= 500:
        return Reason.API_UNAVAILABLE
    return Reason.CREATE_FAILED


def _names_limit(text: str) -> bool:
    return any(word in text and " usage per " in text for word in _LIMIT_RANGE)


def sentence(reason: Reason, what: str, words: str) -> str:
    """Return a message: `what` the operator tried, the server's words, and what helps."""
    remedy = _REMEDIES.get(reason)
    text = f"{what}: {words[:LONGEST_WORDS].strip().rstrip('.')}"
    return f"{text} ({remedy})" if remedy else text


class JobsError(Exception):
    """Root of this app's errors."""


class PermanentError(JobsError):
    """An error that stays until a person changes something."""


class NameConflictError(PermanentError):
    """An object of the needed name exists and belongs to something else."""


log = structlog.get_logger(__name__)


@dataclass(slots=True)
class RefusalLog:
    """Logs refusals that do not pass by themselves: each once, however often it is retried."""

    _said: dict[str, str] = field(default_factory=dict)

    def say(self, key: JobKey, refusal: str) -> None:
        """Take in why the last try was refused; empty: it was not."""
        if not refusal:
            self._said.pop(key.uid, None)
        elif refusal != self._said.get(key.uid):
            self._said[key.uid] = refusal
            log.warning("rejected, retrying", job=key.path, job_uid=key.uid, why=refusal)

    def forget(self, uid: str) -> None:
        """The job has gone."""
        self._said.pop(uid, None)


@dataclass(slots=True)
class FaultLog:
    """The faults that block jobs now, by UID.

    A fault that may pass by itself is reported from its second time on: a token controller that is
    a second late is not worth a report.
    """

    _faults: dict[str, Fault] = field(default_factory=dict)
    _stumbled: set[str] = field(default_factory=set)

    def get(self, uid: str) -> Fault | None:
        """Return what blocks one job."""
        return self._faults.get(uid)

    def all(self) -> Iterable[Fault]:
        """Return what blocks any job."""
        return self._faults.values()

    def remember(self, uid: str, fault: Fault | None) -> bool:
        """Record the result of the last try; return whether the reported fault changes."""
        before = self._faults.get(uid)
        if fault is None:
            self._faults.pop(uid, None)
            self._stumbled.discard(uid)
        elif not fault.is_passing or uid in self._stumbled:
            self._faults[uid] = fault
        else:
            self._stumbled.add(uid)
        return self._faults.get(uid) != before


def fault_of(action: Action, error: BaseException) -> Fault | None:
    """Return what the job's status says about a failure.

    None: the user can do nothing about it, or the status could not be written either.
    """
    if isinstance(action, EnsurePartition | ReleasePartition):
        retryable = bool(getattr(error, "retryable", False))
        reason = Reason.PROXY_UNAVAILABLE if retryable else Reason.PARTITION_REFUSED
        return Fault(reason, str(error), is_passing=retryable)
    if isinstance(action, StoreKey) and not isinstance(error, ApiError):
        return Fault(Reason.PROXY_UNAVAILABLE, str(error), is_passing=True)
    if isinstance(error, NameConflictError):
        return Fault(Reason.NAME_CONFLICT, str(error))
    what = _KEY if isinstance(action, StoreKey) else _attempted(action)
    if not what or not isinstance(error, ApiError) or isinstance(error, Unreachable):
        return None
    if isinstance(error, Conflict) and not isinstance(action, CreateChild):
        return None  # the object has changed: the next pass looks at it again
    cause = reason_of(error.status, error.message, error.details)
    message = sentence(cause, what, error.message)
    # A new namespace has no service account yet.
    is_new = isinstance(action, TryPod) and "error looking up service account" in error.message
    return Fault(cause, message, is_passing=error.retryable or is_new)


def _attempted(action: Action) -> str:
    match action:
        case TryPod():
            return f"Cannot create Pod {name_of(action.manifest)}"
        case CreateChild():
            return f"Cannot create {action.kind} {name_of(action.manifest)}"
        case DeleteChild():
            return f"Cannot delete {action.kind} {action.name}"
        case EndPod():
            return f"Cannot stop Pod {action.name}"
        case SetFinalizers():
            return "Cannot write the job's finalizers"
        case _:
            return ""
