"""glue: writes of the API that a client may repeat: `Idempotency-Key`, one mechanism for all.

The first request with a key is carried out and its answer kept; a repetition gets that answer. Keys
belong to a user and are forgotten after `KEPT`.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from django.core.exceptions import PermissionDenied
from django.core.exceptions import ValidationError as Refused
from django.db import DatabaseError, IntegrityError, transaction
from django.http import Http404
from django.utils import timezone
from rest_framework import serializers
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from ipuhub.api.files import read_yes
from ipuhub.models.idempotency import (
    KEPT,
    ClaimLostError,
    IdempotentRequest,
    current,
    forget_expired,
)
from ipuhub.web.audit import refusals_kept
from ipuhub.web.filters import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.contrib.auth.models import User
    from rest_framework.request import Request

_F = TypeVar("_F", bound="Callable[..., Response]")

LONGEST_KEY: Final = 255
HEADER: Final = "Idempotency-Key"
DRY_RUN: Final = "dry_run"
SECRETS: Final = frozenset({"token", "secret"})
"""The fields of answers that are shown once: declare each as `SecretField`."""
REPLAYED: Final = "Idempotent-Replayed"
PARAMETER: Final[dict[str, Any]] = {
    "in": "header",
    "name": HEADER,
    "schema": {"type": "string", "maxLength": LONGEST_KEY},
    "description": "A text of your choice, such as a UUID. A request that repeats the key within "
    f"{KEPT // dt.timedelta(hours=1)} hours changes nothing and gets the answer of the first "
    f"request, with the header `{REPLAYED}: true`; a secret in it is null then.",
}
_REFUSALS: Final = (APIException, Http404, PermissionDenied, Refused)
_TRIES: Final = 3
_RETRY_SECONDS: Final = 2


class SecretField(serializers.CharField):
    """A secret that only the first answer has; null in a repetition with the same key."""

    def __init__(self) -> None:
        super().__init__(
            read_only=True, allow_null=True, help_text="Shown once; null: a repetition."
        )


class KeyProblem(APIException):
    """The key belongs to another request, or to a request whose answer is not known."""

    def __init__(self, kind: str, status: int, sentence: str, wait: int | None = None) -> None:
        super().__init__(sentence)
        self.default_code, self.status_code, self.wait = kind, status, wait


class OutcomeUnknown(APIException):
    """Base of the problems of a request whose change may have happened."""


def idempotent(*, sends: bool = False, has_dry_run: bool = False) -> Callable[[_F], _F]:
    """Return a decorator of a view's writing method: a request with a key is carried out once.

    The change and the answer are one transaction, so that every failure frees the key. A method
    that `sends` something to others than PostgreSQL claims the key before, and has to call
    `note_sending`; from then on only a refusal frees the key. A dry run takes no key; methods
    without one refuse the parameter. Any other parameter is refused, so that no dry run that is
    spelt in another way is carried out. The stored answer has null for each field of `SECRETS`.
    """

    def decorate(method: _F) -> _F:
        @functools.wraps(method)
        def once(view: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
            refuse_unknown(dict(request.query_params.lists()), {DRY_RUN})
            is_dry = read_yes(request, DRY_RUN)
            if is_dry and not has_dry_run:
                raise ValidationError({DRY_RUN: ["This operation has no dry run."]})
            call = functools.partial(method, view, request, *args, **kwargs)
            key = _key_of(request)
            if key is None or is_dry:
                return call()
            forget_expired(timezone.now())
            return (_send_once if sends else _store_once)(request, key, call)

        once.is_idempotent = True  # type: ignore[attr-defined]
        return cast("_F", once)

    return decorate


def _store_once(request: Request, key: str, call: Callable[[], Response]) -> Response:
    """Change PostgreSQL and keep the answer in one transaction; a repetition waits for its end."""
    with refusals_kept(), transaction.atomic():
        stored, is_new = _claim(request, key)
        return _keep(stored, call()) if is_new else _replay(stored)


def _send_once(request: Request, key: str, call: Callable[[], Response]) -> Response:
    """Claim the key, then change what is not in PostgreSQL."""
    stored, is_new = _claim(request, key)
    if not is_new and not stored.take_over(timezone.now()):
        return _replay(stored)
    try:
        with current(stored):
            answer = call()
    except ClaimLostError as error:
        raise _in_progress() from error
    except BaseException as error:
        is_refused = isinstance(error, _REFUSALS) and not isinstance(error, OutcomeUnknown)
        with suppress(DatabaseError):  # the key stays, and is taken over if nothing was sent
            stored.give_up(is_refused=is_refused)
        raise
    return _keep(stored, answer)


def is_idempotent(view: object, method: str) -> bool:
    """Return whether this method of a view takes a key."""
    return getattr(getattr(view, method.lower(), None), "is_idempotent", False)


def _key_of(request: Request) -> str | None:
    """Return the key, or None without a key. Raise ValidationError."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not 0 < len(key) <= LONGEST_KEY or not key.isprintable() or not key.isascii():
        sentence = f"must be 1 to {LONGEST_KEY} printable ASCII characters."
        raise ValidationError({HEADER: [sentence]})
    return key


def _claim(request: Request, key: str) -> tuple[IdempotentRequest, bool]:
    """Return the new row of the key, or the row that has it, and False. Raise KeyProblem."""
    digest, user = _digest_of(request), cast("User", request.user)
    for _ in range(_TRIES):
        try:
            stored, is_new = IdempotentRequest.objects.get_or_create(
                owner=user.get_username(),
                key=key,
                defaults={"user": user, "digest": digest, "at": timezone.now()},
            )
        except IntegrityError:  # another request had the key, and has freed it since
            continue
        if stored.digest != digest:
            sentence = f"This {HEADER} belongs to another request. Send a new key."
            raise KeyProblem("idempotency-key-reused", 422, sentence)
        return stored, is_new
    raise _in_progress()


def _keep(stored: IdempotentRequest, answer: Response) -> Response:
    kept = answer.data
    if isinstance(kept, dict):  # what is shown once is stored nowhere
        kept = {name: None if name in SECRETS else value for name, value in kept.items()}
    body = "" if kept is None else JSONRenderer().render(kept).decode()
    stored.keep(answer.status_code, body, answer.headers.get("Location", ""))
    return answer


def _replay(stored: IdempotentRequest) -> Response:
    """Return the answer of the first request. Raise KeyProblem."""
    if stored.is_running(timezone.now()):
        raise _in_progress()
    if stored.status is None:
        sentence = (
            f"The request with this {HEADER} got no answer, so the change may have happened. "
            "Read what it changes before you send it with a new key."
        )
        raise KeyProblem("outcome-unknown", 409, sentence)
    headers = {REPLAYED: "true"} | ({"Location": stored.location} if stored.location else {})
    body = json.loads(stored.body) if stored.body else None
    return Response(body, status=stored.status, headers=headers)


def _in_progress() -> KeyProblem:
    sentence = f"The request with this {HEADER} is in progress. Repeat it in {_RETRY_SECONDS} s."
    return KeyProblem("request-in-progress", 409, sentence, _RETRY_SECONDS)


def _digest_of(request: Request) -> str:
    what = [request.method, request.get_full_path(), request.data]
    # Not orjson, which has no integers beyond 64 bits; JSON may have them.
    text = json.dumps(what, default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
