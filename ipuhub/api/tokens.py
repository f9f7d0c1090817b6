"""glue: API tokens: made once, shown once, stored as a digest, found again."""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from typing import TYPE_CHECKING

from django.db.models import Q

from ipuhub.models import ApiToken

if TYPE_CHECKING:
    from django.contrib.auth.models import User

PREFIX = "ipuhub_"  # lets secret scanners recognise a leaked token
_USED_EVERY = dt.timedelta(minutes=1)


def make_token(
    user: User, name: str, now: dt.datetime, expires_at: dt.datetime | None = None
) -> tuple[ApiToken, str]:
    """Store a new token of `user`; return it with its text, which nobody can read again."""
    text = PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        user=user, name=name, digest=_digest(text), created_at=now, expires_at=expires_at
    )
    return token, text


def curl_line(text: str, address: str) -> str:
    """Return how to try a token in a terminal; `address` is the dashboard's."""
    return f'curl -H "Authorization: Bearer {text}" {address.rstrip("/")}/api/v1/jobs'


def find_token(text: str, now: dt.datetime) -> ApiToken | None:
    """Return the live token of an active user with this text, and note (by the minute) its use."""
    living = Q(expires_at=None) | Q(expires_at__gt=now)
    token = (
        ApiToken.objects.select_related("user")
        .filter(living, digest=_digest(text), user__is_active=True)
        .first()
    )
    if token and (token.last_used_at is None or now - token.last_used_at >= _USED_EVERY):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
    return token


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
