"""glue: who calls the API: a tool by `Authorization: Bearer <token>`, a browser by its session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed

from ipuhub.api.tokens import find_token

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.http import HttpRequest
    from rest_framework.request import Request

    from ipuhub.models import ApiToken

_WRONG = "The API token is wrong, revoked or expired. Make one under Account, API tokens."


def bearer_token(request: HttpRequest | Request) -> str | None:
    """Return the request's bearer token; None where it carries none."""
    scheme, _, text = request.headers.get("Authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


class BearerAuthentication(BaseAuthentication):
    """Signs a request in with the rights of its API token's owner."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """Return the owner and the token; None without one. Raises AuthenticationFailed."""
        text = bearer_token(request)
        if text is None:
            return None
        token = find_token(text, timezone.now())
        if token is None:
            raise AuthenticationFailed(_WRONG)
        return token.user, token

    def authenticate_header(self, _request: Request) -> str:
        """Return what a 401 asks for."""
        return 'Bearer realm="ipuhub"'


class BearerDescription(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the OpenAPI document names the token."""

    target_class = "ipuhub.api.auth.BearerAuthentication"
    name = "apiToken"

    def get_security_definition(self, _auto_schema: Any) -> dict[str, str]:
        """Return the security scheme."""
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "An API token, made under Account, API tokens, or by "
            "`manage.py make_api_token`.",
        }
