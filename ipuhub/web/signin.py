"""glue: the sign-in page, and the limit on attempts with a password.

An attempt is counted in PostgreSQL before its password is checked, so neither concurrent attempts
nor several web processes allow more attempts than the limit.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog
from django.conf import settings
from django.contrib.auth.views import LoginView
from django.db import connection, transaction
from django.utils import timezone

from ipuhub.models import SignInAttempts
from ipuhub.web.requests import client_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.forms import BaseForm
    from django.http import HttpRequest, HttpResponse

_LOG = structlog.get_logger(__name__)
_FIRST_WAIT_SECONDS: Final = 30
_MORE: Final = 10
"""Multiple of the limit (one user at one address) for an address, or a user, in total."""
_COUNT: Final = """
INSERT INTO ipuhub_signinattempts AS known (key, failures, changed_at) VALUES (%s, 1, %s)
ON CONFLICT (key) DO UPDATE SET changed_at = excluded.changed_at,
    failures = CASE WHEN known.changed_at < %s THEN 1 ELSE known.failures + 1 END
WHERE known.blocked_until IS NULL OR known.blocked_until <= excluded.changed_at
RETURNING failures
"""


class Counter(NamedTuple):
    """A counter of failures and its limit."""

    key: str
    limit: int


class Blocked(Exception):  # noqa: N818  # an answer, not an error
    """Too many attempts; further attempts are rejected for `seconds`."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def counters(username: str, address: str, limit: int) -> list[Counter]:
    """Return the counters of an attempt: user at this address, address, user.

    Without an address (behind a proxy that IPUHUB_TRUSTED_PROXIES does not name) only the user
    counts, because all clients would share one address.
    """
    name = username.casefold()
    if not address:
        return [Counter(_key("user", name), limit)]
    return sorted(  # in one order for all: two attempts never wait for each other
        [
            Counter(_key("user and address", name, address), limit),
            Counter(_key("address", address), _MORE * limit),
            Counter(_key("user", name), _MORE * limit),
        ]
    )


def count_attempt(counted: Sequence[Counter], now: dt.datetime, lockout: dt.timedelta) -> None:
    """Count an attempt before its password is checked. Raise Blocked if the limit is reached."""
    SignInAttempts.objects.filter(changed_at__lt=now - max(lockout, dt.timedelta(days=1))).delete()
    with transaction.atomic(), connection.cursor() as cursor:
        for each in counted:
            cursor.execute(_COUNT, [each.key, now, now - lockout])
            row = cursor.fetchone()
            if row is None:
                raise Blocked(_seconds_left(each.key, now))
            if row[0] >= each.limit:
                wait = min(lockout, _wait(row[0] - each.limit))
                SignInAttempts.objects.filter(key=each.key).update(blocked_until=now + wait)


def forget_attempts(counted: Sequence[Counter]) -> None:
    """Reset the counters after a successful sign-in."""
    SignInAttempts.objects.filter(key__in=[each.key for each in counted]).delete()


def _wait(beyond: int) -> dt.timedelta:
    return dt.timedelta(seconds=_FIRST_WAIT_SECONDS * 2 ** min(beyond, 20))


def _seconds_left(key: str, now: dt.datetime) -> int:
    until = SignInAttempts.objects.values_list("blocked_until", flat=True).get(key=key)
    return max(1, math.ceil((until - now).total_seconds())) if until else 1


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _address(request: HttpRequest) -> str:
    if request.headers.get("X-Forwarded-For") and not settings.TRUSTED_PROXIES:
        return ""
    return str(client_address(request, settings.TRUSTED_PROXIES) or "")


class LimitedAttempts:
    """Rejects a view's attempts with a password for a while after too many failures; to put before
    a form view of Django."""

    request: HttpRequest
    counted: Sequence[Counter] = ()
    refusal = "Too many attempts to sign in."

    def username(self) -> str:
        """Return the user whose password is tried."""
        return self.request.POST.get("username", "")[:1000]

    def empty_form(self) -> BaseForm:
        """Return the form of a refusal, which checks no password."""
        view: Any = self
        form: BaseForm = view.get_form_class()()
        return form

    def post(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        """Count the attempt before its password is checked."""
        username, address = self.username(), _address(request)
        self.counted = counters(username, address, settings.LOGIN_FAILURES)
        lockout = dt.timedelta(seconds=settings.LOGIN_LOCKOUT_SECONDS)
        try:
            count_attempt(self.counted, timezone.now(), lockout)
        except Blocked as blocked:
            _LOG.warning("rejected a sign-in attempt", user=username[:100], address=address)
            return self._refuse(blocked.seconds)
        answer: HttpResponse = super().post(request, *args, **kwargs)  # type: ignore[misc]
        return answer

    def form_valid(self, form: Any) -> HttpResponse:
        """Forget earlier failures: the password was right."""
        forget_attempts(self.counted)
        answer: HttpResponse = super().form_valid(form)  # type: ignore[misc]
        return answer

    def _refuse(self, seconds: int) -> HttpResponse:
        wait = f"{seconds} s" if seconds < 120 else f"{math.ceil(seconds / 60)} minutes"
        sentence = f"{self.refusal} Try again in {wait}."
        view: Any = self
        context = view.get_context_data(form=self.empty_form(), refused=sentence)
        answer: HttpResponse = view.render_to_response(context, status=429)
        answer["Retry-After"] = str(seconds)
        return answer


class SignInPage(LimitedAttempts, LoginView):
    """Sign-in page with user name and password."""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Name the provider of single sign-on, if any."""
        name = settings.OIDC_NAME if settings.OIDC_ISSUER else ""
        return super().get_context_data(oidc_name=name, **kwargs)
