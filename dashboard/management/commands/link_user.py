"""glue: `manage.py link_user`: lets a local user sign in at the OIDC provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from ipuhub.management.demofolder import DatabaseCommand
from ipuhub.models import ExternalIdentity

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(DatabaseCommand):
    help = "Links a user of IPUHub to an account of the OIDC provider (IPUHUB_OIDC_ISSUER)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("user", help="name of the user")
        parser.add_argument("subject", help="claim sub of the account at the provider")

    def handle(self, *_args: Any, **options: Any) -> None:
        if not settings.OIDC_ISSUER:
            raise CommandError("IPUHUB_OIDC_ISSUER is not set: set it as for run_web")
        user = get_user_model().objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"user {options['user']!r} does not exist")
        identity, is_new = ExternalIdentity.objects.get_or_create(
            issuer=settings.OIDC_ISSUER, subject=options["subject"], defaults={"user": user}
        )
        if not is_new and identity.user != user:
            raise CommandError(
                f"{options['subject']!r} is linked to user {identity.user.get_username()!r}"
            )
        self.stdout.write(f"{user.get_username()} signs in as {options['subject']}")
