"""glue: API writes with an Idempotency-Key, and the progress of each."""

from __future__ import annotations

import datetime as dt
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, ClassVar, Final

from django.conf import settings
from django.db import models

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.models import QuerySet

KEPT: Final = dt.timedelta(hours=24)
"""Lifetime of a key: long enough for every retry of a client, as in Stripe's API."""
LONGEST: Final = dt.timedelta(minutes=2)
"""Longer than a request takes: after that its process has ended, or has lost PostgreSQL."""
CLAIMED, SENDING, UNKNOWN, ANSWERED = "claimed", "sending", "unknown", "answered"


class ClaimLostError(Exception):
    """A repetition of the request took the key over. Nothing was sent."""


class IdempotentRequest(models.Model):
    """A write of the API with a key, and its answer, for as long as the key is known.

    A write to PostgreSQL alone commits the row with the change, so others see it `answered` or not
    at all. A write that sends something elsewhere commits it before it begins: `claimed` while
    nothing was sent, `sending` from then on, and `unknown` if it failed without saying whether the
    change happened. The answer is `status`, `body` (JSON, empty: none) and `location`. `digest` is
    of the request's method, address and body; `owner` is the name of `user`, which rows of releases
    without states do not have; `at` also distinguishes claims of the key.
    """

    owner = models.TextField()
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", null=True
    )
    key = models.TextField()
    digest = models.TextField()
    at = models.DateTimeField(db_index=True)
    state = models.TextField(default=CLAIMED, db_default=SENDING)
    status = models.IntegerField(null=True)
    body = models.TextField(default="")
    location = models.TextField(default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "key"], name="idempotency_key_once")
        ]

    def __str__(self) -> str:
        return f"{self.owner}: {self.key}"

    def keep(self, status: int, body: str, location: str) -> None:
        """Store the answer."""
        self._own().update(state=ANSWERED, status=status, body=body, location=location)

    def give_up(self, *, is_refused: bool) -> None:
        """Free the key if nothing happened: the request was refused, or had sent nothing."""
        own = self._own()
        (own if is_refused else own.filter(state=CLAIMED)).delete()
        own.filter(state=SENDING).update(state=UNKNOWN)

    def take_over(self, now: dt.datetime) -> bool:
        """Claim the key of a request that ended without having sent anything."""
        if self.state != CLAIMED or self.is_running(now):
            return False
        taken = self._own().filter(state=CLAIMED).update(at=now)
        self.at = now
        return bool(taken)

    def is_running(self, now: dt.datetime) -> bool:
        """Return whether the request may still be under way."""
        is_open = self.status is None and self.state in {CLAIMED, SENDING}
        return is_open and now - self.at < LONGEST

    def note_sending(self) -> None:
        """Say that something is sent from now on. Raise ClaimLostError if it must not be."""
        if not self._own().filter(state=CLAIMED).update(state=SENDING):
            raise ClaimLostError

    def _own(self) -> QuerySet[IdempotentRequest]:
        """Return this row, unless another request has claimed it since."""
        return IdempotentRequest.objects.filter(pk=self.pk, at=self.at)


_CURRENT: ContextVar[IdempotentRequest | None] = ContextVar("idempotent request", default=None)


@contextmanager
def current(request: IdempotentRequest) -> Iterator[None]:
    """Let `note_sending` of this thread mean `request`."""
    token = _CURRENT.set(request)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def note_sending() -> None:
    """Say that the request, if it has a key, sends something elsewhere from now on.

    Until then every failure of it frees the key. Call it in the transaction that records what is
    about to be sent. Raise ClaimLostError if it must not be sent.
    """
    if (request := _CURRENT.get()) is not None:
        request.note_sending()


def forget_expired(now: dt.datetime) -> int:
    """Delete the requests whose keys are no longer known; return how many."""
    return IdempotentRequest.objects.filter(at__lte=now - KEPT).delete()[0]
