"""glue: grants and revokes roles, revokes tokens, and records who did it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction

from ipuhub.models import ApiToken, RoleGrant
from ipuhub.roles import ADMIN, EVERYWHERE, Grant
from ipuhub.web.audit import ROLE, TOKEN, USER, AuditEvent, differences, record

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection

    from django.contrib.auth.models import User

    from ipuhub.models import ExternalIdentity
    from ipuhub.web.audit import Author


@transaction.atomic
def grant_role(user: User, grant: Grant, by: Author) -> bool:
    """Grant a role; return whether that changed something.

    A role granted by a group becomes a separate grant, which sign-ins no longer revoke.
    """
    if _is_everything(grant):
        return set_admin(user, by, is_admin=True)
    row, is_new = RoleGrant.objects.get_or_create(
        user=user, role=grant.role, namespace=grant.namespace
    )
    if row.from_groups:
        RoleGrant.objects.filter(pk=row.pk).update(from_groups=False)
    if is_new:
        _record(user, grant, by, is_granted=True)
    return is_new or row.from_groups


@transaction.atomic
def revoke_role(user: User, grant: Grant, by: Author) -> bool:
    """Revoke a role; return whether the user had it."""
    if _is_everything(grant):
        return set_admin(user, by, is_admin=False)
    rows = RoleGrant.objects.filter(user=user, role=grant.role, namespace=grant.namespace)
    is_changed = rows.delete()[0] > 0
    if is_changed:
        _record(user, grant, by, is_granted=False)
    return is_changed


@transaction.atomic
def set_group_grants(user: User, wanted: Collection[Grant], by: Author) -> None:
    """Make the grants that come from groups exactly these; grants of administrators stay."""
    rows = list(RoleGrant.objects.select_for_update().filter(user=user))
    known = {Grant(row.role, row.namespace): row.from_groups for row in rows}
    for grant in sorted(grant for grant, is_ours in known.items() if is_ours):
        if grant not in wanted:
            revoke_role(user, grant, by)
    for grant in sorted(set(wanted) - known.keys()):
        _row, is_new = RoleGrant.objects.get_or_create(
            user=user,
            role=grant.role,
            namespace=grant.namespace,
            defaults={"from_groups": True},
        )
        if is_new:  # else the same person signs in twice at the same moment
            _record(user, grant, by, is_granted=True)


@transaction.atomic
def set_admin(user: User, by: Author, *, is_admin: bool) -> bool:
    """Make a user an administrator of everything, or no longer; return whether that changed it."""
    rows = type(user).objects.filter(pk=user.pk, is_staff=not is_admin)
    is_changed = bool(rows.update(is_staff=is_admin))
    user.is_staff = is_admin
    if is_changed:
        _record(user, Grant(ADMIN), by, is_granted=is_admin)
    return is_changed


@transaction.atomic
def delete_token(number: int, by: Author, owner: User | None = None) -> ApiToken | None:
    """Revoke the API token with this number, of `owner` or (None) of any user, and record who did
    it; return it, or None if it does not exist."""
    tokens = ApiToken.objects.select_related("user").select_for_update(of=("self",))
    if owner is not None:
        tokens = tokens.filter(user=owner)
    token = tokens.filter(pk=number).first()
    if token is None:
        return None
    record(by, _revocation_of(token))
    token.delete()
    return token


def token_fields(
    user: User, scopes: str, ends: dt.datetime | None
) -> list[tuple[str, object, object]]:
    """Return the fields of a new token as the audit has them; its text is a secret."""
    until = f"{ends:%Y-%m-%dT%H:%M:%SZ}" if ends else "no expiry"
    after = {"owner": user.get_username(), "scopes": scopes, "valid until": until}
    return differences({}, after)


def _revocation_of(token: ApiToken) -> AuditEvent:
    """Return the revocation of a token as the audit has it."""
    fields = differences({"owner": token.user.get_username(), "scopes": token.scopes}, {})
    return AuditEvent(TOKEN, "revoke", token.name, fields=fields)


def sign_in_event(action: str, identity: ExternalIdentity) -> AuditEvent:
    """Return what the audit has of a user who can sign in at a provider from now on."""
    fields = differences({}, {"issuer": identity.issuer, "subject": identity.subject})
    return AuditEvent(USER, action, identity.user.get_username(), fields=fields)


def _is_everything(grant: Grant) -> bool:
    return grant == Grant(ADMIN, EVERYWHERE)


def _record(user: User, grant: Grant, by: Author, *, is_granted: bool) -> None:
    before, after = (None, grant.role) if is_granted else (grant.role, None)
    record(
        by,
        AuditEvent(
            ROLE,
            "grant" if is_granted else "revoke",
            user.get_username(),
            grant.namespace,
            fields=[("role", before, after)],
        ),
    )
