"""glue: the audit: one function records who changed what, from where, how, and the outcome.

`audited` is for changes of rows: the entry and the change are one transaction. A change of
something outside PostgreSQL is recorded as `sent` before it is sent; `answer` adds the outcome.
"""

from __future__ import annotations

import getpass
import os
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, cast

from django.conf import settings
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.utils import timezone

from ipuhub.models import ApiToken, AuditEntry
from ipuhub.web.requests import client_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from django.contrib.auth.models import User
    from django.http import HttpRequest
    from rest_framework.request import Request

    Field = tuple[str, object, object]

SENT, ACCEPTED, REFUSED, UNKNOWN, FAILED = "sent", "accepted", "refused", "unknown", "failed"
OUTCOMES: Final = {
    ACCEPTED: "accepted",
    REFUSED: "refused",
    UNKNOWN: "no answer: the change may have happened",
    SENT: "in progress, or the dashboard ended before the answer",
    FAILED: "the run of reports failed",
}
JOB, RATE, REPORT, SUBSCRIPTION, TOKEN, ROLE, USER = (
    "job",
    "rate",
    "report",
    "subscription",
    "token",
    "role",
    "user",
)
SIGN_IN: Final = "sign-in"
KINDS: Final = (JOB, RATE, REPORT, SUBSCRIPTION, TOKEN, ROLE, USER)
_LONGEST_MESSAGE: Final = 4000
_LONGEST_VALUE: Final = 500


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a change: their name, the way (`page`, `session` of the API, `token NAME`,
    `command NAME` or `sign-in`), their address, and the user if they are one."""

    name: str
    via: str
    address: str = ""
    user: User | None = None


@dataclass(slots=True)
class AuditEvent:
    """A change to record. `fields`: name, value before and value after of each changed field, never
    a secret. `uid`: of the job, or the number of the run of a report. `is_change`: false where it
    was made already, for example by another request at the same moment."""

    kind: str
    action: str
    name: str
    namespace: str = ""
    uid: str = ""
    fields: Iterable[Field] = field(default_factory=tuple)
    more: Mapping[str, Any] = field(default_factory=dict)
    is_change: bool = True


_refusals: Final[ContextVar[list[tuple[Author, AuditEvent, str]] | None]] = ContextVar(
    "refusals", default=None
)


@dataclass(slots=True)
class Count:
    """The number of entries that were made."""

    entries: int = 0


_counted: Final[ContextVar[Count | None]] = ContextVar("counted", default=None)


@contextmanager
def entries_counted() -> Iterator[Count]:
    """Count the entries that are made within."""
    count = Count()
    token = _counted.set(count)
    try:
        yield count
    finally:
        _counted.reset(token)


def author_of(request: HttpRequest | Request) -> Author:
    """Return the author of what a request of a page or of the API changes."""
    via = "page"
    if hasattr(request, "auth"):  # a request of the API
        token = request.auth
        via = f"token {token.name}" if isinstance(token, ApiToken) else "session"
    plain = cast("HttpRequest", getattr(request, "_request", request))
    user = cast("User", request.user)
    return Author(user.get_username(), via, address_of(plain), user)


def author_with(token: ApiToken, request: HttpRequest) -> Author:
    """Return the author of what a token asks for, also where the API takes no user from it."""
    name = token.user.get_username()
    return Author(name, f"token {token.name}", address_of(request), token.user)


def address_of(request: HttpRequest) -> str:
    """Return the address that entries have of a request; empty: it is unknown."""
    return str(client_address(request, settings.TRUSTED_PROXIES) or "")


def author_of_command(command: str, name: str = "") -> Author:
    """Return the author of what a command changes: `name`, or else the system's user."""
    return Author(name or _system_user(), f"command {command}")


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user often has a number only
        return f"uid {os.getuid()}"


def record(
    author: Author, event: AuditEvent, outcome: str = ACCEPTED, message: str = ""
) -> AuditEntry:
    """Record a change. This is the one place that makes entries."""
    now = timezone.now()
    if (counted := _counted.get()) is not None:
        counted.entries += 1
    return AuditEntry.objects.create(
        at=now,
        answered_at=None if outcome == SENT else now,
        user=author.user,
        user_name=author.name,
        via=author.via,
        address=author.address,
        kind=event.kind,
        action=event.action,
        name=event.name,
        namespace=event.namespace,
        uid=event.uid,
        changes=written_fields(event.fields),
        outcome=outcome,
        message=_message(message),
        **{"kubernetes_user": "", "change": {}} | dict(event.more),
    )


def answer(entry: AuditEntry, outcome: str, message: str = "", status: int | None = None) -> None:
    """Add the answer to an entry that was recorded as sent."""
    entry.outcome, entry.status, entry.answered_at = outcome, status, timezone.now()
    entry.message = _message(message)
    entry.save(update_fields=["outcome", "status", "message", "answered_at", "uid"])


@contextmanager
def audited(author: Author, event: AuditEvent) -> Iterator[AuditEvent]:
    """Make a change and its entry in one transaction; the body may complete the event, and decides
    by the row that it locks or changes whether it is a change. A refusal (ValidationError,
    PermissionDenied) is recorded with its reason, and raised."""
    try:
        with transaction.atomic():
            yield event
            if event.is_change:
                record(author, event)
    except (ValidationError, PermissionDenied) as error:
        sentences = error.messages if isinstance(error, ValidationError) else [str(error)]
        record_refusal(author, event, " ".join(sentences))
        raise


def record_refusal(author: Author, event: AuditEvent, reason: str) -> None:
    """Record a change that was refused; within `refusals_kept` at its end."""
    held = _refusals.get()
    if held is None:
        record(author, event, REFUSED, reason)
    else:
        held.append((author, event, reason))


@contextmanager
def refusals_kept() -> Iterator[None]:
    """Record what is refused within, at the end: a transaction in it takes its entries back."""
    held: list[tuple[Author, AuditEvent, str]] = []
    token = _refusals.set(held)
    try:
        yield
    finally:
        _refusals.reset(token)
        for author, event, reason in held:
            record(author, event, REFUSED, reason)


def differences(before: Mapping[str, object], after: Mapping[str, object]) -> list[Field]:
    """Return the fields that differ; a field that is missing, or empty, has no value."""
    return [
        (name, before.get(name), after.get(name))
        for name in {**before, **after}
        if (before.get(name) or None) != (after.get(name) or None)
    ]


def written_fields(fields: Iterable[Field]) -> list[dict[str, str | None]]:
    """Return changed fields as entries hold them: texts, null for no value."""
    return [
        {"field": name, "before": _text(before), "after": _text(after)}
        for name, before, after in fields
    ]


def spell_fields(changes: Iterable[Mapping[str, str | None]], arrow: str) -> str:
    """Return changed fields in one line: `price: 1.00 -> 1.25; valid_until: none -> 2026-12-01`."""
    return "; ".join(f"{each['field']}: {_spell(each, arrow)}" for each in changes)


def _spell(change: Mapping[str, str | None], arrow: str) -> str:
    return f"{change['before'] or 'none'} {arrow} {change['after'] or 'none'}"


def _text(value: object) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f"{value.normalize():f}" if isinstance(value, Decimal) else str(value)
    return text.replace("\0", "")[:_LONGEST_VALUE]


def _message(text: str) -> str:
    return text.replace("\0", "")[:_LONGEST_MESSAGE]
