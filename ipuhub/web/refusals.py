"""glue: changes that were refused before the service was reached that would have recorded them: for
a mistake in a form or body, a missing right, or a token without the scope.

`WRITES` says what each address changes; each part registers its own. A refusal of one of them is
recorded, unless the request has an entry already.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from django.contrib.auth import get_user_model
from django.core.exceptions import NON_FIELD_ERRORS
from rest_framework.exceptions import APIException

from ipuhub.models import ApiToken
from ipuhub.web.audit import (
    JOB,
    USER,
    AuditEvent,
    author_of,
    author_with,
    entries_counted,
    record_refusal,
)
from ipuhub.web.requests import BEARER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from django.forms import BaseForm
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from ipuhub.web.audit import Author

    Values = Mapping[str, Any]

_REFUSED: Final = frozenset({400, 403})
_LONGEST_NAME: Final = 253
_EVENT, _REASON = "_ipuhub_refused_event", "_ipuhub_refused_reason"


class Write(NamedTuple):
    """The change that an address makes: the kind, the action (by the values of the request where it
    depends on them), and the value that names the object. `only`: a value without which it changes
    nothing."""

    kind: str
    action: str | Callable[[Values], str]
    name: str = ""
    only: tuple[str, str] | None = None


WRITES: Final[dict[str, Write]] = {}
"""By the name of the URL."""


def register_writes(writes: Mapping[str, Write]) -> None:
    """Take in what the URLs of a part change, by name; the module with the URLs calls this."""
    WRITES.update(writes)


def note_event(request: HttpRequest, event: AuditEvent) -> None:
    """Note what a request is about to change, in case it is refused: by more than its address."""
    setattr(request, _EVENT, event)


def note_refusal(request: HttpRequest, reason: str) -> None:
    """Note that a request is refused, and why."""
    setattr(request, _REASON, reason)


def note_mistakes(request: HttpRequest, form: BaseForm) -> None:
    """Note the mistakes of a form, if it has any."""
    sentences = [
        str(text) if name == NON_FIELD_ERRORS else f"{name}: {text}"
        for name, texts in form.errors.items()
        for text in texts
    ]
    if sentences:
        note_refusal(request, " ".join(sentences))


def answer_recorded(
    request: HttpRequest, answer_request: Callable[[HttpRequest], HttpResponseBase]
) -> HttpResponseBase:
    """Answer a change, and record its refusal if it has no entry in the audit yet."""
    with entries_counted() as count:
        answer = answer_request(request)
    reason = getattr(request, _REASON, None)
    is_refused = reason is not None or answer.status_code in _REFUSED
    if is_refused and not count.entries and (author := _author_of(request)):
        values = _values_of(request, answer)
        if event := getattr(request, _EVENT, None) or _event_of(request, author, values):
            record_refusal(author, event, reason or _reason_of(answer))
    return answer


def _author_of(request: HttpRequest) -> Author | None:
    """Return the author; also of a token that may not do it."""
    token = getattr(request, BEARER, None)
    if isinstance(token, ApiToken):
        return author_with(token, request)
    return author_of(request) if isinstance(request.user, get_user_model()) else None


def _values_of(request: HttpRequest, answer: HttpResponseBase) -> dict[str, Any]:
    """Return what the request names: in its address, its form and its body."""
    match = request.resolver_match
    found = {**request.POST.dict(), **(match.kwargs if match else {})}
    of_api = getattr(answer, "renderer_context", {}).get("request")
    if of_api is not None:
        with suppress(APIException):  # the body is what was refused
            body = of_api.data
            found = {**(body if isinstance(body, dict) else {}), **found}
    return {**found, "method": request.method}


def _event_of(request: HttpRequest, author: Author, values: Values) -> AuditEvent | None:
    """Return what the address changes; None: nothing, or nothing with these values."""
    match = request.resolver_match
    write = WRITES.get(match.view_name) if match else None
    if write is None or request.GET.get("dry_run", "false") != "false":
        return None
    if write.only and values.get(write.only[0]) != write.only[1]:
        return None
    action = write.action if isinstance(write.action, str) else write.action(values)
    if write.kind == JOB:
        metadata = values.get("metadata")
        named = metadata if isinstance(metadata, dict) else {}
        name, namespace = _text(named.get("name")), _text(named.get("namespace"))
        return AuditEvent(JOB, action, name, namespace, _text(values.get("uid")))
    name = author.name if write.kind == USER else _text(values.get(write.name))
    return AuditEvent(write.kind, action, name, _text(values.get("namespace")))


def _text(value: object) -> str:
    if value is None or isinstance(value, dict | list):
        return ""
    return str(value).replace("\0", "")[:_LONGEST_NAME]


def _reason_of(answer: HttpResponseBase) -> str:
    """Return the sentence of a problem document."""
    data = getattr(answer, "data", None)
    if data is None and answer.get("Content-Type", "").startswith("application/problem+json"):
        data = json.loads(cast("Any", answer).content)
    return str(data.get("detail", "")) if isinstance(data, dict) else ""
