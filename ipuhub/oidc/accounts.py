"""glue: accounts of users who sign in at a provider: their name, roles and sessions.

A user is bound to issuer and subject. A name that another user already has is never taken over: an
administrator links it (`manage.py link_user`).
"""

from __future__ import annotations

import datetime as dt
import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.db import transaction

from ipuhub.models import ExternalIdentity, ExternalSession
from ipuhub.oidc.tokens import Refused
from ipuhub.roles import ACCOUNTANT, Grant
from ipuhub.web.audit import SIGN_IN, Author, record
from ipuhub.web.grants import (
    grant_role,
    revoke_role,
    set_admin,
    set_group_grants,
    sign_in_event,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from django.contrib.auth.models import User


class Roles(NamedTuple):
    """Groups of the provider that may sign in, and that are roles here."""

    required: Collection[str]
    admins: Collection[str]
    accountants: Collection[str]
    granted: Mapping[str, Collection[Grant]] = {}


class SignIn(NamedTuple):
    """A sign-in: the user's issuer, subject, claimed name and groups, and the browser's address."""

    issuer: str
    subject: str
    name: object
    groups: frozenset[str]
    address: str


def require_group(groups: frozenset[str], roles: Roles) -> None:
    """Raise Refused if groups are required and the user is in none of them."""
    if roles.required and not groups & set(roles.required):
        sentence = (
            "Your account is in no group that may use IPUHub. Ask an administrator to add it."
        )
        raise Refused("groups", sentence, "in no required group", 403)


@transaction.atomic
def find_or_make_user(given: SignIn, roles: Roles) -> ExternalIdentity:
    """Return the identity with its user, made at the first sign-in; set roles and groups."""
    require_group(given.groups, roles)
    known = ExternalIdentity.objects.select_related("user")
    identity = known.filter(issuer=given.issuer, subject=given.subject).first()
    if identity is None:
        user = _make_user(given.name)
        identity, is_new = known.get_or_create(
            issuer=given.issuer, subject=given.subject, defaults={"user": user}
        )
        if not is_new:  # the same person in another browser, at the same moment
            user.delete()
        else:
            author = Author(user.get_username(), SIGN_IN, given.address, user)
            record(author, sign_in_event("create", identity))
    if not identity.user.is_active:
        raise Refused("inactive", "This account is disabled in IPUHub.", given.subject[:100], 403)
    _set_roles(identity.user, given, roles)
    if identity.groups != (named := sorted(given.groups)):
        identity.groups = named
        identity.save(update_fields=["groups"])
    return identity


def _make_user(name: object) -> User:
    users = get_user_model()
    text = unicodedata.normalize("NFKC", name) if isinstance(name, str) else ""
    user = users(username=text)
    user.set_unusable_password()
    try:
        user.clean_fields()
    except ValidationError as error:
        sentence = (
            "The provider gives no usable user name: at most 150 letters, digits and @ . + - _ "
            "are possible. Ask an administrator to check IPUHUB_OIDC_USERNAME_CLAIM."
        )
        raise Refused("name", sentence, repr(name)[:100], 403) from error
    if users.objects.filter(username__iexact=text).exists():
        raise _taken(text)
    made, is_new = users.objects.get_or_create(username=text, defaults={"password": user.password})
    if not is_new:
        raise _taken(text)
    return made


def _taken(name: str) -> Refused:
    sentence = (
        "Your user name belongs to another user of IPUHub. An administrator can link both with "
        "manage.py link_user."
    )
    return Refused("taken", sentence, name[:100], 403)


def _set_roles(user: User, given: SignIn, roles: Roles) -> None:
    by, groups = Author(SIGN_IN, SIGN_IN, given.address), given.groups
    if roles.admins:
        set_admin(user, by, is_admin=bool(groups & set(roles.admins)))
    if roles.accountants:
        change = grant_role if groups & set(roles.accountants) else revoke_role
        change(user, Grant(ACCOUNTANT), by)
    if roles.granted:
        wanted = {grant for group in groups for grant in roles.granted.get(group, ())}
        set_group_grants(user, wanted, by)


def remember_session(
    identity: ExternalIdentity, key: str, claims: Mapping[str, Any], token: str, ends: dt.datetime
) -> None:
    """Record a session, so that its provider can end it; forget those that are long over."""
    issued = dt.datetime.fromtimestamp(claims["iat"], dt.UTC)
    ExternalSession.objects.filter(expires_at__lt=issued - dt.timedelta(days=1)).delete()
    sid = claims.get("sid")
    ExternalSession.objects.create(
        identity=identity,
        session_key=key,
        session_id=sid if isinstance(sid, str) else "",
        id_token=token,
        issued_at=issued,
        expires_at=ends,
    )


@transaction.atomic
def end_sessions(issuer: str, claims: Mapping[str, Any]) -> int:
    """End the sessions that a logout token names; return how many there were.

    With a session ID these are the sessions of that ID, else all of the subject. Sessions that
    began after the token was made stay: a token that is sent twice ends nothing new.
    """
    made = dt.datetime.fromtimestamp(claims["iat"], dt.UTC)
    sessions = ExternalSession.objects.filter(identity__issuer=issuer, issued_at__lte=made)
    if "sub" in claims:
        sessions = sessions.filter(identity__subject=claims["sub"])
    if "sid" in claims:
        sessions = sessions.filter(session_id=claims["sid"])
    keys = list(sessions.values_list("session_key", flat=True))
    Session.objects.filter(session_key__in=keys).delete()
    sessions.delete()
    return len(keys)
