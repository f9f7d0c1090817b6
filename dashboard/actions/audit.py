"""glue: carries a change out and records it: before it is sent, and when it was answered."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.utils import timezone

from dashboard.actions.writer import WriteProblem, send
from ipuhub.models import AuditEntry
from ipuhub.web.access import acts_as, require_operator

if TYPE_CHECKING:
    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser, User

    from dashboard.actions.changes import Change
    from ipuhub.kube.access import User as ClusterUser

ACTIONS_OFF: Final = "This installation does not change jobs (IPUHUB_ACTIONS). Use kubectl."
NO_IDENTITY: Final = (
    "You have no Kubernetes user, so you cannot change jobs here. Ask an administrator to add you "
    "to IPUHUB_ACTIONS_USERS, or use kubectl."
)
SENT, ACCEPTED, REFUSED, UNKNOWN = "sent", "accepted", "refused", "unknown"
OUTCOMES: Final = {
    ACCEPTED: "accepted",
    REFUSED: "refused",
    UNKNOWN: "no answer: the change may have happened",
    SENT: "sent, the dashboard ended before the answer",
}
LONGEST_KEY: Final = 255
_LONGEST_MESSAGE: Final = 4000


@dataclass(frozen=True, slots=True)
class Actor:
    """Who asks: the user, who they are in Kubernetes, and how (`page`, `session`, `token NAME`)."""

    user: User
    acts_as: ClusterUser
    via: str = "page"


class KeyReusedError(Exception):
    """The Idempotency-Key belongs to another request of this user, or to one that is still
    running."""

    def __init__(self, kind: str, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Done:
    """An accepted change: the object that the API server has now, and its audit entry.

    `is_replay`: an earlier request with the same Idempotency-Key did it. `warnings`: what the API
    server and its admission webhooks warn of.
    """

    entry: AuditEntry
    is_replay: bool = False
    warnings: tuple[str, ...] = ()


def require_kubernetes_user(
    user: AbstractBaseUser | AnonymousUser, namespace: str = ""
) -> ClusterUser:
    """Return as whom the user changes jobs. Raise PermissionDenied if they may not, be it in this
    namespace."""
    if not settings.ACTIONS:
        raise PermissionDenied(ACTIONS_OFF)
    if namespace:
        require_operator(user, namespace)
    found = acts_as(user)
    if found is None:
        raise PermissionDenied(NO_IDENTITY)
    return found


def carry_out(change: Change, actor: Actor, key: str | None = None) -> Done:
    """Send the change and return what came of it. Raise WriteProblem or KeyReusedError.

    With a key that the user sent before, nothing is sent: the answer is that of the first time.
    """
    digest = _digest_of(change)
    entry, is_new = _record(change, actor, key, digest)
    if not is_new:
        return _repeat(entry, digest)
    try:
        sent = send(change, actor.acts_as, dry_run=False)
    except WriteProblem as problem:
        outcome = UNKNOWN if problem.is_unknown else REFUSED
        _answer(entry, outcome, problem.status, problem.said(in_full=True))
        raise
    except BaseException:
        _answer(entry, UNKNOWN, None, "The dashboard failed; its log has the error.")
        raise
    if change.is_new:
        entry.uid = str(sent.object.get("metadata", {}).get("uid", ""))
    _answer(entry, ACCEPTED, 200, "")
    return Done(entry, warnings=sent.warnings)


def _record(change: Change, actor: Actor, key: str | None, digest: str) -> tuple[AuditEntry, bool]:
    """Commit the entry; return the one that has the key already, and False, if there is one."""
    try:
        with transaction.atomic():
            made = AuditEntry.objects.create(
                at=timezone.now(),
                user=actor.user,
                user_name=actor.user.get_username(),
                kubernetes_user=actor.acts_as.username,
                kubernetes_groups=list(actor.acts_as.groups),
                via=actor.via,
                action=change.action.key,
                namespace=change.namespace,
                name=change.name,
                uid=change.uid,
                change=change.body,
                key=key,
                digest=digest,
            )
    except IntegrityError:
        if key is None:
            raise
        return AuditEntry.objects.get(user=actor.user, key=key), False
    return made, True


def _answer(entry: AuditEntry, outcome: str, status: int | None, message: str) -> None:
    entry.outcome, entry.status, entry.answered_at = outcome, status, timezone.now()
    entry.message = message.replace("\0", "")[:_LONGEST_MESSAGE]
    entry.save(update_fields=["outcome", "status", "message", "answered_at", "uid"])


def _repeat(entry: AuditEntry, digest: str) -> Done:
    if entry.digest != digest:
        sentence = "This Idempotency-Key belongs to another request. Send a new key."
        raise KeyReusedError("idempotency-key-reused", sentence)
    if entry.outcome == ACCEPTED:
        return Done(entry, is_replay=True)
    if entry.outcome == REFUSED:
        sentence = (
            f"The request with this Idempotency-Key was refused: {entry.message} Send a new key "
            "to try again."
        )
        raise KeyReusedError("conflict", sentence)
    sentence = (
        "The request with this Idempotency-Key has no answer yet, so the change may have happened. "
        "Read the job before you send it with a new key."
    )
    raise KeyReusedError("conflict", sentence)


def _digest_of(change: Change) -> str:
    what: Any = [change.method, change.namespace, change.name, change.uid, change.body]
    return hashlib.sha256(orjson.dumps(what, option=orjson.OPT_SORT_KEYS)).hexdigest()
