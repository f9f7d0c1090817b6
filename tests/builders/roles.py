"""Builds roles of users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipuhub.models import RoleGrant
from ipuhub.roles import EVERYWHERE, Grant

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def grant(user: User | Any, role: str, namespace: str = EVERYWHERE) -> RoleGrant:
    """Give a user a role in a namespace, or in all; twice is once."""
    wanted = Grant(role, namespace)
    return RoleGrant.objects.get_or_create(user=user, role=wanted.role, namespace=namespace)[0]
