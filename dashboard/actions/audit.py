"""glue: records a change before it is sent, sends it, and records the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import transaction

from dashboard.actions.writer import WriteProblem, send
from ipuhub.models.idempotency import note_sending
from ipuhub.web.access import acts_as, require_operator
from ipuhub.web.audit import ACCEPTED, JOB, REFUSED, SENT, UNKNOWN, AuditEvent, answer, record

if TYPE_CHECKING:
    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser

    from dashboard.actions.changes import Change
    from ipuhub.kube.access import User as ClusterUser
    from ipuhub.models import AuditEntry
    from ipuhub.web.audit import Author

_LOG = structlog.get_logger(__name__)
ACTIONS_OFF: Final = "This installation does not change jobs (IPUHUB_ACTIONS). Use kubectl."
NO_IDENTITY: Final = (
    "You have no Kubernetes user, so you cannot change jobs here. Ask an administrator to add you "
    "to IPUHUB_ACTIONS_USERS, or use kubectl."
)


@dataclass(frozen=True, slots=True)
class Actor:
    """The caller: the author of changes, and their identity in Kubernetes."""

    author: Author
    acts_as: ClusterUser


@dataclass(frozen=True, slots=True)
class Done:
    """An accepted change: the object that the API server has now, and its audit entry.

    `warnings`: what the API server and its admission webhooks warn of.
    """

    entry: AuditEntry
    warnings: tuple[str, ...] = ()


def require_kubernetes_user(
    user: AbstractBaseUser | AnonymousUser, namespace: str = ""
) -> ClusterUser:
    """Return the Kubernetes user as whom the user changes jobs. Raise PermissionDenied if the user
    may not change jobs, in general or in this namespace."""
    if not settings.ACTIONS:
        raise PermissionDenied(ACTIONS_OFF)
    if namespace:
        require_operator(user, namespace)
    found = acts_as(user)
    if found is None:
        raise PermissionDenied(NO_IDENTITY)
    return found


def carry_out(change: Change, actor: Actor) -> Done:
    """Send the change and return the result. Raise WriteProblem, and ClaimLostError."""
    with transaction.atomic():
        entry = _record(change, actor)
        note_sending()
    try:
        sent = send(change, actor.acts_as, dry_run=False)
    except WriteProblem as problem:
        outcome = UNKNOWN if problem.may_have_happened else REFUSED
        # All who see the job see the entry; details of the cluster are for administrators.
        answer(entry, outcome, problem.sentence(in_full=False), problem.status)
        if problem.detail:
            _LOG.warning("a change was not made", audit=entry.pk, detail=problem.detail)
        raise
    except BaseException:
        answer(entry, UNKNOWN, "The dashboard failed; its log has the error.")
        raise
    if change.is_new:
        entry.uid = str(sent.object.get("metadata", {}).get("uid", ""))
    answer(entry, ACCEPTED, status=200)
    return Done(entry, warnings=sent.warnings)


def _record(change: Change, actor: Actor) -> AuditEntry:
    event = AuditEvent(
        JOB,
        change.action.key,
        change.name,
        change.namespace,
        change.uid,
        change.fields,
        {
            "kubernetes_user": actor.acts_as.username,
            "kubernetes_groups": list(actor.acts_as.groups),
            "change": change.body,
        },
    )
    return record(actor.author, event, SENT)
