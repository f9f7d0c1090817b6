"""glue: who may call an endpoint; what he sees of it is `ipuhub.web.access`'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.permissions import BasePermission

from ipuhub.web.access import ACCOUNTANTS_ONLY, is_accountant, scope_of

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.views import APIView


class IsSignedIn(BasePermission):
    """Anybody with a session or a token."""

    def has_permission(self, request: Request, _view: APIView) -> bool:
        """Say whether the caller is known."""
        return request.user.is_authenticated


class IsAdmin(BasePermission):
    """Administrators."""

    message = "Only administrators may do this."

    def has_permission(self, request: Request, _view: APIView) -> bool:
        """Say whether the caller sees everything."""
        return scope_of(request.user).sees_all


class IsAccountant(BasePermission):
    """Administrators and accountants."""

    message = ACCOUNTANTS_ONLY

    def has_permission(self, request: Request, _view: APIView) -> bool:
        """Say whether the caller may see reports and rates."""
        return is_accountant(request.user)
