"""domain: what an API server's refusal of a write means for a job, as a reason and a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ipujob.conditions import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_WORDS = 800
_BY_WORDS = (
    ("failed calling webhook", Reason.WEBHOOK_UNAVAILABLE),
    ("exceeded quota", Reason.QUOTA_EXCEEDED),
    ("failed quota", Reason.QUOTA_EXCEEDED),
    ("violates podsecurity", Reason.POD_SECURITY),
    ("denied the request", Reason.ADMISSION_DENIED),
    ("because it is being terminated", Reason.NAMESPACE_TERMINATING),
)
_LIMIT_RANGE = ("maximum ", "minimum ")
_REMEDIES = {
    Reason.QUOTA_EXCEEDED: "the operator tries again; make room, or ask for more",
    Reason.LIMIT_RANGE: "change the resources in workers.template",
    Reason.POD_SECURITY: "change workers.template, or the namespace's Pod Security level",
    Reason.WEBHOOK_UNAVAILABLE: "the operator tries again",
    Reason.API_UNAVAILABLE: "the operator tries again",
}


def reason_of(status: int, words: str, details: Mapping[str, object]) -> Reason:
    """Why the API server refused; by its words, since most admission plugins answer a bare 403."""
    said = words.lower()
    if "NamespaceTerminating" in str(details.get("causes")):
        return Reason.NAMESPACE_TERMINATING
    for part, reason in _BY_WORDS:
        if part in said:
            return reason
    if status == 403 and (_names_limit(said) or "limit to request ratio" in said):
        return Reason.LIMIT_RANGE
    if status == 429 or status >= 500:
        return Reason.API_UNAVAILABLE
    return Reason.CREATE_FAILED


def _names_limit(said: str) -> bool:
    return any(word in said and " usage per " in said for word in _LIMIT_RANGE)


def sentence(reason: Reason, what: str, words: str) -> str:
    """`what` the operator wanted to do, the server's words, and what helps."""
    remedy = _REMEDIES.get(reason)
    said = f"{what}: {words[:LONGEST_WORDS].strip().rstrip('.')}"
    return f"{said} ({remedy})" if remedy else said
