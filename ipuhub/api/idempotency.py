"""glue: writes of the API that a client may repeat: `Idempotency-Key`, one mechanism for all.

The first request with a key is carried out and its answer kept; a repetition gets that answer. Keys
belong to a user and are forgotten after `KEPT`.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from django.core.exceptions import PermissionDenied
from django.core.exceptions import ValidationError as Refused
from django.http import Http404
from django.utils import timezone
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from ipuhub.api.files import read_yes
from ipuhub.models import IdempotentRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from rest_framework.request import Request

_F = TypeVar("_F", bound="Callable[..., Response]")

KEPT: Final = dt.timedelta(hours=24)
"""How long a key is known: long enough for every retry of a client, as with Stripe's API."""
LONGEST_KEY: Final = 255
HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotent-Replayed"
PARAMETER: Final[dict[str, Any]] = {
    "in": "header",
    "name": HEADER,
    "schema": {"type": "string", "maxLength": LONGEST_KEY},
    "description": "A text of your choice, such as a UUID. A request that repeats the key within "
    f"{KEPT // dt.timedelta(hours=1)} hours changes nothing and gets the answer of the first one, "
    f"with the header `{REPLAYED}: true`.",
}
_NO_EFFECT: Final = (APIException, Http404, PermissionDenied, Refused)


class KeyProblem(APIException):
    """The key belongs to another request, or to one that has no answer yet."""

    def __init__(self, kind: str, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.default_code, self.status_code = kind, status


def idempotent(method: _F) -> _F:
    """Return a view's writing method that carries out a request with a key only once.

    A refusal frees the key, because nothing happened: the client corrects the request and sends it
    again. An error that does not say so keeps it; so does an exception with `may_have_happened`. A
    dry run changes nothing and takes no key.
    """

    @functools.wraps(method)
    def once(view: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
        key = _key_of(request)
        if key is None or read_yes(request, "dry_run"):
            return method(view, request, *args, **kwargs)
        kept, is_new = _claim(request, key)
        if not is_new:
            return _replay(kept, _digest_of(request))
        try:
            answer = method(view, request, *args, **kwargs)
        except _NO_EFFECT as error:
            if not getattr(error, "may_have_happened", False):
                kept.delete()
            raise
        kept.status, kept.location = answer.status_code, answer.headers.get("Location", "")
        if answer.data is not None:
            kept.body = JSONRenderer().render(answer.data).decode()
        kept.save()
        return answer

    once.is_idempotent = True  # type: ignore[attr-defined]
    return cast("_F", once)


def is_idempotent(view: object, method: str) -> bool:
    """Return whether this method of a view takes a key."""
    return getattr(getattr(view, method.lower(), None), "is_idempotent", False)


def _key_of(request: Request) -> str | None:
    """Return the key, or None without one. Raise ValidationError."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not 0 < len(key) <= LONGEST_KEY or not key.isprintable() or not key.isascii():
        sentence = f"must be 1 to {LONGEST_KEY} printable ASCII characters."
        raise ValidationError({HEADER: [sentence]})
    return key


def _claim(request: Request, key: str) -> tuple[IdempotentRequest, bool]:
    """Commit the key, or return the row that has it, and False."""
    now = timezone.now()
    IdempotentRequest.objects.filter(at__lte=now - KEPT).delete()
    return IdempotentRequest.objects.get_or_create(
        owner=request.user.get_username(),
        key=key,
        defaults={"digest": _digest_of(request), "at": now},
    )


def _replay(kept: IdempotentRequest, digest: str) -> Response:
    """Return the answer of the first request. Raise KeyProblem."""
    if kept.digest != digest:
        sentence = f"This {HEADER} belongs to another request. Send a new key."
        raise KeyProblem("idempotency-key-reused", 422, sentence)
    if kept.status is None:
        sentence = (
            f"The request with this {HEADER} has no answer yet, so the change may have happened. "
            "Read what it changes before you send it with a new key."
        )
        raise KeyProblem("conflict", 409, sentence)
    headers = {REPLAYED: "true"} | ({"Location": kept.location} if kept.location else {})
    body = json.loads(kept.body) if kept.body else None
    return Response(body, status=kept.status, headers=headers)


def _digest_of(request: Request) -> str:
    what = [request.method, request.get_full_path(), request.data]
    # Not orjson, which has no integers beyond 64 bits; JSON may have them.
    text = json.dumps(what, default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
