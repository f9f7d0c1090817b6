"""glue: roles, API tokens, sign-in attempts, and identities at an OIDC provider."""

from __future__ import annotations

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q, Value

from ipuhub.api.scopes import DEFAULT
from ipuhub.roles import ROLES


class RoleGrant(models.Model):
    """A role of a user in a namespace (`*`: in all); see `ipuhub.roles`.

    Administrators of everything are Django's staff and need no row. Each sign-in replaces grants
    `from_groups` of a provider.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="role_grants"
    )
    role = models.TextField()
    namespace = models.TextField()
    from_groups = models.BooleanField(default=False, db_default=False)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "role", "namespace"], name="role_grant_once"),
            models.CheckConstraint(condition=Q(role__in=list(ROLES)), name="role_grant_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.role} in {self.namespace}"


class ApiToken(models.Model):
    """A token for the API with the permissions of its owner; only its SHA-256 is stored.

    `scopes` (words of `ipuhub.api.scopes`) cut these permissions down.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    name = models.TextField()
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    scopes = models.TextField(default=DEFAULT, db_default=DEFAULT)

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"


class SignInAttempts(models.Model):
    """Failed sign-ins of a user, an address, or both (`key`: their digest): `ipuhub.web.signin`.
    Attempts before `blocked_until` are rejected."""

    key = models.TextField(unique=True)
    failures = models.IntegerField()
    changed_at = models.DateTimeField(db_index=True)
    blocked_until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.failures} since {self.changed_at}"


class ExternalIdentity(models.Model):
    """The identity of a user at a provider of sign-in; see `ipuhub.oidc.accounts`.

    Users are found by issuer and subject, never by their name, which a provider may assign to
    another user. `issuer` is the OIDC issuer, or `header:` for names from a proxy in front.
    `groups`: as of the last sign-in, as the provider names them.
    """

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="external_identities"
    )
    issuer = models.TextField()
    subject = models.TextField()
    groups = models.JSONField(default=list, db_default=Value([], models.JSONField()))

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="external_identity_once")
        ]

    def __str__(self) -> str:
        return f"{self.user} is {self.subject} of {self.issuer}"


class ExternalSession(models.Model):
    """A session that began at a provider, so that the provider can end it.

    `session_id`: the claim sid; `issued_at`: of the ID token, by the provider's clock; `id_token`
    shows the provider at sign-out whose session ends.
    """

    identity = models.ForeignKey(
        ExternalIdentity, on_delete=models.CASCADE, related_name="sessions"
    )
    session_key = models.CharField(max_length=40, unique=True)
    session_id = models.TextField(default="")
    id_token = models.TextField(default="")
    issued_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"session of {self.identity} since {self.issued_at}"
