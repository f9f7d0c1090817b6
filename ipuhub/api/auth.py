"""glue: authentication of the API: tools send `Authorization: Bearer <token>`, browsers a session.

API tokens are shown once, when they are created; only their digest is stored.

Permissions decide who may call an endpoint; `ipuhub.web.access` decides which rows are visible.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db.models import Q
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, AuthenticationFailed, PermissionDenied
from rest_framework.permissions import SAFE_METHODS, BasePermission

from ipuhub.api.scopes import DEFAULT, READ, REPORTS, WRITE, read_scopes
from ipuhub.models import ApiToken
from ipuhub.web.access import ACCOUNTANTS_ONLY, ADMINS_ONLY, is_accountant, is_admin
from ipuhub.web.clusterusers import ClusterAway, find_account
from ipuhub.web.requests import BEARER

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http import HttpRequest
    from rest_framework.request import Request
    from rest_framework.views import APIView

    from ipuhub.web.clusterusers import ServiceAccount

PREFIX = "ipuhub_"  # lets secret scanners recognise a leaked token
_USED_EVERY = dt.timedelta(minutes=1)


def make_token(
    user: User,
    name: str,
    now: dt.datetime,
    expires_at: dt.datetime | None = None,
    scopes: str = DEFAULT,
) -> tuple[ApiToken, str]:
    """Store a new token of `user`; return it with its text, which is not stored."""
    text = PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        user=user,
        name=name,
        digest=_digest(text),
        created_at=now,
        expires_at=expires_at,
        scopes=scopes,
    )
    return token, text


def curl_line(text: str, address: str) -> str:
    """Return a curl command that uses the token; `address` is the dashboard's URL."""
    return f'curl -H "Authorization: Bearer {text}" {address.rstrip("/")}/api/v1/jobs'


def find_token(text: str, now: dt.datetime) -> ApiToken | None:
    """Return the valid token of an active user with this text, and record its use (by the
    minute)."""
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


_WRONG_ACCOUNT: Final = (
    "This is neither an API token nor a valid token of a ServiceAccount for the audience of "
    "IPUHUB_API_AUDIENCE (kubectl create token NAME --audience ipuhub-api)."
)
_READS_ONLY: Final = "ServiceAccounts only read. Use the API token of a user for changes."
_WRONG = "The API token is invalid, revoked or expired. Create a token under Account, API tokens."


def bearer_token(request: HttpRequest | Request) -> str | None:
    """Return the request's bearer token, or None."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


class ClusterUnavailable(APIException):
    """Kubernetes does not say whose a token is."""

    status_code = 503
    default_code = "cluster-unavailable"
    default_detail = "Kubernetes does not answer, so this token cannot be checked. Try again later."


class MissingScope(PermissionDenied):
    """The user may, but the token may not."""

    default_code = "missing-scope"

    def __init__(self, scope: str, held: str) -> None:
        super().__init__(
            f"This token does not have the scope {scope!r} (it has: {held or 'none'}). Create a "
            "token with this scope under Account, API tokens."
        )
        self.scope = scope


def require_scope(token: ApiToken, scope: str) -> None:
    """Raise MissingScope if the token does not have this scope (empty: none is needed)."""
    if scope and scope not in read_scopes(token.scopes):
        raise MissingScope(scope, token.scopes)


def scope_for(view: APIView, method: str) -> str:
    """Return the scope that a token needs for this method of a view.

    A view may set `token_scope`, or `write_scope` for what changes something. Otherwise views for
    accountants need `reports`, and each method that changes something needs `write`, so a new view
    is never open by omission.
    """
    declared: str | None = getattr(view, "token_scope", None)
    if declared is not None:
        return declared
    if IsAccountant in view.permission_classes:
        return REPORTS
    return READ if method in SAFE_METHODS else getattr(view, "write_scope", WRITE)


def _needed_scope(request: Request) -> str:
    view = (request.parser_context or {}).get("view")
    return scope_for(view, str(request.method)) if view is not None else READ


class BearerAuthentication(BaseAuthentication):
    """Authenticate a request as the owner of its API token."""

    def authenticate(self, request: Request) -> tuple[Any, ApiToken | None] | None:
        """Return the owner and the token, or None without a token. Raise AuthenticationFailed if
        invalid."""
        text = bearer_token(request)
        if text is None:
            return None
        if settings.API_SERVICE_ACCOUNTS and not text.startswith(PREFIX):
            return _account_of(text, request), None
        token = find_token(text, timezone.now())
        if token is None:
            raise AuthenticationFailed(_WRONG)
        setattr(request._request, BEARER, token)  # noqa: SLF001  # DRF hides Django's
        require_scope(token, _needed_scope(request))
        return token.user, token

    def authenticate_header(self, _request: Request) -> str:
        """Return what a 401 asks for."""
        return 'Bearer realm="ipuhub"'


def _account_of(token: str, request: Request) -> ServiceAccount:
    """Return the ServiceAccount of a token. Raise AuthenticationFailed, ClusterUnavailable, or
    PermissionDenied if it is not to read."""
    try:
        account = find_account(token)
    except ClusterAway as away:
        raise ClusterUnavailable from away
    if account is None:
        raise AuthenticationFailed(_WRONG_ACCOUNT)
    if request.method not in SAFE_METHODS:
        raise PermissionDenied(_READS_ONLY)
    return account


class BearerDescription(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """OpenAPI description of the token authentication."""

    target_class = "ipuhub.api.auth.BearerAuthentication"
    name = "apiToken"

    def get_security_definition(self, _auto_schema: Any) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An API token, created under Account, API tokens, or with `manage.py "
            "make_api_token`. Where it is switched on, also a token of a Kubernetes ServiceAccount "
            "(audience `ipuhub-api`), to read.",
        }


class IsSignedIn(BasePermission):
    """Users with a session or a token."""

    def has_permission(self, request: Request, _view: APIView) -> bool:
        """Return whether the caller is authenticated."""
        return request.user.is_authenticated


class IsAdmin(BasePermission):
    """Administrators."""

    message = ADMINS_ONLY

    def has_permission(self, request: Request, _view: APIView) -> bool:
        """Return whether the caller is an administrator."""
        return is_admin(request.user)


class IsAccountant(BasePermission):
    """Administrators and accountants."""

    message = ACCOUNTANTS_ONLY

    def has_permission(self, request: Request, _view: APIView) -> bool:
        """Return whether the caller may see reports and rates."""
        return is_accountant(request.user)
