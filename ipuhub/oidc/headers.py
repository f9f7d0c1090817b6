"""glue: header mode: a proxy in front authenticates users and names them in a header.

Only direct connections from IPUHUB_AUTH_HEADER_PROXIES are trusted; the header of other clients is
ignored and counted. There is no session: a user is signed in as long as the proxy names them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import structlog
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import MiddlewareNotUsed

from ipuhub.api.problems import problem_answer
from ipuhub.models import ExternalIdentity
from ipuhub.oidc.accounts import SignIn, find_or_make_user
from ipuhub.oidc.tokens import Refused
from ipuhub.oidc.views import refuse, roles, sign_ins
from ipuhub.web.audit import address_of
from ipuhub.web.requests import client_address, is_within

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.contrib.auth.models import User
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

_LOG = structlog.get_logger(__name__)
ISSUER: Final = "header:"
_MOST_REMEMBERED: Final = 1000


class HeaderSignIn:
    """Middleware: the user of a request is the user that the trusted proxy names."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        if not settings.AUTH_HEADER_USER:
            raise MiddlewareNotUsed
        self._get_response = get_response
        self._lock = threading.Lock()
        self._known: dict[str, tuple[frozenset[str], int]] = {}

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        try:
            user = self._user_of(request)
        except Refused as refused:
            if request.path.startswith("/api/"):
                sign_ins.labels(refused.reason).inc()
                return problem_answer(refused.status, refused.sentence)
            return refuse(request, refused)
        if user is not None:
            request.user = user
            request.META["ipuhub.signed_in_by_header"] = True
        return self._get_response(request)

    def _user_of(self, request: HttpRequest) -> User | None:
        name = _taken_out(request, settings.AUTH_HEADER_USER)
        listed = _taken_out(request, settings.AUTH_HEADER_GROUPS)
        if not name:
            return None
        peer = client_address(request, ())
        if peer is None or not is_within(peer, settings.AUTH_HEADER_PROXIES):
            sign_ins.labels("untrusted").inc()
            _LOG.warning("ignored the header of a sign-in", address=str(peer))
            return None
        groups = frozenset(each.strip() for each in listed.split(",") if each.strip())
        with self._lock:
            known = self._known.get(name)
        if known is not None and known[0] == groups:
            user = _user_with(known[1], name, groups)
            if user is not None:
                return user
        given = SignIn(ISSUER, name, name, groups, address_of(request))
        user = find_or_make_user(given, roles()).user
        sign_ins.labels("ok").inc()
        with self._lock:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            self._known[name] = (groups, user.pk)
        return user


def _user_with(key: int, name: str, groups: frozenset[str]) -> User | None:
    """Return the user if they are active and were signed in with these groups last.

    Another process may have seen them in other groups since, and set other roles.
    """
    signed_in = ExternalIdentity.objects.filter(issuer=ISSUER, subject=name, groups=sorted(groups))
    users = get_user_model().objects.filter(pk=key, is_active=True)
    return users.filter(external_identities__in=signed_in).first()


def _taken_out(request: HttpRequest, header: str) -> str:
    """Return the text of a header, which nothing after this reads."""
    key = f"HTTP_{header.upper().replace('-', '_')}"
    text = str(request.META.pop(key, "")) if header else ""
    try:
        return text.encode("latin-1").decode("utf-8").strip()
    except UnicodeError:
        sentence = "The proxy in front names you with characters that are not UTF-8."
        raise Refused("name", sentence, repr(text)[:100]) from None
