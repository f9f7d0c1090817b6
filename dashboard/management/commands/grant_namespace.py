"""glue: `manage.py grant_namespace`: let a user see a namespace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from ipuhub.management.demofolder import DatabaseCommand
from ipuhub.models import NamespaceGrant

if TYPE_CHECKING:
    from argparse import ArgumentParser

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Command(DatabaseCommand):
    help = "Grants a user who is not an administrator access to a namespace; --revoke removes it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("user", help="name of the user")
        parser.add_argument(
            "namespace", help="name of the namespace, which does not have to exist yet"
        )
        parser.add_argument("--revoke", action="store_true", help="revoke the access")

    def handle(self, *_args: Any, **options: Any) -> None:
        user = get_user_model().objects.filter(username=options["user"]).first()
        namespace = options["namespace"]
        if user is None:
            raise CommandError(f"user not found: {options['user']!r}")
        if not _LABEL.fullmatch(namespace):
            raise CommandError(f"{namespace!r} is not a valid namespace name (example: team-a)")
        if options["revoke"]:
            NamespaceGrant.objects.filter(user=user, namespace=namespace).delete()
        else:
            NamespaceGrant.objects.get_or_create(user=user, namespace=namespace)
        seen = NamespaceGrant.objects.filter(user=user).order_by("namespace")
        names = ", ".join(seen.values_list("namespace", flat=True)) or "none"
        self.stdout.write(f"{user} sees: {'all (administrator)' if user.is_staff else names}")
