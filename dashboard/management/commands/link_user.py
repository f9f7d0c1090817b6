"""glue: `manage.py link_user`: lets a local user sign in at the OIDC provider."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError
from django.db import transaction

from ipuhub.management.demofolder import DatabaseCommand
from ipuhub.models import ExternalIdentity
from ipuhub.web.audit import author_of_command, record
from ipuhub.web.grants import sign_in_event

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
        subject = options["subject"]
        with transaction.atomic():
            identity, is_new = ExternalIdentity.objects.get_or_create(
                issuer=settings.OIDC_ISSUER, subject=subject, defaults={"user": user}
            )
            if is_new:
                record(author_of_command("link_user"), sign_in_event("link", identity))
        if not is_new and identity.user != user:
            raise CommandError(f"{subject!r} is linked to user {identity.user.get_username()!r}")
        self.stdout.write(f"{user.get_username()} signs in as {subject}")
