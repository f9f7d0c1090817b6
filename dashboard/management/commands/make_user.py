"""glue: `manage.py make_user`: an account for a person who signs in."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from ipuhub.management.demofolder import DatabaseCommand
from ipuhub.web.access import ACCOUNTANTS

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(DatabaseCommand):
    help = (
        "Creates a user and prints the password once. The user sees the namespaces that "
        "grant_namespace grants."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("user", help="name of the user")
        parser.add_argument("--admin", action="store_true", help="sees everything")
        parser.add_argument(
            "--accountant",
            action="store_true",
            help="may see all usage, close months and set rates",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        users, password = get_user_model(), secrets.token_urlsafe(12)
        if users.objects.filter(username=options["user"]).exists():
            raise CommandError(
                f"user {options['user']!r} already exists; changepassword sets a new password"
            )
        user = users(username=options["user"], is_staff=options["admin"])
        user.set_password(password)
        try:
            user.full_clean()
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        user.save()
        if options["accountant"]:
            user.groups.add(Group.objects.get_or_create(name=ACCOUNTANTS)[0])
        self.stdout.write(password)
