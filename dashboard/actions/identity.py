"""glue: the Kubernetes user as whom a signed-in user acts, if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.conf import settings

from ipuhub.models import ExternalIdentity
from ipuhub.variables.actions import RESERVED

if TYPE_CHECKING:
    from django.contrib.auth.base_user import AbstractBaseUser
    from django.contrib.auth.models import AnonymousUser

NO_IDENTITY: Final = (
    "You have no Kubernetes user, so you cannot change jobs here. Ask an administrator to add you "
    "to IPUHUB_ACTIONS_USERS, or use kubectl."
)
ACTIONS_OFF: Final = "This installation does not change jobs (IPUHUB_ACTIONS). Use kubectl."
_KNOWN: Final = "_ipuhub_kubernetes_user"
_LONGEST: Final = 1024


def kubernetes_user_of(user: AbstractBaseUser | AnonymousUser) -> str:
    """Return the Kubernetes user of `user`; empty if actions are off or there is none.

    Read once per user object, that is, once per request. A query is needed only for people who
    sign in at a provider.
    """
    if not settings.ACTIONS or not user.is_authenticated or not user.is_active:
        return ""
    known: str | None = getattr(user, _KNOWN, None)
    if known is None:
        known = settings.ACTIONS_USERS.get(user.get_username()) or _external_name(user)
        setattr(user, _KNOWN, known)
    return known


def _external_name(user: AbstractBaseUser | AnonymousUser) -> str:
    if not settings.ACTIONS_SINGLE_SIGN_ON:
        return ""
    # With two identities it would be open which of them is meant.
    found = list(ExternalIdentity.objects.filter(user__username=user.get_username())[:2])
    if len(found) != 1:
        return ""
    name: str = settings.ACTIONS_SINGLE_SIGN_ON.format(
        subject=found[0].subject, issuer=found[0].issuer, username=user.get_username()
    )
    return name if is_usable(name) else ""


def is_usable(name: str) -> bool:
    """Return whether a name may be impersonated: it is a header's value, and no component's."""
    return (
        0 < len(name) <= _LONGEST
        and name == name.strip()
        and name.isprintable()
        and not name.startswith(RESERVED)
    )
