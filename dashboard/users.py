"""glue: the page of users with roles, namespaces, last sign-in and tokens, for administrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from django.contrib.auth import get_user_model
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from ipuhub.web.access import ACCOUNTANTS, require_admin
from ipuhub.web.requests import signed_in

if TYPE_CHECKING:
    import datetime as dt

    from django.contrib.auth.models import User
    from django.http import HttpRequest, HttpResponse

    from ipuhub.models import ApiToken

MOST: Final = 500
"""So many users stand on the page; more are counted only."""


class Row(NamedTuple):
    """A user as the page shows him."""

    name: str
    is_active: bool
    roles: list[str]
    namespaces: list[str]
    is_external: bool
    last_sign_in: dt.datetime | None
    tokens: list[ApiToken]


@require_safe
@signed_in
def users_page(request: HttpRequest) -> HttpResponse:
    """Show the users. Raises PermissionDenied."""
    require_admin(request.user)
    every = get_user_model().objects.order_by("username")
    related = ("groups", "namespace_grants", "api_tokens", "external_identities")
    found = list(every.prefetch_related(*related)[: MOST + 1])
    context = {
        "rows": [_row(user) for user in found[:MOST]],
        "count": every.count() if len(found) > MOST else len(found),
        "most": MOST,
        "now": timezone.now(),
    }
    return render(request, "account/users.html", context)


def _row(user: User) -> Row:
    roles = ["administrator"] if user.is_staff else []
    roles += [group.name for group in user.groups.all() if group.name == ACCOUNTANTS]
    return Row(
        user.get_username(),
        user.is_active,
        roles,
        sorted(grant.namespace for grant in user.namespace_grants.all()),
        bool(user.external_identities.all()),
        user.last_login,
        sorted(user.api_tokens.all(), key=lambda token: token.created_at),
    )
