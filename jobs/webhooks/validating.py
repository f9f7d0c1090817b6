"""domain: the rejections of the validating webhook: invalid IPUJobs, and forbidden edits of a
running job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipuhub.partition import Phase
from jobs.ipujob.conditions import FINISHED, JobState
from jobs.ipujob.fields import FIELDS, whole_number
from jobs.ipujob.names import is_being_deleted, name_of, namespace_of
from jobs.ipujob.spec import UNLIMITED, with_defaults, with_plain_numbers
from jobs.ipujob.storedstatus import read_status
from jobs.ipujob.validation import Problem, problems
from jobs.operator.statuscarrier import with_carried_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobs.ipujob.names import Manifest
    from jobs.ipujob.privileges import Privileges
    from jobs.ipujob.spec import SessionLimits
    from jobs.webhooks.review import Review

_FINISHED = frozenset(state.value for state in FINISHED)
_ACTIVE = frozenset({JobState.RUNNING.value, JobState.RESTARTING.value})


def judge(
    review: Review, privileges: Privileges, limits: SessionLimits = UNLIMITED
) -> list[Problem]:
    """Return everything that is wrong with the reviewed change; empty: it is allowed.

    An object that is being deleted, and a change that leaves the spec unchanged, are always
    allowed: an object that breaks a newer rule must still be able to lose its finalizer.
    """
    if review.resource == "ipujobs" and review.subresource == "scale":
        return list(_scale(review))
    new = review.manifest
    if review.subresource or review.operation not in {"CREATE", "UPDATE"} or is_being_deleted(new):
        return []
    if review.operation == "UPDATE" and new.get("spec") == review.old.get("spec"):
        return []
    namespace = namespace_of(new) or review.namespace
    found = problems(
        name_of(new), new.get("spec"), limits, namespace=namespace, privileges=privileges
    )
    if isinstance(new.get("spec"), dict):
        found += _frozen(review.old, new, limits)
    return found


def _scale(review: Review) -> Iterator[Problem]:
    wanted = whole_number(_mapping(review.manifest.get("spec")).get("replicas")) or 0
    known = whole_number(_mapping(review.old.get("spec")).get("replicas")) or 0
    if known == 0:
        yield Problem(
            "spec.replicas",
            "a job with modelReplicas and ipusPerModelReplica cannot be scaled: use "
            "ipusPerJobInstance (the product of the two) and jobInstances instead",
        )
    elif wanted < 1:
        yield Problem("spec.replicas", "use 1 or more, or set suspend: true to pause the job")


def _frozen(old: Manifest, new: Manifest, limits: SessionLimits) -> Iterator[Problem]:
    may_change = _may_change(old)
    before, after = _filled(old, limits), _filled(new, limits)
    if may_change is None:
        return
    for field in sorted({*before, *after}):
        if before.get(field) == after.get(field):
            continue
        if field == "interactive" and not (before.get(field) and after.get(field)):
            yield Problem("spec.interactive", "only ttl can change while the job runs")
        elif field not in may_change:
            state = read_status(old.get("status")).fields.get("launcherStatus")
            instead = (
                "create a new job"
                if state in _FINISHED
                else "suspend the job first (suspend: true), or create a new job"
            )
            yield Problem(f"spec.{field}", f"cannot change while the job is {state}: {instead}")


def _may_change(old: Manifest) -> frozenset[str] | None:
    """The fields of the spec that may change now; None: all, since the job holds nothing."""
    status = with_carried_fields(read_status(old.get("status")).fields)
    state = status.get("launcherStatus")
    if state in _FINISHED:
        return FIELDS.when_finished
    held = any(each["state"] != Phase.RELEASED for each in status.get("partitions", ()))
    if state in _ACTIVE or (held and state != JobState.SUSPENDED):
        return FIELDS.while_running
    return None


def _filled(job: Manifest, limits: SessionLimits) -> dict[str, Any]:
    spec = job.get("spec")
    return with_plain_numbers(with_defaults(spec, limits)) if isinstance(spec, dict) else {}


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
